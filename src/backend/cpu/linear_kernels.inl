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

// kBlocks row blocks, each at its address, with kRows rows of a tile from `row` on. All sums stay in
// registers over all columns. Several blocks share the loads of activations, several rows those of
// weights.
template <class V, Codes kCodes, bool kHalves, bool kMinimum, size_t kRows, size_t kBlocks>
void g32_tile(const G32Multiply& a, const uint8_t* const* blocks, const QuantizedRecord* x,
              size_t row, typename V::F* sums) {
  using F = typename V::F;
  using I = typename V::I;
  using W = typename V::W;
  constexpr G32Layout kLayout = {kCodes, kHalves, kMinimum};
  constexpr bool kSmall = kCodes == Codes::kNibbles;
  constexpr bool kSigned = !kMinimum;
  constexpr size_t kDots = kHalves ? 2 : 1;
  const W table = kCodes == Codes::kTable ? V::load_table(a.table) : W();
  const uint8_t* codes[kBlocks];
  const uint8_t* scales[kBlocks];
  F sum[kBlocks][kRows];
  repeat<kBlocks>([&](auto b) {
    codes[b] = blocks[b];
    scales[b] = blocks[b] + a.groups * kLayout.code_bytes();
    repeat<kRows>([&](auto r) { sum[b][r] = V::splat(0.0F); });
  });
  for (size_t g = 0; g < a.groups; ++g) {
    const QuantizedRecord& in = x[g];
    I dots[kBlocks][kDots][kRows];
    const auto sum_of = [](size_t dot) { return kHalves ? kFirstHalf + dot : size_t{kWhole}; };
    repeat<kDots>([&](auto d) {
      repeat<kRows>([&](auto r) {
        const I start = V::template dot_start<kSmall, kSigned>(&in.minus_sum[sum_of(d)][row + r]);
        repeat<kBlocks>([&](auto b) { dots[b][d][r] = start; });
      });
    });
    const auto add = [&](const W* w, size_t column) __attribute__((always_inline)) {
      repeat<kRows>([&](auto r) {
        const I four = V::load_four(&in.q[row + r][column]);
        repeat<kBlocks>([&](auto b) {
          I& dot = dots[b][kHalves ? column / 16 : 0][r];
          dot = V::template dot_add<kSmall>(dot, w[b], four);
        });
      });
    };
    if constexpr (kCodes == Codes::kBytes) {
      repeat<8>([&](auto j) {
        W w[kBlocks];
        repeat<kBlocks>([&](auto b) { w[b] = V::load_bytes(codes[b] + 64 * j); });
        add(w, 4 * j);
      });
    } else {
      repeat<4>([&](auto j) {
        W low[kBlocks], high[kBlocks];
        repeat<kBlocks>([&](auto b) {
          const W pairs = V::load_bytes(codes[b] + 64 * j);
          low[b] = V::low_nibbles(pairs);
          high[b] = V::high_nibbles(pairs);
          if constexpr (kCodes == Codes::kTable) {
            low[b] = V::lookup_bytes(table, low[b]);
            high[b] = V::lookup_bytes(table, high[b]);
          }
        });
        add(low, 4 * j);
        add(high, 16 + 4 * j);
      });
    }
    repeat<kDots>([&](auto d) {
      F scale[kBlocks], minimum[kBlocks];
      repeat<kBlocks>([&](auto b) {
        const auto load_scales = [&](size_t i) {
          const uint8_t* const at = scales[b] + i * kScalesBytes;
          return a.bfloat16_scales ? V::load_bf16(at) : V::load_f16(at);
        };
        scale[b] = load_scales(d);
        minimum[b] = kMinimum ? load_scales(kDots + d) : scale[b];
      });
      repeat<kRows>([&](auto r) {
        const F x_scale = V::splat(in.scale[row + r]);
        const F x_sum = V::splat(in.scaled_sum[sum_of(d)][row + r]);
        repeat<kBlocks>([&](auto b) {
          const I dot = V::template dot_finish<kSmall, kSigned>(
              dots[b][d][r], &in.minus_sum[sum_of(d)][row + r]);
          sum[b][r] = V::fma(V::mul(V::to_float(dot), scale[b]), x_scale, sum[b][r]);
          if constexpr (kMinimum) sum[b][r] = V::fma(minimum[b], x_sum, sum[b][r]);
        });
      });
    });
    repeat<kBlocks>([&](auto b) {
      codes[b] += kLayout.code_bytes();
      scales[b] += kLayout.scale_bytes();
    });
  }
  repeat<kBlocks>([&](auto b) {
    repeat<kRows>([&](auto r) { sums[b * kRows + r] = sum[b][r]; });
  });
}

