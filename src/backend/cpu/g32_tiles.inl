// Products of definition G32 for few rows: codes are unpacked as they come from memory.
#pragma once

#include "backend/cpu/ahead.inl"
#include "backend/cpu/math.inl"

namespace skein::cpu {
namespace {

// Scales of 16 outputs.
template <class V>
__attribute__((always_inline)) inline typename V::F load_scales(const uint8_t* at, bool bfloat16) {
  return bfloat16 ? V::load_bf16(at) : V::load_f16(at);
}

// The columns of a dot.
template <bool kHalves>
constexpr size_t columns_of(size_t dot) {
  return kHalves ? kFirstHalf + dot : size_t{kWhole};
}

// The dot of a row's columns starts here, for codes of four bits or eight.
template <bool kSmall>
__attribute__((always_inline)) inline const int32_t* dot_start(const QuantizedRow& x,
                                                               size_t columns) {
  return &(kSmall ? x.start_8 : x.start_128)[columns];
}

// The minimum of some columns is multiplied with this.
template <bool kHalves>
__attribute__((always_inline)) inline float scaled_sum(const QuantizedRow& x, size_t half) {
  if constexpr (!kHalves) return x.scaled_sum;
  const int32_t sum = (arithmetic::kDotBiasBits - x.start_8[kFirstHalf + half]) / 8;
  return x.scale * static_cast<float>(sum);
}

// Codes of four columns of each of 16 outputs, unpacked, as add(w, column), where w is those of
// kBlocks row blocks; `codes` are the blocks' of 32 columns.
template <class V, Codes kCodes, bool kMinimum, size_t kBlocks, class Add>
__attribute__((always_inline)) inline void each_four_columns(const uint8_t* const* codes,
                                                             typename V::W table, const Add& add) {
  using W = typename V::W;
  if constexpr (kCodes == Codes::kBytes) {
    repeat<8>([&](auto j) {
      W w[kBlocks];
      repeat<kBlocks>([&](auto b) { w[b] = V::load_bytes(codes[b] + 64 * j); });
      add(w, 4 * j);
    });
    return;
  }
  if constexpr (kCodes == Codes::kTwos) {
    repeat<2>([&](auto j) {
      W all[kBlocks];
      repeat<kBlocks>([&](auto b) { all[b] = V::load_bytes(codes[b] + 64 * j); });
      repeat<4>([&](auto i) {
        W w[kBlocks];
        repeat<kBlocks>([&](auto b) { w[b] = V::template bits<2 * i>(all[b], 3); });
        add(w, 8 * i + 4 * j);
      });
    });
    return;
  }
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
      if constexpr (kCodes == Codes::kFives) {
        const W fifths = V::load_bytes(codes[b] + kCodes4Bytes);
        low[b] = V::either(low[b], V::template bits<static_cast<int>(j) - 4>(fifths, 0x10));
        high[b] = V::either(high[b], V::template bits<static_cast<int>(j)>(fifths, 0x10));
      }
      if constexpr (kCodes == Codes::kSixes) {
        constexpr int kPair = j / 2 * 2;
        const W pairs_above = V::load_bytes(codes[b] + kCodes4Bytes + 64 * (j % 2));
        low[b] = V::either(low[b], V::template bits<kPair - 4>(pairs_above, 0x30));
        high[b] = V::either(high[b], V::template bits<kPair>(pairs_above, 0x30));
      }
      if constexpr (!kMinimum && (kCodes == Codes::kFives || kCodes == Codes::kSixes)) {
        constexpr uint8_t kRaise = kCodes == Codes::kFives ? kRaiseFives : kRaiseSixes;
        low[b] = V::add_bytes(low[b], kRaise);
        high[b] = V::add_bytes(high[b], kRaise);
      }
    });
    add(low, 4 * j);
    add(high, 16 + 4 * j);
  });
}

// kBlocks row blocks, each at its address, with kRows rows from x on. All sums stay in registers
// over all columns. Several blocks share the loads of activations, several rows those of weights.
template <class V, Codes kCodes, bool kHalves, bool kMinimum, size_t kRows, size_t kBlocks>
struct G32Tile {
  using F = typename V::F;
  using I = typename V::I;
  using W = typename V::W;
  static constexpr G32Layout kLayout = {kCodes, kHalves, kMinimum};
  static constexpr bool kSmall = kCodes == Codes::kNibbles || kCodes == Codes::kTwos;
  static constexpr size_t kDots = kHalves ? 2 : 1;

