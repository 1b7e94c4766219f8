// Strong ids: integers that do not mix.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace skein {

// Tokens in one KV block. A block is the unit of allocation, sharing and hashing.
inline constexpr uint32_t kBlockTokens = 32;

template <class Tag, class Int>
struct StrongId {
  Int value{};

  constexpr StrongId() = default;
  constexpr explicit StrongId(Int v) : value(v) {}
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
};

using RequestId = StrongId<struct RequestTag, uint64_t>;
using BlockId = StrongId<struct BlockTag, uint32_t>;
using TokenId = int32_t;  // plain: token ids live in large arrays that kernels and tokenizers share

inline constexpr BlockId kNoBlock{UINT32_MAX};
inline constexpr TokenId kNoToken = -1;

// Blocks needed to hold `tokens` tokens.
constexpr uint64_t blocks_for(uint64_t tokens) {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}

}  // namespace skein

template <class Tag, class Int>
struct std::hash<skein::StrongId<Tag, Int>> {
  size_t operator()(skein::StrongId<Tag, Int> id) const noexcept {
    return std::hash<Int>{}(id.value);
  }
};
