// Finds added tokens in a text: the leftmost first, the longest of those. Immutable once made; any
// thread may use it. Time is linear in the text times the longest token (512 bytes).
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_spec.h"
#include "text/trie.h"

namespace skein {

class AddedTokens {
 public:
  AddedTokens() = default;
  static Result<AddedTokens> create(std::vector<AddedToken> tokens);

  bool empty() const { return trie_.empty(); }

  struct Match {
    size_t begin = 0;  // with the white space that the token takes
    size_t end = 0;
    TokenId id = kNoToken;  // kNoToken: there is none from here on
  };
  // The first match that starts at or after `from`.
  Match next(std::string_view text, size_t from) const;

 private:
  bool stands_alone(std::string_view text, size_t begin, size_t end) const;

  std::vector<AddedToken> tokens_;
  Trie trie_;  // values are indices of tokens_
};

}  // namespace skein
