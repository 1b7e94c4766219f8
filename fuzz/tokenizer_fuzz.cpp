// Any bytes, through a tokenizer of each kind: the pieces stand for exactly the text, no control
// token comes out, and what decodes is UTF-8.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "small_tokenizers.h"
#include "text/splitter.h"
#include "text/utf8.h"

namespace skein {
namespace {

std::string joined(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string out;
  for (const TokenId id : ids) out += tokenizer.bytes(id);
  return out;
}

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.encode(text);
  SKEIN_CHECK(ids.ok(), "{}", ids.message());
  for (const TokenId id : *ids) SKEIN_CHECK(!tokenizer.is_control(id), "control token {}", id);
  const auto decoded = tokenizer.decode(*ids);
  SKEIN_CHECK(decoded.ok() && utf8_repaired(*decoded) == *decoded, "not UTF-8");
  SKEIN_CHECK(tokenizer.encode(text, {.parse_special = true, .add_special = true}).ok(), "special");
  return *ids;
}

// What the sentencepiece() tokenizers make of a text before its pieces are looked up.
std::string with_spaces(std::string_view text) {
  // The added token <think> is cut out first; each stretch between gets its own space.
  constexpr std::string_view kThink = "<think>";
  std::string out;
  bool at_start = true;
  while (!text.empty()) {
    if (text.substr(0, kThink.size()) == kThink) {
      out += kThink;
      text.remove_prefix(kThink.size());
      at_start = true;
      continue;
    }
    if (at_start) out += ' ';
    at_start = false;
    const bool space = text.substr(0, kMetaspace.size()) == kMetaspace;
    out += space ? ' ' : text[0];
    text.remove_prefix(space ? kMetaspace.size() : 1);
  }
  return out;
}

void check_pieces(Splitter splitter, std::string_view text) {
  std::string pieces;
  split(splitter, text, [&pieces](std::string_view piece, bool) {
    SKEIN_CHECK(!piece.empty(), "an empty piece");
    pieces += piece;
  });
  SKEIN_CHECK(pieces == text, "the pieces are not the text");
}

}  // namespace
}  // namespace skein

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skein;
  static const auto* const kGpt2 = new Tokenizer(fuzz::byte_level(Splitter::kGpt2));
  static const auto* const kO200k = new Tokenizer(fuzz::byte_level(Splitter::kO200k));
  static const auto* const kSpm = new Tokenizer(fuzz::sentencepiece(TokenizerSpec::Model::kSpmBpe));
  static const auto* const kUnigram =
      new Tokenizer(fuzz::sentencepiece(TokenizerSpec::Model::kUnigram));
  static const auto* const kWordPieces = new Tokenizer(fuzz::word_pieces());
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (int s = 0; s <= static_cast<int>(Splitter::kDeepSeek3Cjk); ++s) {
    check_pieces(static_cast<Splitter>(s), text);
  }
  for (const Tokenizer* tokenizer : {kGpt2, kO200k}) {
    SKEIN_CHECK(joined(*tokenizer, encode(*tokenizer, text)) == text, "bytes were lost");
  }
  for (const Tokenizer* tokenizer : {kSpm, kUnigram}) {
    SKEIN_CHECK(joined(*tokenizer, encode(*tokenizer, text)) == with_spaces(text),
                "bytes were lost");
  }
  const auto pair = kWordPieces->encode_pair(text, text);
  SKEIN_CHECK(pair.ok() && kWordPieces->decode(pair->ids).ok(), "word pieces");
  return 0;
}
