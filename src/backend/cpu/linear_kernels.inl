// Bodies of linear_kernels.h over a Dot (dot_scalar.h); arithmetic.h has the definitions.
#pragma once

#include "backend/cpu/linear_kernels.h"
#include "backend/cpu/math.inl"

namespace skein::cpu {
namespace {

template <size_t kValue>
struct Index {
  constexpr operator size_t() const { return kValue; }  // NOLINT: meant to be implicit
};

// fn(Index<0>()), ..., fn(Index<kCount - 1>()), written out: arrays indexed by them are registers.
template <size_t kCount, class Fn>
__attribute__((always_inline)) inline void repeat(Fn fn) {
  if constexpr (kCount > 0) {
    repeat<kCount - 1>(fn);
    fn(Index<kCount - 1>());
  }
}

template <class V>
void quantize_record_row(const float* x, size_t row, QuantizedRecord& out) {
  using F = typename V::F;
  const F low = V::load(x), high = V::load(x + 16);
  const uint32_t bits = V::largest_bits(low, high);
  const float largest = __builtin_bit_cast(float, bits);
  const bool is_number = bits < arithmetic::kInfinityBits;
  const bool is_zero = is_number && largest < arithmetic::kSmallestGroup;
  const F inverse = V::splat(is_number && !is_zero ? arithmetic::kLargestInt8 / largest : 0.0F);
  const float scale = is_number ? largest / arithmetic::kLargestInt8 : __builtin_nanf("");
  const F zero = V::splat(0.0F);
  const int32_t first = V::store_int8(is_number ? V::mul(low, inverse) : zero, out.q[row]);
  const int32_t second = V::store_int8(is_number ? V::mul(high, inverse) : zero, out.q[row] + 16);
  out.scale[row] = is_zero ? 0.0F : scale;
  const int32_t sums[kSums] = {first + second, first, second};
  for (size_t i = 0; i < kSums; ++i) {
    out.minus_sum[i][row] = -sums[i];
    out.scaled_sum[i][row] = out.scale[row] * static_cast<float>(sums[i]);
  }
}

template <class V>
void quantize(const float* const* x, size_t rows, size_t groups, QuantizedRecord* out) {
  for (size_t row = 0; row < rows; ++row) {
    for (size_t g = 0; g < groups; ++g) {
      quantize_record_row<V>(x[row] + g * arithmetic::kGroup, row, out[g]);
    }
  }
}

template <class V>
void round_rows(const float* const* x, size_t rows, size_t inputs, Bf16Record* out) {
  constexpr size_t kGroup = arithmetic::kGroup;
  const size_t padded = (inputs + kGroup - 1) / kGroup * kGroup;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t k = 0; k < padded; k += 16) {
      const size_t left = k < inputs ? inputs - k : 0;
      const typename V::F in = load_lanes<V>(x[row] + (left > 0 ? k : 0), left < 16 ? left : 16);
      V::store(out[k / kGroup].x[row] + k % kGroup, V::round_bf16(in));
    }
  }
}

