// From the text of a piece to its id: an open-addressing table over strings that live elsewhere.
// Immutable once filled, so any thread may look up.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/rng.h"
#include "text/flat_strings.h"

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

}  // namespace skein
