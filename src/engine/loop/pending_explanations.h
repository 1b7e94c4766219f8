// PendingQuestions: who asked about requests and waits for the engine's thread to say.
//
// They are not messages, because a watchdog answers those that wait too long. Any thread may call
// any member; every `done` is called exactly once, without a lock held.
#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/time.h"
#include "sched/types.h"

namespace skein {

template <class Answer>
class PendingQuestions {
 public:
  static constexpr size_t kMax = 256;
  static constexpr TimeUs kPatienceUs = 10 * kUsPerSecond;

  struct Asked {
    std::vector<RequestId> ids;  // empty where all of them are meant
    std::function<void(Result<Answer>)> done;
    TimeUs at = 0;
  };

  // Refused at once, with kResourceExhausted, where too many wait.
  void add(Asked asked) {
    std::unique_lock lock(mutex_);
    if (asked_.size() < kMax) return asked_.push_back(std::move(asked));
    lock.unlock();
    asked.done(resource_exhausted("{} explanations wait already", kMax));
  }
  // Those that were asked before that time, in the order of their asking.
  std::vector<Asked> take(TimeUs asked_before = kNever) {
    const std::lock_guard lock(mutex_);
    const auto stays = std::find_if(asked_.begin(), asked_.end(),
                                    [&](const Asked& a) { return a.at >= asked_before; });
    std::vector<Asked> taken(std::make_move_iterator(asked_.begin()),
                             std::make_move_iterator(stays));
    asked_.erase(asked_.begin(), stays);
    return taken;
  }
  // Takes and answers them.
  void refuse(const Status& why, TimeUs asked_before = kNever) {
    for (Asked& asked : take(asked_before)) asked.done(why);
  }

 private:
  std::mutex mutex_;
  std::vector<Asked> asked_;
};

using PendingExplanations = PendingQuestions<std::vector<Explanation>>;
using PendingViews = PendingQuestions<std::shared_ptr<const SchedulerView>>;

}  // namespace skein
