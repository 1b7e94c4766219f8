// Attention over one span (reference/attention.cpp says what it computes).
#pragma once

#include "backend/cpu/kernel_table.h"
#include "backend/cpu/math.inl"
#include "backend/cpu/widen_kv.inl"

namespace skein::cpu {
namespace {

// The keys or the values of a block's head, and how they are read (KvLayer in backend.h): always
// two neighbours at once. Where the second one is past the end it is somewhere else in the same
// head, and not used.
//
// `next` is what will be read after them. It is somewhere else in memory, where no hardware expects
// it: what is read here fetches the same place there. All of it at once would take every buffer
// that waits for memory, and keep what is read here waiting behind it.
template <class V>
struct HalfF32 {
  using F = typename V::F;
  const float* at;
  const float* next;
  size_t dim;

  HalfF32(const std::byte* half, const std::byte* next_half, size_t head_dim)
      : at(reinterpret_cast<const float*>(half)),
        next(reinterpret_cast<const float*>(next_half)),
        dim(head_dim) {}
  // Dimensions d and d + 1 (d is even) of the first or second 16 tokens.
  void keys(size_t d, size_t half, F (&out)[2]) const {
    for (size_t i = 0; i < 2; ++i) {
      const size_t place = (d + i) * kKernelBlockTokens + 16 * half;
      __builtin_prefetch(next + place);
      out[i] = V::load(at + place);
    }
  }
  static size_t half_bytes(size_t dim) { return kKernelBlockTokens * dim * sizeof(float); }
  static F rounded(F p) { return p; }
  // Tokens 2 * pair and the next, `lanes` dimensions from d, a multiple of 16.
  void values(size_t pair, size_t d, size_t lanes, F (&out)[2]) const {
    for (size_t i = 0; i < 2; ++i) {
      const size_t place = (2 * pair + i) * dim + d;
      __builtin_prefetch(next + place);
      out[i] = load_lanes<V>(at + place, lanes);
    }
  }
};

template <class V>
struct HalfBf16 {
  using F = typename V::F;
  static constexpr size_t kPairs = 16;  // a float's place holds a pair
  const float* at;
  const float* next;
  size_t dim;

  HalfBf16(const std::byte* half, const std::byte* next_half, size_t head_dim)
      : at(reinterpret_cast<const float*>(half)),
        next(reinterpret_cast<const float*>(next_half)),
        dim(padded_dims(head_dim)) {}
  void keys(size_t d, size_t half, F (&out)[2]) const {
    split((half * dim / 2 + d / 2) * kPairs, out);
  }
  static size_t half_bytes(size_t dim) { return half_bytes_bf16(dim); }
  static F rounded(F p) { return V::round_bf16(p); }
  void values(size_t pair, size_t d, size_t, F (&out)[2]) const {
    split((d / 16 * (kKernelBlockTokens / 2) + pair) * kPairs, out);
  }

