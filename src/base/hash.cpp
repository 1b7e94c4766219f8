#include "base/hash.h"

#include <bit>
#include <cstring>

namespace skein {
namespace {

struct SipState {
  uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1, v1 = std::rotl(v1, 13), v1 ^= v0, v0 = std::rotl(v0, 32);
    v2 += v3, v3 = std::rotl(v3, 16), v3 ^= v2;
    v0 += v3, v3 = std::rotl(v3, 21), v3 ^= v0;
    v2 += v1, v1 = std::rotl(v1, 17), v1 ^= v2, v2 = std::rotl(v2, 32);
  }
  void absorb(uint64_t word) {
    v3 ^= word;
    round(), round();
    v0 ^= word;
  }
  uint64_t squeeze() {
    round(), round(), round(), round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

}  // namespace

Hash128 keyed_hash(const HashKey& key, std::span<const std::byte> bytes) {
  static_assert(std::endian::native == std::endian::little);
  SipState s{0x736f6d6570736575U ^ key.low, 0x646f72616e646f6dU ^ key.high ^ 0xee,
             0x6c7967656e657261U ^ key.low, 0x7465646279746573U ^ key.high};
  const size_t whole = bytes.size() / 8 * 8;
  for (size_t i = 0; i < whole; i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    s.absorb(word);
  }
  uint64_t tail = 0;
  if (bytes.size() > whole) std::memcpy(&tail, bytes.data() + whole, bytes.size() - whole);
  s.absorb(tail | static_cast<uint64_t>(bytes.size()) << 56);

  Hash128 out;
  s.v2 ^= 0xee;
  out.low = s.squeeze();
  s.v1 ^= 0xdd;
  out.high = s.squeeze();
  return out;
}

}  // namespace skein
