#include "engine/speculation/draft_memory.h"

#include <algorithm>

namespace skein {

void EarlierAnswers::add(std::span<const TokenId> answer) {
  answer = answer.last(std::min<size_t>(answer.size(), kMostTokens - 1));
  if (newer_->size() + answer.size() + 1 > kMostTokens) {
    auto next = std::make_shared<TokenIndex>();
    halves_[1] = newer_;
    halves_[0] = newer_ = std::move(next);
  }
  newer_->append(answer);
  newer_->append(kNoToken);
}

std::shared_ptr<EarlierAnswers> DraftMemory::of(uint64_t tenant, const Hash128& salt) {
  const auto it = std::find_if(known_.begin(), known_.end(), [&](const Known& known) {
    return known.tenant == tenant && known.salt == salt;
  });
  if (it != known_.end()) {
    known_.splice(known_.begin(), known_, it);
  } else {
    known_.push_front({tenant, salt, std::make_shared<EarlierAnswers>()});
    if (known_.size() > kMostTenants) known_.pop_back();
  }
  return known_.front().answers;
}

}  // namespace skein