  static void run(const G32Multiply& a, const uint8_t* const* blocks, const QuantizedRow* x,
                  Ahead& ahead, F* sums) {
    const W table = kCodes == Codes::kTable ? V::load_table(a.table) : W();
    const uint8_t* codes[kBlocks];
    const uint8_t* scales[kBlocks];
    F sum[kBlocks][kRows];
    repeat<kBlocks>([&](auto b) {
      codes[b] = blocks[b];
      scales[b] = blocks[b] + a.groups * kLayout.code_bytes();
      repeat<kRows>([&](auto r) { sum[b][r] = V::splat(0.0F); });
    });
    for (size_t g = 0; g < a.groups; ++g, x += kTileRows) {
      ahead.fetch();
      I dots[kBlocks][kDots][kRows];
      start(x, dots);
      add_codes(codes, table, x, dots);
      add_products(scales, a.bfloat16_scales, x, dots, sum);
      repeat<kBlocks>([&](auto b) {
        codes[b] += kLayout.code_bytes();
        scales[b] += kLayout.scale_bytes();
      });
    }
    repeat<kBlocks>(
        [&](auto b) { repeat<kRows>([&](auto r) { sums[b * kRows + r] = sum[b][r]; }); });
  }

 private:
  __attribute__((always_inline)) static void start(const QuantizedRow* x,
                                                   I (&dots)[kBlocks][kDots][kRows]) {
    repeat<kDots>([&](auto d) {
      repeat<kRows>([&](auto r) {
        const I all = V::template dot_start<kSmall, !kMinimum>(
            dot_start<kSmall>(x[r], columns_of<kHalves>(d)));
        repeat<kBlocks>([&](auto b) { dots[b][d][r] = all; });
      });
    });
  }

  __attribute__((always_inline)) static void add_codes(const uint8_t* const* codes, W table,
                                                       const QuantizedRow* x,
                                                       I (&dots)[kBlocks][kDots][kRows]) {
    const auto add = [&](const W* w, size_t column) __attribute__((always_inline)) {
      repeat<kRows>([&](auto r) {
        const I four = V::load_four(x[r].q + column);
        repeat<kBlocks>([&](auto b) {
          I& dot = dots[b][kHalves ? column / 16 : 0][r];
          dot = V::template dot_add<kSmall>(dot, w[b], four);
        });
      });
    };
    each_four_columns<V, kCodes, kMinimum, kBlocks>(codes, table, add);
  }

  __attribute__((always_inline)) static void add_products(const uint8_t* const* scales,
                                                          bool bfloat16, const QuantizedRow* x,
                                                          const I (&dots)[kBlocks][kDots][kRows],
                                                          F (&sum)[kBlocks][kRows]) {
    repeat<kDots>([&](auto d) {
      F scale[kBlocks], bias[kBlocks], minimum[kBlocks];
      repeat<kBlocks>([&](auto b) {
        scale[b] = load_scales<V>(scales[b] + d * kScalesBytes, bfloat16);
        bias[b] = V::mul(scale[b], V::splat(-arithmetic::kDotBias));
        if constexpr (kMinimum) {
          minimum[b] = load_scales<V>(scales[b] + (kDots + d) * kScalesBytes, bfloat16);
        }
      });
      repeat<kRows>([&](auto r) {
        const F x_scale = V::splat(x[r].scale);
        const F x_sum = V::splat(kMinimum ? scaled_sum<kHalves>(x[r], d) : 0.0F);
        repeat<kBlocks>([&](auto b) {
          const F dot = V::template dot_finish<kSmall, !kMinimum>(
              dots[b][d][r], dot_start<kSmall>(x[r], columns_of<kHalves>(d)));
          sum[b][r] = V::fma(V::fma(dot, scale[b], bias[b]), x_scale, sum[b][r]);
          if constexpr (kMinimum) sum[b][r] = V::fma(minimum[b], x_sum, sum[b][r]);
        });
      });
    });
  }
};

}  // namespace
}  // namespace skein::cpu
