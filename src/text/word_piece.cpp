#include "text/word_piece.h"

#include <utility>

#include "text/utf8.h"

namespace skein {
namespace {

bool has_more_chars(std::string_view word, size_t most) {
  if (word.size() <= most) return false;
  size_t chars = 0;
  for (size_t at = 0; at < word.size() && chars <= most; ++chars) {
    at += utf8_next(word.substr(at, 4)).length;
  }
  return chars > most;
}

}  // namespace

Result<WordPiece> WordPiece::create(const TokenizerSpec& spec, const Vocabulary& vocabulary) {
  if (spec.unknown == kNoToken) {
    return invalid_argument("tokenizer: word pieces have no unknown token");
  }
  WordPiece model;
  model.unknown_ = spec.unknown;
  model.max_chars_ = spec.max_word_chars;
  std::vector<Trie::Key> first, continuing;
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (!vocabulary.encodable(id)) continue;
    const std::string_view key = vocabulary.key(id);
    if (key.size() > kMaxPieceBytes) {
      return out_of_range("tokenizer: piece {} has {} bytes, at most {} are supported", i,
                          key.size(), kMaxPieceBytes);
    }
    if (key.starts_with(spec.word_prefix)) {
      first.emplace_back(key.substr(spec.word_prefix.size()), id);
    }
    if (key.starts_with(spec.continuing_prefix)) {
      continuing.emplace_back(key.substr(spec.continuing_prefix.size()), id);
    }
  }
  model.first_ = Trie(std::move(first));
  model.continuing_ = Trie(std::move(continuing));
  return model;
}

void WordPiece::encode(std::string_view word, std::vector<TokenId>& out) const {
  if (word.empty()) return;
  if (has_more_chars(word, max_chars_)) return out.push_back(unknown_);
  const size_t before = out.size();
  for (size_t at = 0; at < word.size();) {
    size_t length = 0;
    (at == 0 ? first_ : continuing_).prefixes(word.substr(at), [&](size_t matched, TokenId id) {
      if (length == 0) out.push_back(id);
      out.back() = id;
      length = matched;
    });
    if (length == 0) {
      out.resize(before);
      return out.push_back(unknown_);
    }
    at += length;
  }
}

}  // namespace skein
