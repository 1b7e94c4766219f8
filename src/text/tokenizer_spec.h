// The parts of a tokenizer, whatever file it came from. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/splitter.h"

namespace skein {

// Many short strings in one allocation: a vocabulary of 250,000 pieces is two arrays.
// At most 4 GiB of text in all; the callers' caps are far below.
class FlatStrings {
 public:
  void reserve(size_t strings, size_t bytes) {
    ends_.reserve(strings);
    bytes_.reserve(bytes);
  }
  void push_back(std::string_view text) {
    bytes_ += text;
    ends_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
  size_t size() const { return ends_.size(); }
  bool empty() const { return ends_.empty(); }
  size_t total_bytes() const { return bytes_.size(); }
  // Valid until the next push_back.
  std::string_view operator[](size_t i) const {
    const uint32_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(bytes_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string bytes_;
  std::vector<uint32_t> ends_;
};

// Limits, far beyond real vocabularies (262,144 pieces; added tokens of 30 bytes).
inline constexpr size_t kMaxVocabulary = size_t{1} << 21;
inline constexpr size_t kMaxMerges = size_t{1} << 22;
inline constexpr size_t kMaxVocabularyBytes = size_t{1} << 28;
// The longest added token, or piece that is matched by a trie or by all its splits.
inline constexpr size_t kMaxPieceBytes = 512;

// SentencePiece writes this for a space: U+2581.
inline constexpr std::string_view kMetaspace = "\xE2\x96\x81";

enum class TokenType : uint8_t {
  kNormal,
  kUnknown,
  kControl,  // never comes out of a user's text
  kUserDefined,
  kMarker,  // likewise, but printed in answers: a chat template's own token (see markers.h)
  kUnused,
  kByte,  // <0x00> to <0xFF>
};

// One step of the normalizer: what happens to a stretch of text before it is split.
struct NormalizerStep {
  enum class Kind : uint8_t {
    kPrepend,         // `content` before a text that is not empty
    kReplace,         // every `pattern` by `content`
    kCollapseSpaces,  // two or more spaces by `content`
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kStripLeft,
    kStripRight,
    kCharsmap,  // SentencePiece's precompiled map, in `content`
    // BERT's (bert_text.h):
    kBertClean,    // control characters go, white space becomes a space
    kBertChinese,  // a space around every Chinese character
    kBertAccents,  // marks that take no room of their own go
  };
  Kind kind;
  std::string pattern;
  std::string content;
};

// One step of the pre-tokenizer: how the normalized text becomes words.
struct PreTokenizerStep {
  enum class Kind : uint8_t {
    kSplit,        // by `splitter`, or by the string `pattern` when that is not empty
    kPrefixSpace,  // a space before a piece that does not start with one
    kMetaspace,    // spaces become U+2581; `prepend` says where one is added
  };
  enum class Behavior : uint8_t {
    kIsolated,
    kRemoved,
    kMergedWithPrevious,
    kMergedWithNext,
    kContiguous,
  };
  enum class Prepend : uint8_t { kNever, kFirst, kAlways };

  Kind kind = Kind::kSplit;
  Splitter splitter = Splitter::kGpt2;
  std::string pattern = {};
  Behavior behavior = Behavior::kIsolated;
  bool invert = false;                // the gaps between the matches count as matches
  Prepend prepend = Prepend::kNever;  // kMetaspace
};

// A token that is looked for in the text itself, before any splitting.
struct AddedToken {
  TokenId id = kNoToken;
  std::string text;
  bool special = false;     // only with parse_special
  bool normalized = false;  // looked for after the normalizer, not before
  bool lstrip = false;      // takes the white space before it
  bool rstrip = false;
  bool single_word = false;  // not inside a word
};

struct TokenizerSpec {
  enum class Model : uint8_t {
    kBpe,     // merges by rank
    kSpmBpe,  // SentencePiece's BPE: any pair that makes a piece, the best score first
    kUnigram,
    kWordPiece,  // the longest piece that fits, from the start of a word on
  };
  enum class Decoder : uint8_t {
    kPlain,
    kByteLevel,
    kMetaspace,  // U+2581 becomes a space; byte pieces become bytes
    kWordPiece,  // a space before a piece that begins a word
  };

  Model model = Model::kBpe;
  FlatStrings pieces;            // by id
  std::vector<double> scores;    // by id; kSpmBpe and kUnigram
  std::vector<TokenType> types;  // by id; empty: all normal
  FlatStrings merges;            // left, right, left, right, ...; kBpe
  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;

  bool byte_level = false;     // pieces are spelled in ByteLevel's characters; the model sees bytes
  bool byte_fallback = false;  // what no piece covers becomes byte pieces
  bool ignore_merges = false;  // a word that is a piece is that piece
  bool fuse_unknown = false;
  TokenId unknown = kNoToken;

  // kWordPiece: how pieces are spelled that begin a word, and those that go on with one; and the
  // characters of a word beyond which it is unknown.
  std::string word_prefix;
  std::string continuing_prefix;
  size_t max_word_chars = 100;
  bool joins_punctuation = false;  // decoding leaves no space before some punctuation

  Decoder decoder = Decoder::kPlain;
  bool strip_leading_space = false;  // decoding a whole text drops the space that encoding added

  std::vector<TokenId> prefix;  // what add_special puts around the ids
  std::vector<TokenId> suffix;
};

}  // namespace skein
