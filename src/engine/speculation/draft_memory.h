// DraftMemory: the latest answers of each tenant, for guessing at its next ones.
//
// Whose they are is the tenant and the salt of its requests, both: nobody's text is ever guessed
// from another's. A tenant keeps 16,384 to 32,768 tokens, and the 32 tenants that asked last are
// known: 17 MB at most. Single-threaded.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>

#include "base/hash.h"
#include "base/ids.h"
#include "engine/speculation/token_index.h"

namespace skein {

// Of one tenant.
class EarlierAnswers {
 public:
  static constexpr uint32_t kMostTokens = 16'384;  // of each half

  void add(std::span<const TokenId> answer);

  // The halves, newer one first; an older one goes when the newer is full. Never nullptr.
  std::span<const std::shared_ptr<const TokenIndex>> halves() const { return halves_; }

 private:
  std::shared_ptr<TokenIndex> newer_ = std::make_shared<TokenIndex>();
  std::shared_ptr<const TokenIndex> halves_[2] = {newer_, std::make_shared<TokenIndex>()};
};

class DraftMemory {
 public:
  static constexpr size_t kMostTenants = 32;

  // What there is of that tenant, who asked last now.
  std::shared_ptr<EarlierAnswers> of(uint64_t tenant, const Hash128& salt);

 private:
  struct Known {
    uint64_t tenant;
    Hash128 salt;
    std::shared_ptr<EarlierAnswers> answers;
  };
  std::list<Known> known_;  // who asked last comes first
};

}  // namespace skein
