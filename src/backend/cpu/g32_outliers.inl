// Products of definition G32 with activations that are taken apart from their groups.
#pragma once

#include "backend/cpu/g32_tiles.inl"

namespace skein::cpu {
namespace {

template <class V>
void add_outlier(const OutlierMultiply& a) {
  using F = typename V::F;
  using I = typename V::I;
  const G32Column column = a.column;
  const F table =
      a.table == nullptr ? V::splat(0.0F) : V::to_float(V::sub(V::load_u8(a.table), 128));
  const F x = V::splat(a.x);
  const auto bits = [](const uint8_t* block, const CodeBits& of) __attribute__((always_inline)) {
    return V::load_bits(block + of.at, of.shift, of.mask);
  };
  const uint8_t* block = a.weights;
  for (size_t n = 0; n < a.outputs; n += kBlockRows, block += a.block_stride) {
    I code = bits(block, column.low);
    if (column.high.mask != 0) code = V::bit_or(code, V::shift_left(bits(block, column.high), 4));
    const F value =
        a.table == nullptr ? V::to_float(V::sub(code, column.offset)) : V::lookup(table, code);
    const F scale = load_scales<V>(block + column.scale, a.bfloat16_scales);
    F weight = V::mul(value, scale);
    if (column.has_minimum) {
      weight = V::fma(value, scale, load_scales<V>(block + column.minimum, a.bfloat16_scales));
    }
    const size_t lanes = a.outputs - n < kBlockRows ? a.outputs - n : kBlockRows;
    store_lanes<V>(a.out + n, V::fma(x, weight, load_lanes<V>(a.out + n, lanes)), lanes);
  }
}

}  // namespace
}  // namespace skein::cpu
