// Blocks to floats: tensor/quant/*.h on 16 lanes, with the same roundings. Where an element has
// four bits, its 16 possible values are computed once a group and looked up.
#pragma once

#include "backend/cpu/math.inl"

namespace skein::cpu {
namespace {

constexpr float kCount[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// 16-bit elements: `load` turns 16 of them into floats.
template <class V, class Load>
void widen_halves(const uint8_t* from, size_t elements, float* out, Load load) {
  const size_t whole = elements / 16 * 16;
  for (size_t i = 0; i < whole; i += 16) V::store(out + i, load(from + 2 * i));
  if (whole == elements) return;
  uint8_t rest[32] = {};
  __builtin_memcpy(rest, from + 2 * whole, 2 * (elements - whole));
  V::store_first(out + whole, load(rest), elements - whole);
}

template <class V>
void dequantize_f16(const uint8_t* from, size_t elements, float* out) {
  widen_halves<V>(from, elements, out, [](const uint8_t* at) { return V::load_f16(at); });
}

template <class V>
void dequantize_bf16(const uint8_t* from, size_t elements, float* out) {
  widen_halves<V>(from, elements, out, [](const uint8_t* at) { return V::load_bf16(at); });
}

// The 32 elements of 16 bytes: low nibbles, then high ones.
template <class V>
void store_nibbles(const uint8_t* qs, typename V::F table, float* out) {
  const typename V::I pairs = V::load_u8(qs);
  V::store(out, V::lookup(table, pairs));
  V::store(out + 16, V::lookup(table, V::shift_right(pairs, 4)));
}

template <class V>
void dequantize_q4_0(const uint8_t* block, size_t elements, float* out) {
  const typename V::F q = V::sub(V::load(kCount), V::splat(8.0F));
  for (size_t i = 0; i < elements; i += 32, block += 18, out += 32) {
    store_nibbles<V>(block + 2, V::mul(V::splat(V::from_f16(block)), q), out);
  }
}

template <class V>
void dequantize_q4_1(const uint8_t* block, size_t elements, float* out) {
  const typename V::F q = V::load(kCount);
  for (size_t i = 0; i < elements; i += 32, block += 20, out += 32) {
    const typename V::F scaled = V::mul(V::splat(V::from_f16(block)), q);
    store_nibbles<V>(block + 4, V::add(scaled, V::splat(V::from_f16(block + 2))), out);
  }
}

// The integers of a Q5_0 or Q5_1 block, elements [16 * half, 16 * half + 16).
template <class V>
typename V::F five_bits(const uint8_t* qh, const uint8_t* qs, size_t half, int32_t offset) {
  uint32_t fifth;
  __builtin_memcpy(&fifth, qh, 4);
  const typename V::I nibbles =
      V::bit_and(V::shift_right(V::load_u8(qs), static_cast<unsigned>(4 * half)), 0xf);
  const typename V::I q = V::bit_or(nibbles, V::where_bits(fifth >> (16 * half) & 0xffff, 16));
  return V::to_float(V::sub(q, offset));
}

template <class V>
void dequantize_q5_0(const uint8_t* block, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += 32, block += 22, out += 32) {
    const typename V::F d = V::splat(V::from_f16(block));
    for (size_t half = 0; half < 2; ++half) {
      V::store(out + 16 * half, V::mul(d, five_bits<V>(block + 2, block + 6, half, 16)));
    }
  }
}

template <class V>
void dequantize_q5_1(const uint8_t* block, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += 32, block += 24, out += 32) {
    const typename V::F d = V::splat(V::from_f16(block)), m = V::splat(V::from_f16(block + 2));
    for (size_t half = 0; half < 2; ++half) {
      V::store(out + 16 * half, V::add(V::mul(d, five_bits<V>(block + 4, block + 8, half, 0)), m));
    }
  }
}

template <class V>
void dequantize_q8_0(const uint8_t* block, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += 32, block += 34, out += 32) {
    const typename V::F d = V::splat(V::from_f16(block));
    V::store(out, V::mul(d, V::to_float(V::load_i8(block + 2))));
    V::store(out + 16, V::mul(d, V::to_float(V::load_i8(block + 18))));
  }
}

struct GroupScale {
  float scale, minimum;
};

// Group g of 8 of Q4_K and Q5_K: six bits each in 12 bytes, times d and dmin.
template <class V>
GroupScale group_scale(const uint8_t* block, size_t g) {
  const uint8_t* packed = block + 4;
  const uint32_t a = packed[g % 4], b = packed[4 + g % 4];
  uint32_t scale = a & 0x3f, minimum = b & 0x3f;
  if (g >= 4) {
    const uint32_t c = packed[4 + g];
    scale = (c & 0xf) | a >> 6 << 4;
    minimum = c >> 4 | b >> 6 << 4;
  }
  return {V::from_f16(block) * static_cast<float>(scale),
          V::from_f16(block + 2) * static_cast<float>(minimum)};
}

template <class V>
void dequantize_q4_k(const uint8_t* block, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += 256, block += 144) {
    for (size_t g = 0; g < 8; ++g, out += 32) {
      const GroupScale group = group_scale<V>(block, g);
      const typename V::F table =
          V::sub(V::mul(V::splat(group.scale), V::load(kCount)), V::splat(group.minimum));
      const uint8_t* qs = block + 16 + g / 2 * 32;
      const auto shift = static_cast<unsigned>(g % 2 * 4);
      V::store(out, V::lookup(table, V::shift_right(V::load_u8(qs), shift)));
      V::store(out + 16, V::lookup(table, V::shift_right(V::load_u8(qs + 16), shift)));
    }
  }
}

template <class V>
void dequantize_q5_k(const uint8_t* block, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += 256, block += 176) {
    for (size_t g = 0; g < 8; ++g) {
      const GroupScale group = group_scale<V>(block, g);
      for (size_t half = 0; half < 2; ++half, out += 16) {
        const typename V::I pairs = V::load_u8(block + 48 + g / 2 * 32 + half * 16);
        const typename V::I fifths = V::load_u8(block + 16 + half * 16);
        const typename V::I q = V::bit_or(
            V::bit_and(V::shift_right(pairs, static_cast<unsigned>(g % 2 * 4)), 0xf),
            V::shift_left(V::bit_and(V::shift_right(fifths, static_cast<unsigned>(g)), 1), 4));
        V::store(out,
                 V::sub(V::mul(V::splat(group.scale), V::to_float(q)), V::splat(group.minimum)));
      }
    }
  }
}

template <class V>
void dequantize_q6_k(const uint8_t* block, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += 256, block += 210) {
    const float d = V::from_f16(block + 208);
    for (size_t g = 0; g < 16; ++g, out += 16) {  // elements from j = 16 * g
      const float scale = d * static_cast<float>(static_cast<int8_t>(block[192 + g]));
      const typename V::I low = V::load_u8(block + g / 8 * 64 + g % 4 * 16);
      const typename V::I high = V::load_u8(block + 128 + g / 8 * 32 + g % 2 * 16);
      const typename V::I q = V::bit_or(
          V::bit_and(V::shift_right(low, static_cast<unsigned>(g / 4 % 2 * 4)), 0xf),
          V::shift_left(V::bit_and(V::shift_right(high, static_cast<unsigned>(g / 2 % 4 * 2)), 3),
                        4));
      V::store(out, V::mul(V::splat(scale), V::to_float(V::sub(q, 32))));
    }
  }
}

}  // namespace
}  // namespace skein::cpu