// One row block with kRows rows of a tile, from `row` on: the sums stay in registers over all
// columns.
template <class V, Codes kCodes, bool kHalves, bool kMinimum, size_t kRows>
void g32_tile(const G32Multiply& a, const uint8_t* codes, const QuantizedRecord* x,
              size_t first_row, typename V::F* sums) {
  const size_t row = kRows == kTileRows ? 0 : first_row;  // a constant where registers are few
  using F = typename V::F;
  using I = typename V::I;
  using W = typename V::W;
  constexpr G32Layout kLayout = {kCodes, kHalves, kMinimum};
  constexpr bool kSmall = kCodes == Codes::kNibbles;
  constexpr bool kSigned = !kMinimum;
  constexpr size_t kDots = kHalves ? 2 : 1;
  const uint8_t* scales = codes + a.groups * kLayout.code_bytes();
  const W table = kCodes == Codes::kTable ? V::load_table(a.table) : W();
  F sum[kRows];
  repeat<kRows>([&](auto r) { sum[r] = V::splat(0.0F); });
  for (size_t g = 0; g < a.groups; ++g) {
    const QuantizedRecord& in = x[g];
    const auto sum_of = [](size_t dot) { return kHalves ? kFirstHalf + dot : size_t{kWhole}; };
    I dots[kDots][kRows];
    repeat<kDots>([&](auto d) {
      repeat<kRows>([&](auto r) {
        dots[d][r] =
            V::template dot_start<kSmall, kSigned>(&in.minus_sum[sum_of(d)][row + r]);
      });
    });
    const auto add = [&](W w, size_t column) __attribute__((always_inline)) {
      I* const to = dots[kHalves ? column / 16 : 0];
      repeat<kRows>([&](auto r) {
        to[r] = V::template dot_add<kSmall>(to[r], w, &in.q[row + r][column]);
      });
    };
    if constexpr (kCodes == Codes::kBytes) {
      repeat<8>([&](auto j) { add(V::load_bytes(codes + 64 * j), 4 * j); });
    } else {
      repeat<4>([&](auto j) {
        const W pairs = V::load_bytes(codes + 64 * j);
        W low = V::low_nibbles(pairs), high = V::high_nibbles(pairs);
        if constexpr (kCodes == Codes::kTable) {
          low = V::lookup_bytes(table, low);
          high = V::lookup_bytes(table, high);
        }
        add(low, 4 * j);
        add(high, 16 + 4 * j);
      });
    }
    const auto load_scales = [&](size_t i) {
      const uint8_t* const at = scales + i * kScalesBytes;
      return a.bfloat16_scales ? V::load_bf16(at) : V::load_f16(at);
    };
    repeat<kDots>([&](auto d) {
      const F scale = load_scales(d);
      const F minimum = kMinimum ? load_scales(kDots + d) : scale;
      repeat<kRows>([&](auto r) {
        const I dot = V::template dot_finish<kSmall, kSigned>(
            dots[d][r], &in.minus_sum[sum_of(d)][row + r]);
        sum[r] = V::fma(V::mul(V::to_float(dot), scale), V::splat(in.scale[row + r]), sum[r]);
        if constexpr (kMinimum) {
          sum[r] = V::fma(minimum, V::splat(in.scaled_sum[sum_of(d)][row + r]), sum[r]);
        }
      });
    });
    codes += kLayout.code_bytes();
    scales += kLayout.scale_bytes();
  }
  repeat<kRows>([&](auto r) { sums[r] = sum[r]; });
}

template <class V, size_t kRows>
void bf16_tile(const Bf16Multiply& a, const uint8_t* weights, const Bf16Record* x,
               size_t first_row, typename V::F* sums) {
  const size_t row = kRows == kTileRows ? 0 : first_row;
  using F = typename V::F;
  F sum[kRows];
  repeat<kRows>([&](auto r) { sum[r] = V::splat(0.0F); });
  for (size_t g = 0; g < a.groups; ++g) {
    F even[kRows], odd[kRows];
    repeat<kRows>([&](auto r) { even[r] = odd[r] = V::splat(0.0F); });
    for (size_t k = 0; k < arithmetic::kGroup; k += 2, weights += 64) {
      const auto pairs = V::load_bytes(weights);
      const F w0 = V::even_halves(pairs), w1 = V::odd_halves(pairs);
      repeat<kRows>([&](auto r) {
        const float* const in = x[g].x[row + r] + k;
        even[r] = V::fma(V::splat(in[0]), w0, even[r]);
        odd[r] = V::fma(V::splat(in[1]), w1, odd[r]);
      });
    }
    repeat<kRows>([&](auto r) { sum[r] = V::add(sum[r], V::add(even[r], odd[r])); });
  }
  repeat<kRows>([&](auto r) { sums[r] = sum[r]; });
}

