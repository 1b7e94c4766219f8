// TokenCounts: how often each token has been seen, for the few that were.
//
// Memory grows with the distinct tokens, by doubling; what is already known costs no allocation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace skein {

class TokenCounts {
 public:
  struct Entry {
    TokenId token = kNoToken;
    uint32_t in_answer = 0;  // 0: only in the prompt
  };

  void add_prompt(TokenId token) { find_or_add(token); }
  void add_answer(TokenId token) { ++find_or_add(token).in_answer; }

  std::span<const Entry> entries() const { return entries_; }  // in the order of first sight

 private:
  Entry& find_or_add(TokenId token);
  void grow();

  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_;  // open addressing; 1 + index into entries_, 0: free
};

}  // namespace skein
