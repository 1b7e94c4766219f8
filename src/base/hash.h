// SipHash-2-4 with a 128-bit result: a keyed hash whose collisions nobody can construct without the
// key, at about a nanosecond per byte. The prefix cache and every other table that an outsider can
// fill use it with a key drawn at random when the process starts.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

namespace skein {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  friend constexpr auto operator<=>(const Hash128&, const Hash128&) = default;
};

using HashKey = Hash128;

Hash128 keyed_hash(const HashKey& key, std::span<const std::byte> bytes);

}  // namespace skein