// Which of the tile functions: tile.template run<kRows>(args, weights, x, row, sums).
template <class V, Codes kCodes, bool kHalves, bool kMinimum>
struct G32Tile {
  template <size_t kRows, class... Args>
  static void run(Args... args) {
    g32_tile<V, kCodes, kHalves, kMinimum, kRows>(args...);
  }
};
template <class V>
struct Bf16Tile {
  template <size_t kRows, class... Args>
  static void run(Args... args) {
    bf16_tile<V, kRows>(args...);
  }
};

// The rows of a tile from `row` on that the next call takes, as a power of two: more than there are
// where that is faster than a call for each; the tile has memory for them.
template <class V>
size_t rows_at_once(size_t left) {
  const size_t wanted = left > 5 ? 8 : left > 2 ? 4 : left;
  return wanted < V::kMaxRows ? wanted : V::kMaxRows;
}

template <class V, class Tile, class Multiply>
void multiply_tile_rows(const Multiply& a, const uint8_t* weights, size_t tile, size_t block) {
  using F = typename V::F;
  const size_t first = tile * kTileRows, left = a.rows - first;
  const size_t rows = left < kTileRows ? left : kTileRows;
  const size_t n = block * kBlockRows, lanes = a.outputs - n < 16 ? a.outputs - n : 16;
  const auto* const x = a.x + tile * a.groups;
  for (size_t row = 0; row < rows;) {
    F sums[kTileRows];
    const size_t taken = rows_at_once<V>(rows - row);
    if constexpr (V::kMaxRows >= 8) {
      if (taken == 8) Tile::template run<8>(a, weights, x, row, sums);
      if (taken == 4) Tile::template run<4>(a, weights, x, row, sums);
    }
    if constexpr (V::kMaxRows >= 2) {
      if (taken == 2) Tile::template run<2>(a, weights, x, row, sums);
    }
    if (taken == 1) Tile::template run<1>(a, weights, x, row, sums);
    for (size_t i = 0; i < taken && row + i < rows; ++i) {
      if (a.bias != nullptr) sums[i] = V::add(sums[i], load_lanes<V>(a.bias + n, lanes));
      store_lanes<V>(a.out[first + row + i] + a.first_output + n, sums[i], lanes);
    }
    row += taken;
  }
}

// Row blocks outermost: the weights of one stay in the cache while the tiles come by.
template <class V, class Tile, class Multiply>
void multiply_packed(const Multiply& a) {
  const size_t blocks = (a.outputs + kBlockRows - 1) / kBlockRows;
  const size_t tiles = (a.rows + kTileRows - 1) / kTileRows;
  const uint8_t* weights = a.weights;
  for (size_t block = 0; block < blocks; ++block, weights += a.block_stride) {
    for (size_t tile = 0; tile < tiles; ++tile) {
      multiply_tile_rows<V, Tile>(a, weights, tile, block);
    }
  }
}

template <class V, Codes kCodes, bool kHalves, bool kMinimum>
void multiply_g32(const G32Multiply& a) {
  multiply_packed<V, G32Tile<V, kCodes, kHalves, kMinimum>>(a);
}

template <class V>
void multiply_bf16(const Bf16Multiply& a) {
  multiply_packed<V, Bf16Tile<V>>(a);
}

template <class V>
constexpr LinearKernels make_linear_kernels() {
  return {
      .quantize = quantize<V>,
      .round = round_rows<V>,
      .nibbles = multiply_g32<V, Codes::kNibbles, false, false>,
      .nibbles_minimum = multiply_g32<V, Codes::kNibbles, false, true>,
      .table = multiply_g32<V, Codes::kTable, false, false>,
      .bytes = multiply_g32<V, Codes::kBytes, false, false>,
      .bytes_minimum = multiply_g32<V, Codes::kBytes, false, true>,
      .nibbles_halves = multiply_g32<V, Codes::kNibbles, true, false>,
      .nibbles_halves_minimum = multiply_g32<V, Codes::kNibbles, true, true>,
      .bytes_halves = multiply_g32<V, Codes::kBytes, true, false>,
      .bf16 = multiply_bf16<V>,
  };
}

}  // namespace
}  // namespace skein::cpu
