// Text to token ids and back, exactly as the model was trained.
//
// A Tokenizer is immutable once made: any number of threads may use one. Text may be any bytes;
// what is not UTF-8 becomes byte pieces where the vocabulary has them. Encoding takes linear time
// but for the logarithm that merging a long word costs.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/tokenizer_spec.h"

namespace skein {

class TrustedRanges;

inline constexpr size_t kMaxTextBytes = size_t{1} << 28;

struct EncodeOptions {
  // Control tokens spelled out in the text become those tokens. Only for text that we wrote (a
  // rendered template), never for what a user typed.
  bool parse_special = false;
  // Puts what the model expects around a text (BOS, EOS).
  bool add_special = false;
};

// A part of a prompt. Control tokens spelled out in it are read as such only where it is trusted:
// our own text (a chat template's literals), never what a user typed. Words and ordinary tokens run
// on across the borders of parts.
struct TextPart {
  std::string_view text;
  bool trusted = false;
};

// Two texts in one, as encoders compare them.
struct PairTokens {
  std::vector<TokenId> ids;
  uint32_t second_from = 0;  // what is from here on is the second text's
};

struct DecodeOptions {
  bool skip_special = true;
  // The ids go on from earlier ones, so a space at their start is a real one.
  bool continuation = false;
};

class Tokenizer {
 public:
  static Result<Tokenizer> create(TokenizerSpec spec);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options = {}) const;
  Result<std::vector<TokenId>> encode(std::span<const TextPart> parts, bool add_special) const;

  // What the model expects before a text, the first one, what it expects after a text, the second
  // one, and that again. Control tokens spelled out in them stay text.
  Result<PairTokens> encode_pair(std::string_view first, std::string_view second) const;

  // Valid UTF-8 always: an invalid part inside becomes U+FFFD, an incomplete character at the end
  // is dropped. Fails on an id outside the vocabulary.
  Result<std::string> decode(std::span<const TokenId> ids, DecodeOptions options = {}) const;

  size_t vocab_size() const;
  // Bytes of text that one token can stand for, at most.
  size_t longest_piece_bytes() const;
  bool contains(TokenId id) const;
  // The id of a piece as the file spells it; kNoToken when there is none.
  TokenId find(std::string_view piece) const;
  // The rest need contains(id). The views live as long as the tokenizer.
  std::string_view piece(TokenId id) const;
  std::string_view bytes(TokenId id) const;  // what it decodes to; may be part of a character
  bool is_control(TokenId id) const;         // control and unknown tokens: no part of the text
  bool strips_leading_space() const;         // see DecodeOptions::continuation

 private:
  struct Parts;
  Result<std::vector<TokenId>> encode(std::string_view text, const TrustedRanges& trusted,
                                      bool add_special) const;
  explicit Tokenizer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace skein
