// TokenIndex: a text that grows, in which the places are found that its end was at before.
//
// Every two tokens that something follows are in a hash table with chains, most recent first, as
// compressors have it. A search looks at a bounded number of places, whatever the text is.
// Memory: 8 bytes a token and at most 8 more for the table. Single-threaded.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace skein {

class TokenIndex {
 public:
  static constexpr uint32_t kLeastMatch = 2;     // shorter ends are not looked for
  static constexpr uint32_t kLongestMatch = 32;  // longer ones are as good as this
  static constexpr uint32_t kMostPlaces = 64;    // that a search looks at

  // The `length` tokens before `end` are the last ones of what was looked for; what follows begins
  // at `end`. length 0: none.
  struct Match {
    uint32_t end = 0;
    uint32_t length = 0;
  };

  // kNoToken ends a text and begins another: nothing matches across it.
  void append(TokenId token);
  void append(std::span<const TokenId> tokens);

  uint32_t size() const { return static_cast<uint32_t>(tokens_.size()); }
  std::span<const TokenId> tokens() const { return tokens_; }

  // The longest match of the end of `text`, the most recent among equals. `text` may be this one.
  Match find(std::span<const TokenId> text) const;
  // How many of the last tokens of `text` stand before `end`.
  uint32_t length_at(std::span<const TokenId> text, uint32_t end) const;

 private:
  static uint32_t hash_of(const TokenId* gram);
  bool ends_gram(uint32_t end) const;
  void link(uint32_t end);
  void grow();

  std::vector<TokenId> tokens_;
  std::vector<uint32_t> earlier_;  // by end of a gram: the end before it in its chain; 0: none
  std::vector<uint32_t> heads_;    // by hash: the latest end
};

}  // namespace skein