 private:
  void split(size_t place, F (&out)[2]) const {
    __builtin_prefetch(next + place);
    const F both = V::load(at + place);
    out[0] = V::bits_up16(both);
    out[1] = V::bit_and(both, 0xffff0000U);
  }
};

// The scores of kQ queries from `query` on with the tokens of one block, scaled and capped; those
// that the query does not see too, which nobody reads. Sums of earlier dimensions wait in memory,
// so that the registers are all for chains.
template <class V, class Half, size_t kQ>
void score_block(const AttendSpan& a, const Half& kv, size_t query, size_t block) {
  using F = typename V::F;
  const float* const q = a.queries + query * a.head_dim;
  float* const scores = a.scores + query * arithmetic::kSpanTokens + block * kKernelBlockTokens;
  for (size_t first = 0; first < a.head_dim; first += arithmetic::kGroup) {
    const size_t left = a.head_dim - first;
    const size_t end = first + (left < arithmetic::kGroup ? left : arithmetic::kGroup);
    F chain[kQ][2][2];  // of even and odd dimensions, with either half of the tokens
    SKEIN_WRITE_OUT for (size_t i = 0; i < kQ; ++i) {
      SKEIN_WRITE_OUT for (size_t c = 0; c < 4; ++c) chain[i][c / 2][c % 2] = V::splat(0.0F);
    }
    const auto take = [&](size_t d, const F(&k)[2][2], size_t which)
        __attribute__((always_inline)) {
      SKEIN_WRITE_OUT for (size_t i = 0; i < kQ; ++i) {
        const F x = V::splat(q[i * a.head_dim + d]);
        SKEIN_WRITE_OUT for (size_t half = 0; half < 2; ++half) {
          chain[i][which][half] = V::fma(x, k[half][which], chain[i][which][half]);
        }
      }
    };
    size_t d = first;
    for (; d + 1 < end; d += 2) {
      F k[2][2];
      kv.keys(d, 0, k[0]);
      kv.keys(d, 1, k[1]);
      take(d, k, 0);
      take(d + 1, k, 1);
    }
    if (d < end) {
      F k[2][2];
      kv.keys(d, 0, k[0]);
      kv.keys(d, 1, k[1]);
      take(d, k, 0);
    }
    SKEIN_WRITE_OUT for (size_t i = 0; i < kQ; ++i) {
      SKEIN_WRITE_OUT for (size_t half = 0; half < 2; ++half) {
        float* const score = scores + i * arithmetic::kSpanTokens + 16 * half;
        const F before = first == 0 ? V::splat(0.0F) : V::load(score);
        const F sum = V::add(before, V::add(chain[i][0][half], chain[i][1][half]));
        V::store(score,
                 end < a.head_dim ? sum : cap16<V>(V::mul(sum, V::splat(a.scale)), a.softcap));
      }
    }
  }
}

// Scores to weights, in place; leaves the maximum and the sum in the partial. What has not been
// scaled and capped (kSums) is first.
template <class V, class Half, bool kSums = false>
void softmax(const AttendSpan& a, size_t query, size_t begin, size_t end) {
  using F = typename V::F;
  float* const scores = a.scores + query * arithmetic::kSpanTokens;
  const size_t first = begin / 16 * 16;
  const auto visible = [&](size_t t) { return V::between(begin > t ? begin - t : 0, end - t); };
  F max = V::splat(-arithmetic::kInfinity);
  for (size_t t = first; t < end; t += 16) {
    F score = V::load(scores + t);
    if constexpr (kSums) {
      score = cap16<V>(V::mul(score, V::splat(a.scale)), a.softcap);
      V::store(scores + t, score);
    }
    max = V::select(visible(t), V::max(max, score), max);
  }
  const float largest = V::largest(max);  // where one is NaN, all of the result will be
  const F all = V::splat(largest), zero = V::splat(0.0F);
  F sum = zero;
  for (size_t t = first; t < end; t += 16) {
    const F p = Half::rounded(exp16<V>(V::sub(V::load(scores + t), all)));
    const F seen = V::select(visible(t), p, zero);
    V::store(scores + t, seen);
    sum = V::add(sum, seen);
  }
  float* const partial = a.partials + query * (a.head_dim + 2);
  partial[a.head_dim] = largest;
  partial[a.head_dim + 1] = V::sum(sum);
}

// Adds tokens [begin, end) of one block, weighted, to the values of kQ queries, kD vectors of
// dimensions from d; the last one may have fewer lanes when kD is 1. Tokens outside are not
// touched: what is there may be no number.
template <class V, class Half, size_t kQ, size_t kD>
void add_values(const AttendSpan& a, const Half& kv, size_t query, size_t block, size_t begin,
                size_t end, size_t d, size_t lanes) {
  using F = typename V::F;
  const float* const weights =
      a.scores + query * arithmetic::kSpanTokens + block * kKernelBlockTokens;
  F chain[kQ][kD][2];  // of even and odd tokens
  SKEIN_WRITE_OUT for (size_t i = 0; i < kQ; ++i) {
    SKEIN_WRITE_OUT for (size_t j = 0; j < kD; ++j) {
      chain[i][j][0] = chain[i][j][1] = V::splat(0.0F);
    }
  }
  const auto take = [&](size_t t, const F(&v)[kD][2], size_t which) __attribute__((always_inline)) {
    SKEIN_WRITE_OUT for (size_t i = 0; i < kQ; ++i) {
      const F p = V::splat(weights[i * arithmetic::kSpanTokens + t]);
      SKEIN_WRITE_OUT for (size_t j = 0; j < kD; ++j) {
        chain[i][j][which] = V::fma(p, v[j][which], chain[i][j][which]);
      }
    }
  };
  const auto load = [&](size_t pair, F(&v)[kD][2]) __attribute__((always_inline)) {
    SKEIN_WRITE_OUT for (size_t j = 0; j < kD; ++j) {
      kv.values(pair, d + 16 * j, kD == 1 ? lanes : 16, v[j]);
    }
  };
  F v[kD][2];
  if (begin == 0 && end == kKernelBlockTokens) {
    for (size_t t = 0; t < kKernelBlockTokens; t += 2) {
      load(t / 2, v);
      take(t, v, 0);
      take(t + 1, v, 1);
    }
  } else {
    for (size_t t = begin / 2 * 2; t < end; t += 2) {
      load(t / 2, v);
      if (t >= begin) take(t, v, 0);
      if (t + 1 < end) take(t + 1, v, 1);
    }
  }
  SKEIN_WRITE_OUT for (size_t i = 0; i < kQ; ++i) {
    float* const out = a.partials + (query + i) * (a.head_dim + 2) + d;
    SKEIN_WRITE_OUT for (size_t j = 0; j < kD; ++j) {
      const F sum = V::add(chain[i][j][0], chain[i][j][1]);
      store_lanes<V>(out + 16 * j, V::add(load_lanes<V>(out + 16 * j, lanes), sum), lanes);
    }
  }
}

template <class V, class Half, size_t kQ>
void add_block(const AttendSpan& a, const Half& kv, size_t query, size_t block, size_t begin,
               size_t end) {
  constexpr size_t kD = kQ <= V::kChains / 8 ? 4 : kQ <= V::kChains / 4 ? 2 : 1;
  size_t d = 0;
  for (; d + 16 * kD <= a.head_dim; d += 16 * kD) {
    add_values<V, Half, kQ, kD>(a, kv, query, block, begin, end, d, 16);
  }
  for (; d < a.head_dim; d += 16) {
    add_values<V, Half, kQ, 1>(a, kv, query, block, begin, end, d,
                               a.head_dim - d < 16 ? a.head_dim - d : 16);
  }
}

// Groups of queries that share loads: as few as there must be, of about the same size. A query
// takes four chains at least.
template <class V>
struct QueryGroups {
  static constexpr size_t kMost = V::kChains / 4;
  size_t size;

