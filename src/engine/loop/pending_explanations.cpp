#include "engine/loop/pending_explanations.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace skein {

void PendingExplanations::add(std::vector<RequestId> ids, InferenceService::Explained done,
                              TimeUs now) {
  {
    const std::lock_guard lock(mutex_);
    if (asked_.size() < kMax) {
      asked_.push_back({std::move(ids), std::move(done), now});
      return;
    }
  }
  done(resource_exhausted("{} explanations wait already", kMax));
}

std::vector<PendingExplanations::Asked> PendingExplanations::take(TimeUs asked_before) {
  std::vector<Asked> taken;
  const std::lock_guard lock(mutex_);
  const auto stays = std::find_if(asked_.begin(), asked_.end(),
                                  [&](const Asked& a) { return a.at >= asked_before; });
  taken.assign(std::make_move_iterator(asked_.begin()), std::make_move_iterator(stays));
  asked_.erase(asked_.begin(), stays);
  return taken;
}

void PendingExplanations::refuse(const Status& why, TimeUs asked_before) {
  for (Asked& asked : take(asked_before)) asked.done(why);
}

}  // namespace skein
