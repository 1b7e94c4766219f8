// Panels (panels.inl) of definition G32.
#pragma once

#include "backend/cpu/g32_tiles.inl"
#include "backend/cpu/panels.inl"

namespace skein::cpu {
namespace {

// Codes start from 8 (kSmall) or 128 below where there is no minimum.
template <class V, bool kSmall, bool kHalves, bool kMinimum>
struct G32Panel {
  using F = typename V::F;
  using I = typename V::I;
  using W = typename V::W;
  static constexpr size_t kDots = kHalves ? 2 : 1;
  static constexpr size_t kMost = 20;  // groups: three row blocks of them are about 40 KiB

  // 32 columns of a row block. Of each dot: scales, scales * -kDotBias, minimums.
  struct alignas(64) Cell {
    uint8_t codes[kCodes8Bytes];
    float scales[kDots][kMinimum ? 3 : 2][kBlockRows];
  };

  // Groups [first, first + count) of a row block, `step` cells apart.
  template <Codes kCodes>
  static void unpack(const G32Multiply& a, const uint8_t* block, size_t first, size_t count,
                     Cell* to, size_t step) {
    constexpr G32Layout kLayout = {kCodes, kHalves, kMinimum};
    const uint8_t* codes = block + first * kLayout.code_bytes();
    const uint8_t* scales = block + a.groups * kLayout.code_bytes() + first * kLayout.scale_bytes();
    for (size_t g = 0; g < count; ++g, to += step) {
      unpack_codes<kCodes>(codes, a.table, to->codes);
      for (size_t d = 0; d < kDots; ++d) {
        const F scale = load_scales<V>(scales + d * kScalesBytes, a.bfloat16_scales);
        V::store(to->scales[d][0], scale);
        V::store(to->scales[d][1], V::mul(scale, V::splat(-arithmetic::kDotBias)));
        if constexpr (kMinimum) {
          V::store(to->scales[d][2],
                   load_scales<V>(scales + (kDots + d) * kScalesBytes, a.bfloat16_scales));
        }
      }
      codes += kLayout.code_bytes();
      scales += kLayout.scale_bytes();
    }
  }

  // Adds the products of kRows rows from x on with kBlocks cells a group.
  template <size_t kRows, size_t kBlocks>
  static void add(const Cell* cells, size_t groups, const QuantizedRow* x, Ahead& ahead, F* sums) {
    F sum[kBlocks][kRows];
    SKEIN_WRITE_OUT for (size_t b = 0; b < kBlocks; ++b) {
      SKEIN_WRITE_OUT for (size_t r = 0; r < kRows; ++r) sum[b][r] = sums[b * kRows + r];
    }
    for (size_t g = 0; g < groups; ++g, cells += kBlocks, x += kTileRows) {
      ahead.fetch();
      SKEIN_WRITE_OUT for (size_t d = 0; d < kDots; ++d) {
        I dots[kBlocks][kRows];
        SKEIN_WRITE_OUT for (size_t r = 0; r < kRows; ++r) {
          const I start = V::template dot_start<kSmall, !kMinimum>(
              dot_start<kSmall>(x[r], columns_of<kHalves>(d)));
          SKEIN_WRITE_OUT for (size_t b = 0; b < kBlocks; ++b) dots[b][r] = start;
        }
        SKEIN_WRITE_OUT for (size_t j = d * 8 / kDots; j < (d + 1) * 8 / kDots; ++j) {
          W w[kBlocks];
          SKEIN_WRITE_OUT for (size_t b = 0; b < kBlocks; ++b) {
            w[b] = V::load_bytes(cells[b].codes + 64 * j);
          }
          SKEIN_WRITE_OUT for (size_t r = 0; r < kRows; ++r) {
            const I four = V::load_four(x[r].q + 4 * j);
            SKEIN_WRITE_OUT for (size_t b = 0; b < kBlocks; ++b) {
              dots[b][r] = V::template dot_add<false>(dots[b][r], w[b], four);
            }
          }
        }
        SKEIN_WRITE_OUT for (size_t b = 0; b < kBlocks; ++b) {
          const float(*const scales)[kBlockRows] = cells[b].scales[d];
          SKEIN_WRITE_OUT for (size_t r = 0; r < kRows; ++r) {
            const F product =
                V::fma(V::bits_to_float(dots[b][r]), V::load(scales[0]), V::load(scales[1]));
            sum[b][r] = V::fma(product, V::splat(x[r].scale), sum[b][r]);
            if constexpr (kMinimum) {
              const F x_sum = V::splat(scaled_sum<kHalves>(x[r], d));
              sum[b][r] = V::fma(V::load(scales[2]), x_sum, sum[b][r]);
            }
          }
        }
      }
    }
    SKEIN_WRITE_OUT for (size_t b = 0; b < kBlocks; ++b) {
      SKEIN_WRITE_OUT for (size_t r = 0; r < kRows; ++r) sums[b * kRows + r] = sum[b][r];
    }
  }

 private:
  template <Codes kCodes>
  static void unpack_codes(const uint8_t* from, const uint8_t* table, uint8_t* to) {
    const W values = kCodes == Codes::kTable ? V::load_table(table) : W();
    each_four_columns<V, kCodes, kMinimum, 1>(
        &from, values, [&](const W* w, size_t column) { V::store_bytes(to + 16 * column, *w); });
  }
};

// How codes are unpacked is all that is their own: those of all bits share the code that
// multiplies.
template <class V, Codes kCodes, bool kHalves, bool kMinimum>
struct G32Panels {
  // With a minimum codes are as they are, whatever their bits.
  using Panel = G32Panel<V, kCodes == Codes::kNibbles && !kMinimum, kHalves, kMinimum>;
  using Cell = typename Panel::Cell;
  static constexpr size_t kMost = Panel::kMost;

  static void unpack(const G32Multiply& a, const uint8_t* block, size_t first, size_t count,
                     Cell* to, size_t step) {
    Panel::template unpack<kCodes>(a, block, first, count, to, step);
  }
  template <size_t kRows, size_t kBlocks>
  static void add(const Cell* cells, size_t groups, const QuantizedRecord* x, size_t row,
                  Ahead& ahead, typename V::F* sums) {
    Panel::template add<kRows, kBlocks>(cells, groups, x->row + row, ahead, sums);
  }
};

}  // namespace
}  // namespace skein::cpu