template <class V, size_t kRows, size_t kBlocks>
void bf16_tile(const Bf16Multiply& a, const uint8_t* const* blocks, const Bf16Record* x, size_t row,
               typename V::F* sums) {
  using F = typename V::F;
  F sum[kBlocks][kRows];
  repeat<kBlocks>([&](auto b) {
    repeat<kRows>([&](auto r) { sum[b][r] = V::splat(0.0F); });
  });
  size_t at = 0;
  for (size_t g = 0; g < a.groups; ++g) {
    F even[kBlocks][kRows], odd[kBlocks][kRows];
    repeat<kBlocks>([&](auto b) {
      repeat<kRows>([&](auto r) { even[b][r] = odd[b][r] = V::splat(0.0F); });
    });
    for (size_t k = 0; k < arithmetic::kGroup; k += 2, at += 64) {
      F w0[kBlocks], w1[kBlocks];
      repeat<kBlocks>([&](auto b) {
        const auto pairs = V::load_bytes(blocks[b] + at);
        w0[b] = V::even_halves(pairs);
        w1[b] = V::odd_halves(pairs);
      });
      repeat<kRows>([&](auto r) {
        const F x0 = V::splat(x[g].x[row + r][k]), x1 = V::splat(x[g].x[row + r][k + 1]);
        repeat<kBlocks>([&](auto b) {
          even[b][r] = V::fma(x0, w0[b], even[b][r]);
          odd[b][r] = V::fma(x1, w1[b], odd[b][r]);
        });
      });
    }
    repeat<kBlocks>([&](auto b) {
      repeat<kRows>(
          [&](auto r) { sum[b][r] = V::add(sum[b][r], V::add(even[b][r], odd[b][r])); });
    });
  }
  repeat<kBlocks>([&](auto b) {
    repeat<kRows>([&](auto r) { sums[b * kRows + r] = sum[b][r]; });
  });
}

// Which of the tile functions.
template <class V, Codes kCodes, bool kHalves, bool kMinimum>
struct G32Tile {
  template <size_t kRows, size_t kBlocks, class... Args>
  static void run(Args... args) {
    g32_tile<V, kCodes, kHalves, kMinimum, kRows, kBlocks>(args...);
  }
};
template <class V>
struct Bf16Tile {
  template <size_t kRows, size_t kBlocks, class... Args>
  static void run(Args... args) {
    bf16_tile<V, kRows, kBlocks>(args...);
  }
};

// Rows [row, row + kRows) of a tile with `count` of kBlocks row blocks from `block` on; those past
// the count repeat the first, and rows past `rows` are what the tile's memory holds: neither is
// stored.
template <class V, class Tile, size_t kRows, size_t kBlocks, class Multiply>
void multiply_rows_of_tile(const Multiply& a, size_t block, size_t count, size_t tile, size_t row,
                           size_t rows) {
  const uint8_t* blocks[kBlocks];
  for (size_t b = 0; b < kBlocks; ++b) {
    blocks[b] = a.weights + (block + (b < count ? b : 0)) * a.block_stride;
  }
  typename V::F sums[kBlocks * kRows];
  Tile::template run<kRows, kBlocks>(a, blocks, a.x + tile * a.groups, row, sums);
  for (size_t b = 0; b < count; ++b) {
    const size_t n = (block + b) * kBlockRows, lanes = a.outputs - n < 16 ? a.outputs - n : 16;
    for (size_t r = 0; r < kRows && row + r < rows; ++r) {
      typename V::F sum = sums[b * kRows + r];
      if (a.bias != nullptr) sum = V::add(sum, load_lanes<V>(a.bias + n, lanes));
      store_lanes<V>(a.out[tile * kTileRows + row + r] + a.first_output + n, sum, lanes);
    }
  }
}

// Row blocks outermost: the weights of a few stay in the cache while the tiles come by. A single row
// wants more blocks at once, because it has fewer sums to keep the arithmetic units busy.
template <class V, class Tile, class Multiply>
void multiply_packed(const Multiply& a) {
  const size_t blocks = (a.outputs + kBlockRows - 1) / kBlockRows;
  if (a.rows == 1) {
    constexpr size_t kBlocks = V::kBlocksOfOneRow;
    for (size_t block = 0; block < blocks; block += kBlocks) {
      const size_t count = blocks - block < kBlocks ? blocks - block : kBlocks;
      multiply_rows_of_tile<V, Tile, 1, kBlocks>(a, block, count, 0, 0, 1);
    }
    return;
  }
  constexpr size_t kBlocks = V::kBlocks, kRows = V::kMaxRows;
  for (size_t block = 0; block < blocks; block += kBlocks) {
    const size_t count = blocks - block < kBlocks ? blocks - block : kBlocks;
    for (size_t first = 0; first < a.rows; first += kTileRows) {
      const size_t tile = first / kTileRows;
      const size_t rows = a.rows - first < kTileRows ? a.rows - first : kTileRows;
      size_t row = 0;
      for (; row + kRows / 2 < rows; row += kRows) {
        multiply_rows_of_tile<V, Tile, kRows, kBlocks>(a, block, count, tile, row, rows);
      }
      if constexpr (kRows > 1) {
        if (row < rows) {
          multiply_rows_of_tile<V, Tile, kRows / 2, kBlocks>(a, block, count, tile, row, rows);
        }
      }
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
