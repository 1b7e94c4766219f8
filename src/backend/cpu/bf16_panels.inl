// Panels (panels.inl) of definition BF16: weights as floats.
#pragma once

#include "backend/cpu/panels.inl"

namespace skein::cpu {
namespace {

template <class V>
struct Bf16Panels {
  using F = typename V::F;
  static constexpr size_t kMost = 5;  // groups: three row blocks of them are 30 KiB

  struct alignas(64) Cell {
    float weights[arithmetic::kGroup][kBlockRows];
  };

  static void unpack(const Bf16Multiply&, const uint8_t* block, size_t first, size_t count,
                     Cell* to, size_t step) {
    const uint8_t* from = block + first * kBf16BlockBytes;
    for (size_t g = 0; g < count; ++g, to += step) {
      for (size_t k = 0; k < arithmetic::kGroup;
           k += 2, from += 2 * kBlockRows * sizeof(uint16_t)) {
        const auto pairs = V::load_bytes(from);
        V::store(to->weights[k], V::even_halves(pairs));
        V::store(to->weights[k + 1], V::odd_halves(pairs));
      }
    }
  }

  // Even columns and odd ones come by one after the other, and the sums wait in memory: so the
  // registers hold all chains and what they share. Not inlined, or gcc finds other uses for them.
  template <size_t kRows, size_t kBlocks>
  __attribute__((noinline)) static void add(const Cell* cells, size_t groups, const Bf16Record* x,
                                            size_t row, Ahead& ahead, F* sums) {
    for (size_t g = 0; g < groups; ++g, cells += kBlocks) {
      ahead.fetch();
      F even[kBlocks * kRows], odd[kBlocks * kRows];
      make_chains<kRows, kBlocks>(cells, &x[g].x[row], 0, even);
      make_chains<kRows, kBlocks>(cells, &x[g].x[row], 1, odd);
      for (size_t i = 0; i < kBlocks * kRows; ++i) {
        sums[i] = V::add(sums[i], V::add(even[i], odd[i]));
      }
    }
  }

 private:
  template <size_t kRows, size_t kBlocks>
  __attribute__((always_inline)) static void make_chains(const Cell* cells,
                                                         const float (*x)[arithmetic::kGroup],
                                                         size_t first, F* out) {
    F chain[kBlocks][kRows];
    SKEIN_WRITE_OUT for (size_t b = 0; b < kBlocks; ++b) {
      SKEIN_WRITE_OUT for (size_t r = 0; r < kRows; ++r) chain[b][r] = V::splat(0.0F);
    }
    for (size_t column = first; column < arithmetic::kGroup; column += 2) {
      F w[kBlocks];
      SKEIN_WRITE_OUT for (size_t b = 0; b < kBlocks; ++b) {
        w[b] = V::load(cells[b].weights[column]);
      }
      SKEIN_WRITE_OUT for (size_t r = 0; r < kRows; ++r) {
        const F each = V::splat(x[r][column]);
        SKEIN_WRITE_OUT for (size_t b = 0; b < kBlocks; ++b) {
          chain[b][r] = V::fma(each, w[b], chain[b][r]);
        }
      }
    }
    SKEIN_WRITE_OUT for (size_t b = 0; b < kBlocks; ++b) {
      SKEIN_WRITE_OUT for (size_t r = 0; r < kRows; ++r) out[b * kRows + r] = chain[b][r];
    }
  }
};

}  // namespace
}  // namespace skein::cpu
