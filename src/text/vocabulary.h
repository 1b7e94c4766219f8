// The pieces of a tokenizer: their text, what the model matches, what they decode to, their types.
// Immutable once made, so any thread may read.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/piece_map.h"
#include "text/tokenizer_spec.h"

namespace skein {

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
  void decode_pieces(TokenizerSpec::Decoder decoder);

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
