// A set of byte values.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <cstdint>
#include <string_view>

namespace skein::grammar {

struct ByteSet {
  std::array<uint64_t, 4> words{};

  static ByteSet of(std::string_view bytes) {
    ByteSet set;
    for (const char c : bytes) set.add(static_cast<uint8_t>(c));
    return set;
  }
  static ByteSet range(uint8_t first, uint8_t last) {
    ByteSet set;
    for (uint32_t b = first; b <= last; ++b) set.add(static_cast<uint8_t>(b));
    return set;
  }
  static ByteSet all() { return ByteSet{}.complement(); }

  void add(uint8_t byte) { words[byte >> 6] |= uint64_t{1} << (byte & 63); }
  bool has(uint8_t byte) const { return (words[byte >> 6] >> (byte & 63)) & 1; }
  bool empty() const { return (words[0] | words[1] | words[2] | words[3]) == 0; }
  uint32_t size() const {
    uint32_t n = 0;
    for (const uint64_t word : words) n += static_cast<uint32_t>(std::popcount(word));
    return n;
  }
  ByteSet complement() const { return {{~words[0], ~words[1], ~words[2], ~words[3]}}; }
  friend ByteSet operator|(const ByteSet& a, const ByteSet& b) {
    return {{a.words[0] | b.words[0], a.words[1] | b.words[1], a.words[2] | b.words[2],
             a.words[3] | b.words[3]}};
  }
  friend ByteSet operator&(const ByteSet& a, const ByteSet& b) {
    return {{a.words[0] & b.words[0], a.words[1] & b.words[1], a.words[2] & b.words[2],
             a.words[3] & b.words[3]}};
  }
  friend auto operator<=>(const ByteSet&, const ByteSet&) = default;
};

}  // namespace skein::grammar
