// Products of type G32 by TDPBSSD and TDPBSUD: a tile instruction makes the dots of 16 rows with a
// row block, a store takes them to memory, and vectors scale and add them up as everywhere else.
#pragma once

#include "backend/cpu/amx_tiles.h"
#include "backend/cpu/dot_avx512.h"
#include "backend/cpu/linear_kernels.inl"

namespace skein::cpu {
namespace {

// Codes without their offset: tiles take signed bytes as well.
template <uint8_t kOffset>
struct SignedCodes : DotAvx512 {
  static void store_bytes(uint8_t* at, W w) {
    if constexpr (kOffset != 0)
      w = _mm512_sub_epi8(w, _mm512_set1_epi8(static_cast<char>(kOffset)));
    DotAvx512::store_bytes(at, w);
  }
};

struct alignas(64) TileDots {
  int32_t dot[kTileRows][kBlockRows];
};

template <Codes kCodes, bool kHalves, bool kMinimum>
struct G32Amx {
  using V = SignedCodes<kMinimum ? 0 : kCodes == Codes::kNibbles ? 8 : 128>;
  using F = typename V::F;
  using Panel = G32Panel<V, kCodes == Codes::kNibbles && !kMinimum, kHalves, kMinimum>;
  using Cell = typename Panel::Cell;

  static constexpr size_t kDots = Panel::kDots;
  static constexpr size_t kDotColumns = arithmetic::kGroup / kDots;
  // A panel and the activations that come by are to share the first-level cache: two row blocks,
  // for both of which the activations are there, and this many groups.
  static constexpr size_t kBlocks = 2, kMostGroups = 16;

  // Tiles 0 and 1 are dots, 2 and 3 activations, 4 and 5 codes: what has just been asked of one set
  // is under way while the other one is read.
  static TileShapes shapes(size_t rows) {
    TileShapes shapes;
    for (size_t set = 0; set < 2; ++set) {
      shapes.set(set, rows, kTileStride);
      shapes.set(2 + set, rows, kDotColumns);
      shapes.set(4 + set, kDotColumns / 4, kTileStride);
    }
    return shapes;
  }

  static void multiply(const G32Multiply& a) {
    TilesInUse tiles;
    Cell cells[kBlocks * kMostGroups];
    size_t configured = 0;
    const size_t steps = (a.groups + kMostGroups - 1) / kMostGroups;
    for (size_t block = 0, blocks = blocks_of(a); block < blocks; block += kBlocks) {
      const size_t count = blocks - block < kBlocks ? blocks - block : kBlocks;
      const size_t dots = (a.rows + kTileRows - 1) / kTileRows * a.groups * kDots * count;
      Ahead ahead = ahead_of(a, block + count, count, dots);
      for (size_t step = 0; step < steps; ++step) {
        const size_t first = a.groups * step / steps, end = a.groups * (step + 1) / steps;
        for (size_t b = 0; b < count; ++b) {
          Panel::template unpack<kCodes>(a, a.weights + (block + b) * a.block_stride, first,
                                         end - first, cells + b * kMostGroups, 1);
        }
        memory_is_written();
        for (size_t row = 0; row < a.rows; row += kTileRows) {
          const size_t rows = a.rows - row > kTileRows / 2 ? kTileRows : kTileRows / 2;
          if (rows != configured) tiles.configure(shapes(rows));
          configured = rows;
          for (size_t b = 0; b < count; ++b) {
            const Cell* const at = cells + b * kMostGroups;
            rows == kTileRows ? add_rows<kTileRows>(a, at, block + b, row, first, end, ahead)
                              : add_rows<kTileRows / 2>(a, at, block + b, row, first, end, ahead);
          }
        }
      }
    }
  }

 private:
  // Adds kRows rows with these groups of a row block to what `out` holds, or to nothing if they are
  // the first. Rows past the last are what the tile's memory holds and are not stored.
  template <size_t kRows>
  static void add_rows(const G32Multiply& a, const Cell* cells, size_t block, size_t row,
                       size_t first, size_t end, Ahead& ahead) {
    const size_t rows = a.rows - row < kRows ? a.rows - row : kRows;
    const size_t at = a.first_output + block * kBlockRows;
    const __mmask16 lanes = V::first(lanes_of(a, block));
    float* const* const out = a.out + row;
    F sum[kRows];
    repeat<kRows>([&](auto r) __attribute__((always_inline)) {
      sum[r] =
          first == 0 ? V::splat(0.0F) : _mm512_maskz_loadu_ps(lanes, out[r < rows ? r : 0] + at);
    });
    const QuantizedRecord* const x = a.x + row / kTileRows * a.groups + first;
    add_groups<kRows>(cells, end - first, x->row, ahead, sum);
    if (end == a.groups && a.bias != nullptr) {
      const F bias = _mm512_maskz_loadu_ps(lanes, a.bias + block * kBlockRows);
      repeat<kRows>([&](auto r) __attribute__((always_inline)) { sum[r] = V::add(sum[r], bias); });
    }
    repeat<kRows>([&](auto r) __attribute__((always_inline)) {
      if (r < rows) _mm512_mask_storeu_ps(out[r] + at, lanes, sum[r]);
    });
  }

