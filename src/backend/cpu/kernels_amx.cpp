// Attention by AMX tiles; all other kernels are AVX-512's.
#if defined(__GNUC__) && !defined(__clang__)
// gcc 12 takes the _mm512_undefined_ps() of its own headers for a mistake.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "backend/cpu/attention_amx.inl"

namespace skein::cpu {

void attend_span_amx(const AttendSpan& a) {
  if (!fits_tiles(a)) return kAvx512Kernels.attend_span_bf16(a);
  const size_t queries = a.rows * a.shared;
  if (queries <= kTileRows) return attend_tile(a);
  for (size_t first = 0; first < queries; first += kTileRows) {
    const size_t left = queries - first;
    attend_tile(queries_of(a, first, left < kTileRows ? left : kTileRows));
  }
}

}  // namespace skein::cpu
