#include "text/vocabulary.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "text/utf8.h"

namespace skein {
namespace {

// GPT-2's byte-level alphabet: each byte is written as one printable character.
constexpr char32_t kAlphabetEnd = 0x144;

// From character to byte. The printable characters of Latin-1 stand for themselves; the other bytes
// are the characters from U+0100 on, in order.
constexpr auto kBytes = [] {
  std::array<int16_t, kAlphabetEnd> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  char32_t next = 0x100;
  for (int16_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xFF && b != 0xAD);
    bytes[printable ? static_cast<char32_t>(b) : next++] = b;
  }
  return bytes;
}();

// Appends the bytes that `spelled` stands for, and says true; leaves `out` alone and says false
// when it has a character outside the alphabet.
bool append_byte_level(std::string_view spelled, std::string& out) {
  const size_t before = out.size();
  while (!spelled.empty()) {
    const Utf8Char c = utf8_next(spelled);
    if (c.kind != Utf8Kind::kValid || c.code_point >= kAlphabetEnd || kBytes[c.code_point] < 0) {
      out.resize(before);
      return false;
    }
    out.push_back(static_cast<char>(kBytes[c.code_point]));
    spelled.remove_prefix(c.length);
  }
  return true;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

std::string with_spaces(std::string_view spelled) {
  std::string out;
  for (size_t p = 0; p < spelled.size();) {
    if (spelled.substr(p, kMetaspace.size()) == kMetaspace) {
      out += ' ';
      p += kMetaspace.size();
    } else {
      out += spelled[p++];
    }
  }
  return out;
}

// A word piece with the space before it, if it begins a word.
std::string of_word(std::string_view spelled, const TokenizerSpec& spec, bool is_control) {
  // In a file where pieces that begin a word are marked, the others go on with one.
  const std::string& prefix = spec.word_prefix;
  const bool begins = prefix.empty() ? !spelled.starts_with(spec.continuing_prefix)
                                     : is_control || spelled.starts_with(prefix);
  if (!begins) return std::string(spelled.substr(spec.continuing_prefix.size()));
  if (!prefix.empty() && !is_control) spelled.remove_prefix(prefix.size());
  constexpr std::string_view kJoined[] = {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
  const auto is_start = [&](std::string_view text) { return spelled.starts_with(text); };
  const bool joins =
      spec.joins_punctuation && std::any_of(std::begin(kJoined), std::end(kJoined), is_start);
  return (joins ? "" : " ") + std::string(spelled);
}

Status check_counts(const TokenizerSpec& spec) {
  const size_t count = spec.pieces.size();
  if (count == 0) return invalid_argument("tokenizer: the vocabulary is empty");
  if (count > kMaxVocabulary) {
    return out_of_range("tokenizer: {} pieces, at most {} are supported", count, kMaxVocabulary);
  }
  if (!spec.types.empty() && spec.types.size() != count) {
    return invalid_argument("tokenizer: {} token types for {} pieces", spec.types.size(), count);
  }
  const bool scored =
      spec.model == TokenizerSpec::Model::kSpmBpe || spec.model == TokenizerSpec::Model::kUnigram;
  if (scored && spec.scores.size() != count) {
    return invalid_argument("tokenizer: {} scores for {} pieces", spec.scores.size(), count);
  }
  const auto check_id = [&](TokenId id, std::string_view what) {
    if (id >= 0 && static_cast<size_t>(id) < count) return ok_status();
    return invalid_argument("tokenizer: {} is token {}, the vocabulary has {}", what, id, count);
  };
  if (spec.unknown != kNoToken) SKEIN_TRY(check_id(spec.unknown, "unknown_token_id"));
  for (const TokenId id : spec.prefix) SKEIN_TRY(check_id(id, "a token before the text"));
  for (const TokenId id : spec.suffix) SKEIN_TRY(check_id(id, "a token after the text"));
  for (const AddedToken& token : spec.added) SKEIN_TRY(check_id(token.id, "an added token"));
  return {};
}

}  // namespace

int byte_of_piece(std::string_view spelled) {
  if (spelled.size() != 6 || spelled.substr(0, 3) != "<0x" || spelled[5] != '>') return -1;
  const int high = hex_digit(spelled[3]);
  const int low = hex_digit(spelled[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

Result<Vocabulary> Vocabulary::create(TokenizerSpec& spec) {
  SKEIN_TRY(check_counts(spec));
  Vocabulary v;
  v.byte_level_ = spec.byte_level;
  v.spelled_ = std::move(spec.pieces);
  v.types_ = std::move(spec.types);
  v.types_.resize(v.size(), TokenType::kNormal);
  for (const AddedToken& token : spec.added) {
    if (token.special) v.types_[static_cast<size_t>(token.id)] = TokenType::kControl;
  }
  if (spec.unknown != kNoToken) {
    TokenType& type = v.types_[static_cast<size_t>(spec.unknown)];
    if (type == TokenType::kNormal) type = TokenType::kUnknown;
  }
  v.decode_pieces(spec);
  v.by_spelling_ = PieceMap(v.size());
  v.by_key_ = PieceMap(v.size());
  v.bytes_.fill(kNoToken);
  for (size_t i = 0; i < v.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (v.spelled(id).empty()) continue;
    v.by_spelling_.insert(v.spelled_, id);
    if (v.encodable(id)) v.by_key_.insert(v.keys(), id);
    if (v.type(id) == TokenType::kByte)
      v.bytes_[static_cast<size_t>(byte_of_piece(v.spelled(id)))] = id;
  }
  for (int b = 0; v.byte_level_ && b < 256; ++b) {
    const char byte = static_cast<char>(b);
    v.bytes_[static_cast<size_t>(b)] = v.find_encodable({&byte, 1});
  }
  return v;
}

void Vocabulary::decode_pieces(const TokenizerSpec& spec) {
  const TokenizerSpec::Decoder decoder = spec.decoder;
  std::string bytes;
  decoded_.reserve(size(), spelled_.total_bytes());
  for (size_t i = 0; i < size(); ++i) {
    const std::string_view spelled = spelled_[i];
    TokenType& type = types_[i];
    const int byte = type == TokenType::kByte ? byte_of_piece(spelled) : -1;
    // A file may call anything a byte piece.
    if (type == TokenType::kByte && byte < 0) type = TokenType::kNormal;
    bytes.clear();
    const bool plain = type == TokenType::kControl || type == TokenType::kUserDefined ||
                       type == TokenType::kMarker;
    if (byte >= 0) {
      bytes.push_back(static_cast<char>(byte));
    } else if (byte_level_ || decoder == TokenizerSpec::Decoder::kByteLevel) {
      // Added tokens are spelled in plain text, which may have characters outside the alphabet.
      if (plain || !append_byte_level(spelled, bytes)) bytes = spelled;
    } else if (decoder == TokenizerSpec::Decoder::kMetaspace && type != TokenType::kControl) {
      bytes = with_spaces(spelled);
    } else if (decoder == TokenizerSpec::Decoder::kWordPiece) {
      bytes = of_word(spelled, spec, type == TokenType::kControl);
    } else {
      bytes = spelled;
    }
    decoded_.push_back(bytes);
  }
}

}  // namespace skein
