// BERT's model: from the start of a word, the longest piece that fits; then, of the pieces that go
// on with a word, the longest again. A word that cannot be covered so is one unknown token.
// Immutable once made; any thread may encode. Time is linear in the word times the longest piece.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_spec.h"
#include "text/trie.h"
#include "text/vocabulary.h"

namespace skein {

class WordPiece {
 public:
  // `vocabulary` must outlive the model. kInvalidArgument where there is no unknown token.
  static Result<WordPiece> create(const TokenizerSpec& spec, const Vocabulary& vocabulary);

  // Appends the ids of `word`.
  void encode(std::string_view word, std::vector<TokenId>& out) const;

 private:
  Trie first_, continuing_;
  TokenId unknown_ = kNoToken;
  size_t max_chars_ = 0;
};

}  // namespace skein
