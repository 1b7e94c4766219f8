// The pieces of a tokenizer: their text, what the model matches, what they decode to, their types.
// Immutable once made, so any thread may read.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/rng.h"
#include "base/status.h"
#include "text/tokenizer_spec.h"

namespace skein {

// A hash for tables that a model file fills once. A file made to collide only slows its own user.
inline uint64_t hash_bytes(std::string_view text) {
  uint64_t h = 0x9e3779b97f4a7c15U ^ text.size();
  const char* p = text.data();
  size_t n = text.size();
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    h = mix64(h ^ word);
  }
  uint64_t tail = 0;
  std::memcpy(&tail, p, n);
  return mix64(h ^ tail);
}

// From the text of a piece to its id: an open-addressing table over strings that live elsewhere.
// Immutable once filled, so any thread may look up.
class PieceMap {
 public:
  PieceMap() = default;
  explicit PieceMap(size_t capacity) { slots_.resize(std::bit_ceil(capacity * 2 + 1)); }

  // Keeps the first id of a text that comes twice. At most `capacity` inserts.
  void insert(const FlatStrings& pieces, TokenId id) {
    const std::string_view text = pieces[static_cast<size_t>(id)];
    const uint64_t hash = hash_bytes(text);
    size_t i = hash & (slots_.size() - 1);
    for (; slots_[i].id != kNoToken; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].tag == tag(hash) && pieces[static_cast<size_t>(slots_[i].id)] == text) return;
    }
    slots_[i] = {tag(hash), id};
  }

  // kNoToken when there is none. `pieces` is the same as for insert.
  TokenId find(const FlatStrings& pieces, std::string_view text) const {
    if (slots_.empty()) return kNoToken;
    const uint64_t hash = hash_bytes(text);
    for (size_t i = hash & (slots_.size() - 1); slots_[i].id != kNoToken;
         i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].tag == tag(hash) && pieces[static_cast<size_t>(slots_[i].id)] == text) {
        return slots_[i].id;
      }
    }
    return kNoToken;
  }

 private:
  struct Slot {
    uint32_t tag = 0;
    TokenId id = kNoToken;
  };
  static uint32_t tag(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

  std::vector<Slot> slots_;
};

class Vocabulary {
 public:
  // Checks the counts, types and ids of the spec and takes its pieces.
  static Result<Vocabulary> create(TokenizerSpec& spec);

  size_t size() const { return spelled_.size(); }
  bool contains(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < size(); }

  // The id of a piece as the file spells it, of any type; kNoToken when there is none.
  TokenId find(std::string_view spelled) const { return by_spelling_.find(spelled_, spelled); }
  // The id of the piece that a user's text may become; kNoToken when there is none.
  TokenId find_encodable(std::string_view key) const { return by_key_.find(keys(), key); }
  // The piece for one byte, when the vocabulary has it.
  TokenId byte_piece(uint8_t byte) const { return bytes_[byte]; }

  std::string_view spelled(TokenId id) const { return spelled_[static_cast<size_t>(id)]; }
  // The text that the model looks for: bytes for byte-level pieces, else the spelling.
  std::string_view key(TokenId id) const { return keys()[static_cast<size_t>(id)]; }
  // The text that the piece stands for; may be part of a character.
  std::string_view decoded(TokenId id) const { return decoded_[static_cast<size_t>(id)]; }
  TokenType type(TokenId id) const { return types_[static_cast<size_t>(id)]; }
  bool encodable(TokenId id) const {
    return type(id) == TokenType::kNormal || type(id) == TokenType::kUserDefined ||
           type(id) == TokenType::kUnused;
  }

 private:
  const FlatStrings& keys() const { return byte_level_ ? decoded_ : spelled_; }
  void decode_pieces(const TokenizerSpec& spec);

  FlatStrings spelled_;
  FlatStrings decoded_;
  std::vector<TokenType> types_;
  PieceMap by_spelling_;
  PieceMap by_key_;
  std::array<TokenId, 256> bytes_;
  bool byte_level_ = false;
};

// The piece <0xHH> stands for a byte; -1 for any other text.
int byte_of_piece(std::string_view spelled);

}  // namespace skein
