// What the tokens of a vocabulary do inside a JSON string, behind its first quote: made once for a
// vocabulary, since most schemas have strings, and many say how long they may be.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "grammar/token_trie.h"

namespace skein::grammar {

struct StringTokens {
  struct Within {
    uint32_t characters;
    TokenMask mask;  // the tokens that may stand in so many, the last of which may be a part of one
  };
  struct Quote {
    uint32_t characters;  // that come before the second quote
    uint32_t at;          // the token that it ends, or the node behind which others go on
  };

  uint32_t level;              // of the trie, whose nodes these are
  std::vector<Within> within;  // the fewest characters first; the last has all
  std::vector<Quote> tokens, nodes;
  uint64_t work;

  // None where nothing fits in.
  const TokenMask* tokens_within(uint32_t characters) const;
};
// How many characters a text has that may stand inside a JSON string as it is.
std::optional<uint32_t> plain_characters(std::string_view text);
// None where a vocabulary has too many tokens with a quote inside, or tokens of too many lengths.
std::shared_ptr<const StringTokens> string_tokens(const TokenTrie& trie);
// The tokens that may stand inside every JSON string, or none where that would be few.
std::shared_ptr<const TokenMask> tokens_inside_string(const TokenTrie& trie);

}  // namespace skein::grammar