  explicit QueryGroups(size_t queries) {
    const size_t groups = (queries + kMost - 1) / kMost;
    size = (queries + groups - 1) / groups;
  }
  // fn(number of queries, first of them) over [first, end).
  template <class Fn>
  __attribute__((always_inline)) void run(size_t first, size_t end, Fn fn) const {
    for (; first < end; first += size) {
      const size_t count = end - first < size ? end - first : size;
      repeat<kMost>([&](auto i) {
        if (count == i + 1) fn(Index<i + 1>(), first);
      });
    }
  }
};

// Blocks [first, end) of a span.
struct Blocks {
  size_t first, end;
};

// Those that some row sees some of, without gaps.
inline Blocks seen_blocks(const AttendSpan& a) {
  size_t begin = arithmetic::kSpanTokens, end = 0;
  for (size_t row = 0; row < a.rows; ++row) {
    if (a.begin[row] >= a.end[row]) continue;
    begin = a.begin[row] < begin ? a.begin[row] : begin;
    end = a.end[row] > end ? a.end[row] : end;
  }
  return {begin / kKernelBlockTokens, (end + kKernelBlockTokens - 1) / kKernelBlockTokens};
}

// What is read n-th: the keys of all blocks, then their values, then what follows the span. Where
// nothing does, what is read last.
inline const std::byte* nth_half(const AttendSpan& a, Blocks seen, size_t n, size_t half_bytes) {
  const size_t count = seen.end - seen.first;
  if (n < count) return a.blocks[seen.first + n];
  if (n < 2 * count) return a.blocks[seen.first + n - count] + half_bytes;
  return a.next != nullptr ? a.next : a.blocks[seen.end - 1] + half_bytes;
}

// Where the halves of a span's heads come from: as they are in the cache, or widened by the way.
// `n` counts what is read; the next of it is fetched.
template <class H>
struct AsStored {
  using Half = H;
  static Half nth(const AttendSpan& a, Blocks seen, size_t n) {
    const size_t half_bytes = Half::half_bytes(a.head_dim);
    return {nth_half(a, seen, n, half_bytes), nth_half(a, seen, n + 1, half_bytes), a.head_dim};
  }
  static Half keys(const AttendSpan& a, Blocks seen, size_t n) { return nth(a, seen, n); }
  static Half values(const AttendSpan& a, Blocks seen, size_t n) { return nth(a, seen, n); }
};

template <class V>
struct Widened {
  using Half = HalfBf16<V>;
  static Half keys(const AttendSpan& a, Blocks seen, size_t n) {
    const size_t half_bytes = half_bytes_int8(a.head_dim);
    widen_keys<V>(nth_half(a, seen, n, half_bytes), a.head_dim,
                  nth_half(a, seen, n + 1, half_bytes), a.widened);
    return {a.widened, a.widened, a.head_dim};
  }
  static Half values(const AttendSpan& a, Blocks seen, size_t n) {
    const size_t half_bytes = half_bytes_int8(a.head_dim);
    widen_values<V>(nth_half(a, seen, n, half_bytes), a.head_dim,
                    nth_half(a, seen, n + 1, half_bytes), a.widened);
    return {a.widened, a.widened, a.head_dim};
  }
};

// The weights of all queries, and partials that start with no values.
template <class V, class Half, bool kSums = false>
void weigh_all(const AttendSpan& a) {
  for (size_t query = 0; query < a.rows * a.shared; ++query) {
    const size_t row = query / a.shared;
    if (a.begin[row] >= a.end[row]) continue;
    softmax<V, Half, kSums>(a, query, a.begin[row], a.end[row]);
    float* const values = a.partials + query * (a.head_dim + 2);
    for (size_t d = 0; d < a.head_dim; ++d) values[d] = 0.0F;
  }
}

// To each row's values, what it sees of `blocks`.
template <class V, class Source>
void add_blocks(const AttendSpan& a, Blocks seen, Blocks blocks) {
  using Half = typename Source::Half;
  const QueryGroups<V> of_row(a.shared);
  for (size_t block = blocks.first; block < blocks.end; ++block) {
    const size_t start = block * kKernelBlockTokens;
    Half kv = Source::values(a, seen, seen.end + block - 2 * seen.first);
    for (size_t row = 0; row < a.rows; ++row) {
      const size_t from = a.begin[row] > start ? a.begin[row] - start : 0;
      const size_t left = a.end[row] > start ? a.end[row] - start : 0;
      const size_t to = left < kKernelBlockTokens ? left : kKernelBlockTokens;
      if (from >= to) continue;
      of_row.run(row * a.shared, (row + 1) * a.shared, [&](auto count, size_t query) {
        add_block<V, Half, count>(a, kv, query, block, from, to);
        kv.next = kv.at;  // the first to come by has fetched it
      });
    }
  }
}

// A block's keys, later its values, stay in the first-level cache while all queries come by.
template <class V, class Source>
void attend_span(const AttendSpan& a) {
  using Half = typename Source::Half;
  const Blocks seen = seen_blocks(a);
  const size_t queries = a.rows * a.shared;
  const QueryGroups<V> all(queries);
  for (size_t block = seen.first; block < seen.end; ++block) {
    Half kv = Source::keys(a, seen, block - seen.first);
    all.run(0, queries, [&](auto count, size_t query) {
      score_block<V, Half, count>(a, kv, query, block);
      kv.next = kv.at;  // the first to come by has fetched it
    });
  }
  weigh_all<V, Half>(a);
  add_blocks<V, Source>(a, seen, seen);
}

template <class V>
void round_bf16(const float* x, size_t count, float* out) {
  for_lanes(count, [&](size_t i, size_t lanes) {
    store_lanes<V>(out + i, V::round_bf16(load_lanes<V>(x + i, lanes)), lanes);
  });
}

template <class V>
float exp_of(float x) {
  float lane[16];
  V::store(lane, exp16<V>(V::splat(x)));
  return lane[0];
}

template <class V>
void merge_partial(float* total, const float* span, size_t head_dim) {
  using F = typename V::F;
  float &total_max = total[head_dim], &weight = total[head_dim + 1];
  const float max = total_max > span[head_dim] ? total_max : span[head_dim];
  const float old_scale = exp_of<V>(total_max - max), new_scale = exp_of<V>(span[head_dim] - max);
  total_max = max;
  weight = __builtin_fmaf(span[head_dim + 1], new_scale, weight * old_scale);
  const F old_scales = V::splat(old_scale), new_scales = V::splat(new_scale);
  for_lanes(head_dim, [&](size_t d, size_t lanes) {
    const F old = V::mul(load_lanes<V>(total + d, lanes), old_scales);
    store_lanes<V>(total + d, V::fma(load_lanes<V>(span + d, lanes), new_scales, old), lanes);
  });
}

template <class V>
void finish_attention(const float* total, const float* sink, size_t head_dim, float* out) {
  using F = typename V::F;
  float weight = total[head_dim + 1], scale = 1.0F;
  if (sink != nullptr) {
    const float max = total[head_dim] > *sink ? total[head_dim] : *sink;
    scale = exp_of<V>(total[head_dim] - max);
    weight = __builtin_fmaf(weight, scale, exp_of<V>(*sink - max));
  }
  const F scales = V::splat(scale), inverse = V::splat(1.0F / weight);
  for_lanes(head_dim, [&](size_t d, size_t lanes) {
    F x = load_lanes<V>(total + d, lanes);
    if (sink != nullptr) x = V::mul(x, scales);
    store_lanes<V>(out + d, V::mul(x, inverse), lanes);
  });
}

}  // namespace
}  // namespace skein::cpu