  // Dot i is that of group i / kDots; the set is i % 2, which is also its half of the columns.
  // Scaling runs one dot behind.
  template <size_t kRows>
  __attribute__((always_inline)) static void add_groups(const Cell* cells, size_t groups,
                                                        const QuantizedRow* x, Ahead& ahead,
                                                        F (&sum)[kRows]) {
    TileDots dots[2];
    const size_t count = groups * kDots;
    Ahead own = ahead;  // in registers
    ahead.at += count * ahead.bytes_a_turn;
    const auto make = [&](auto set, size_t i) __attribute__((always_inline)) {
      make_dots<set>(x + i / kDots * kTileRows, cells[i / kDots], dots[set]);
      own.fetch();
    };
    const auto add = [&](auto set, size_t i) __attribute__((always_inline)) {
      add_dots<set, kRows>(x + i / kDots * kTileRows, cells[i / kDots], dots[set], sum);
    };
    constexpr Index<0> kEven;
    constexpr Index<1> kOdd;
    make(kEven, 0);
    size_t i = 1;
    for (; i + 1 < count; i += 2) {
      make(kOdd, i);
      add(kEven, i - 1);
      make(kEven, i + 1);
      add(kOdd, i);
    }
    if (i < count) make(kOdd, i);
    add(kEven, i - 1);
    if (i < count) add(kOdd, i);
  }

  template <size_t kSet>
  __attribute__((always_inline)) static void make_dots(const QuantizedRow* x, const Cell& cell,
                                                       TileDots& to) {
    constexpr size_t kHalf = kDots == 2 ? kSet : 0;
    static_assert(sizeof(QuantizedRow) == kTileStride);
    const int8_t* const q = x->q + kHalf * kDotColumns;
    const uint8_t* const codes = cell.codes + kHalf * kCodes8Bytes / 2;
    if constexpr (kSet == 0) {
      _tile_loadd(2, q, kTileStride);
      _tile_loadd(4, codes, kTileStride);
      _tile_zero(0);
      if constexpr (kMinimum) {
        _tile_dpbsud(0, 2, 4);
      } else {
        _tile_dpbssd(0, 2, 4);
      }
      _tile_stored(0, to.dot, kTileStride);
    } else {
      _tile_loadd(3, q, kTileStride);
      _tile_loadd(5, codes, kTileStride);
      _tile_zero(1);
      if constexpr (kMinimum) {
        _tile_dpbsud(1, 3, 5);
      } else {
        _tile_dpbssd(1, 3, 5);
      }
      _tile_stored(1, to.dot, kTileStride);
    }
  }

  // As G32Panel::add does, but that the bias comes after the dot.
  template <size_t kSet, size_t kRows>
  __attribute__((always_inline)) static void add_dots(const QuantizedRow* x, const Cell& cell,
                                                      const TileDots& dots, F (&sum)[kRows]) {
    constexpr size_t kHalf = kDots == 2 ? kSet : 0;
    const float(*const scales)[kBlockRows] = cell.scales[kHalf];
    const F scale = V::load(scales[0]), bias = V::load(scales[1]);
    const F minimum = V::load(scales[kMinimum ? 2 : 0]);
    const __m512i bias_bits = _mm512_set1_epi32(arithmetic::kDotBiasBits);
    repeat<kRows>([&](auto r) __attribute__((always_inline)) {
      const __m512i biased = _mm512_add_epi32(bias_bits, _mm512_load_si512(dots.dot[r]));
      const F product = V::fma(V::bits_to_float(biased), scale, bias);
      sum[r] = V::fma(product, V::splat(x[r].scale), sum[r]);
      if constexpr (kMinimum) {
        sum[r] = V::fma(minimum, V::splat(scaled_sum<kHalves>(x[r], kHalf)), sum[r]);
      }
    });
  }
};

}  // namespace
}  // namespace skein::cpu
