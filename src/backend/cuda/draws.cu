#include "backend/cuda/draws.h"
#include "backend/cuda/launch.cuh"

namespace skein::cuda {
namespace {

using arithmetic::bits_of_float;

constexpr uint32_t kLine = 512;  // threads that draw from a row
constexpr uint32_t kDigits = 16, kDigitBits = 4;
constexpr uint32_t kIdBits = 24;  // of a rank

// A better rank is a larger number: the larger logit, then the lower id.
__device__ uint64_t rank_of(float logit, uint32_t id) {
  uint32_t bits = bits_of_float(logit);
  if (bits == 0x80000000U) bits = 0;
  const uint32_t ordered = bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
  return uint64_t{ordered} << kIdBits | ((1U << kIdBits) - 1 - id);
}

// How logits become weights.
struct Scale {
  float largest, inverse;
  __device__ float share(float logit) const { return arithmetic::exp((logit - largest) * inverse); }
  __device__ uint64_t weight(float logit) const { return drawing::weight_of(share(logit)); }
};

__device__ bool is_drawn(const DevicePeak& peak, const Draw& draw) {
  return draw.temperature != 0 && peak.not_finite == 0 && peak.value() != 0xff800000U;
}

__device__ Scale scale_of(const DevicePeak& peak, const Draw& draw) {
  return {arithmetic::float_of_bits(peak.value()), drawing::inverse_of(draw.temperature)};
}

__device__ bool is_filtered(const Draw& draw) {
  return draw.top_k > 0 || draw.top_p < 1 || draw.min_p > 0;
}

// 16 threads for each part of a row: its weight, and its tokens that reach the first step.
__global__ void __launch_bounds__(kThreads)
    weigh_parts(DeviceRows rows, const DevicePeak* peaks, const Draw* draws, DrawScratch scratch) {
  const uint32_t row = blockIdx.y;
  const Draw draw = draws[row];
  if (!is_drawn(peaks[row], draw)) return;
  const Scale scale = scale_of(peaks[row], draw);
  const float least = drawing::threshold_of(scale.largest, draw.temperature, drawing::kFirstStep);
  const uint32_t part = (blockIdx.x * kThreads + threadIdx.x) / kLaneThreads;
  const uint32_t lane = threadIdx.x % kLaneThreads;
  const uint32_t first = part * drawing::kPartTokens;
  const uint32_t end = min(first + static_cast<uint32_t>(drawing::kPartTokens), rows.width);
  const float* const logits = row_at(rows, row);
  float sum = 0;
  uint32_t hits = 0;  // of this thread
#pragma unroll 8
  for (uint32_t id = first + lane; id < end; id += kLaneThreads) {
    sum = sum + scale.share(logits[id]);
    hits += logits[id] >= least ? 1 : 0;
  }
  sum = sum_of_lanes(sum);
  const uint32_t parts = DrawScratch::parts_of(rows.width);
  if (lane == 0 && part < parts) {
    scratch.parts[size_t{row} * parts + part] = drawing::weight_of(sum);
  }
  // Few parts have any, and a list that is too long is not looked at.
  if (hits == 0 || !is_filtered(draw)) return;
  uint32_t at = atomicAdd(&scratch.listed[row], hits);
  ListedToken* const list = scratch.list + size_t{row} * DrawScratch::kMostListed;
  for (uint32_t id = first + lane; id < end && at < DrawScratch::kMostListed; id += kLaneThreads) {
    if (logits[id] >= least) list[at++] = {id, logits[id]};
  }
}

// Sums over a block of threads.
class LineSums {
 public:
  // Each of the numbers over all threads, for all of them.
  __device__ void add_up(uint64_t (&numbers)[kDigits]) {
    halve<kDigits / 2, kWarp / 2>(numbers);
    const uint32_t thread = threadIdx.x % kWarp;
    add_warps(numbers[0], thread / 2, thread % 2 == 0, kDigits);
    for (uint32_t n = 0; n < kDigits; ++n) numbers[n] = of_all_[n];
  }
  // A single one.
  __device__ uint64_t of(uint64_t number) {
    for (uint32_t half = kWarp / 2; half > 0; half /= 2) {
      number += __shfl_xor_sync(0xffffffffU, number, half);
    }
    add_warps(number, 0, threadIdx.x % kWarp == 0, 1);
    return of_all_[0];
  }

 private:
  // Of 2 * kHalf numbers of each of a warp's threads, two threads that are kApart give half of them
  // to each other, until a pair of threads has one each: that of the pair's place.
  template <uint32_t kHalf, uint32_t kApart>
  __device__ static void halve(uint64_t (&numbers)[kDigits]) {
    const bool upper = (threadIdx.x & kApart) != 0;
#pragma unroll
    for (uint32_t n = 0; n < kHalf; ++n) {
      const uint64_t given = upper ? numbers[n] : numbers[n + kHalf];
      const uint64_t kept = upper ? numbers[n + kHalf] : numbers[n];
      numbers[n] = kept + __shfl_xor_sync(0xffffffffU, given, kApart);
    }
    if constexpr (kHalf > 1) {
      halve<kHalf / 2, kApart / 2>(numbers);
    } else {
      numbers[0] += __shfl_xor_sync(0xffffffffU, numbers[0], 1);
    }
  }

  __device__ void add_warps(uint64_t number, uint32_t place, bool writes, uint32_t count) {
    __syncthreads();  // what was there has been read
    if (writes) of_warp_[threadIdx.x / kWarp][place] = number;
    __syncthreads();
    if (threadIdx.x < count) {
      uint64_t sum = 0;
      for (uint32_t warp = 0; warp < kLine / kWarp; ++warp) sum += of_warp_[warp][threadIdx.x];
      of_all_[threadIdx.x] = sum;
    }
    __syncthreads();
  }

  uint64_t of_warp_[kLine / kWarp][kDigits];
  uint64_t of_all_[kDigits];
};

// Tokens of a row between two ids: those on its list, or those that reach a logit.
struct Tokens {
  uint32_t first = 0, end = 0;
  const ListedToken* list = nullptr;
  uint32_t count = 0;
  const float* logits = nullptr;
  float least = drawing::kLowest;

  // fn(id, logit) of each, by some thread of the block.
  template <class Fn>
  __device__ void for_each(const Fn& fn) const {
    if (list != nullptr) {
      for (uint32_t i = threadIdx.x; i < count; i += kLine) fn(list[i].id, list[i].logit);
    } else {
      for (uint32_t id = first + threadIdx.x; id < end; id += kLine) {
        if (logits[id] >= least) fn(id, logits[id]);
      }
    }
  }
};

// The sum of measure(id, logit) over tokens.
template <class Measure>
__device__ uint64_t sum_over(const Tokens& tokens, LineSums& sums, const Measure& measure) {
  uint64_t sum = 0;
  tokens.for_each([&](uint32_t id, float logit) { sum += measure(id, logit); });
  return sums.of(sum);
}

// The largest key such that the measures of the tokens of this and larger keys reach `need`, which
// all of them together do; a digit at a time, from the first of `bits` on.
template <class Key, class Measure>
__device__ uint64_t key_that_reaches(uint64_t need, uint32_t bits, const Tokens& tokens,
                                     LineSums& sums, const Key& key, const Measure& measure) {
  uint64_t found = 0;  // the digits so far
  for (uint32_t shift = bits; shift > 0;) {
    shift -= kDigitBits;
    uint64_t of_digit[kDigits] = {};
    tokens.for_each([&](uint32_t id, float logit) {
      const uint64_t digits = key(id, logit) >> shift;
      if (digits >> kDigitBits != found) return;
      const uint64_t what = measure(id, logit);
#pragma unroll
      for (uint32_t digit = 0; digit < kDigits; ++digit) {
        if (digits % kDigits == digit) of_digit[digit] += what;
      }
    });
    sums.add_up(of_digit);
    uint32_t digit = 0;
    bool is_found = false;
#pragma unroll
    for (uint32_t d = kDigits; d-- > 0;) {
      if (is_found) continue;
      digit = d;
      is_found = of_digit[d] >= need;
      if (!is_found) need -= of_digit[d];
    }
    found = found << kDigitBits | digit;
  }
  return found;
}

// The token that covers `target` when tokens are laid out by their weights, which are `all`
// together and more than 0, in the order of ids; the last that has weight where they end before it.
template <class Weight>
__device__ uint32_t token_at(uint64_t target, uint64_t all, const Tokens& tokens, LineSums& sums,
                             const Weight& weight) {
  const uint64_t need = target < all ? target + 1 : all;
  const uint32_t last = tokens.end - 1;  // and the best
  const uint32_t digits = groups_of(32 - __clz(last - tokens.first), kDigitBits);
  return last - static_cast<uint32_t>(key_that_reaches(
                    need, digits * kDigitBits, tokens, sums,
                    [last](uint32_t id, float) { return uint64_t{last - id}; }, weight));
}

// What is drawn from one row, by a block of threads.
struct RowDraw {
  const Draw& draw;
  const Scale& scale;
  const float* logits;
  uint32_t width;
  const uint64_t* parts;
  uint32_t part_count;
  Tokens list;         // what reaches the first step
  bool list_is_whole;  // all of that is on it
  LineSums& sums;

  // Those that reach a step; the first of them are on the list already.
  __device__ Tokens above(int step) const {
    if (step >= drawing::kFirstStep && list_is_whole) return list;
    return {0, width,  nullptr,
            0, logits, drawing::threshold_of(scale.largest, draw.temperature, step)};
  }

  __device__ uint64_t whole_of_parts() const {
    uint64_t sum = 0;
    for (uint32_t part = threadIdx.x; part < part_count; part += kLine) sum += parts[part];
    return sums.of(sum);
  }

  __device__ uint32_t from_all() const {
    uint64_t target = __umul64hi(draw.random, whole_of_parts());
    uint32_t part = 0;
    while (target >= parts[part]) target -= parts[part++];
    const uint32_t first = part * static_cast<uint32_t>(drawing::kPartTokens);
    const uint32_t end = min(first + static_cast<uint32_t>(drawing::kPartTokens), width);
    const Tokens of_part{first, end, nullptr, 0, logits, -arithmetic::kInfinity};
    const auto weight = [this](uint32_t, float logit) { return scale.weight(logit); };
    const uint64_t all = sum_over(of_part, sums, weight);
    if (all > 0) return token_at(target, all, of_part, sums, weight);
    // They weigh something together only: the first that may be drawn.
    const Tokens possible{first, end, nullptr, 0, logits, drawing::kLowest};
    const auto one = [](uint32_t, float) { return uint64_t{1}; };
    return token_at(0, sum_over(possible, sums, one), possible, sums, one);
  }

  // The tokens to look at, and the lowest rank that is kept of them.
  __device__ uint64_t last_rank(Tokens& tokens) const {
    const auto rank = [](uint32_t id, float logit) { return rank_of(logit, id); };
    constexpr uint32_t kRankBits = 32 + kIdBits;
    const auto one = [](uint32_t, float) { return uint64_t{1}; };
    uint64_t last = 0;
    if (draw.top_k > 0 && draw.top_k < width) {
      const bool listed = list_is_whole && list.count >= draw.top_k;
      tokens = above(listed ? drawing::kFirstStep : drawing::kWeightless);
      const uint64_t there = sum_over(tokens, sums, one);
      const uint64_t need = there < draw.top_k ? there : draw.top_k;
      last = key_that_reaches(need, kRankBits, tokens, sums, rank, one);
    }
    const auto weight = [&](uint32_t id, float logit) {
      return rank_of(logit, id) >= last ? scale.weight(logit) : 0;
    };
    if (draw.top_p == 1) {
      const int step = draw.min_p > 0 ? ilogbf(draw.min_p) - 1 : drawing::kWeightless;
      if (last == 0) tokens = above(max(step, drawing::kWeightless));
      return last;
    }
    uint64_t whole = 0;
    if (last != 0) {
      whole = sum_over(tokens, sums, weight);
    } else {
      whole = whole_of_parts();
      const uint64_t need = drawing::share_of(whole, draw.top_p);
      bool reached = false;
      for (const int step : {drawing::kFirstStep, drawing::kSecondStep, drawing::kLastStep}) {
        tokens = above(step);
        reached = sum_over(tokens, sums, weight) >= need;
        if (reached) break;
      }
      if (!reached) {
        tokens = above(drawing::kWeightless);
        whole = sum_over(tokens, sums, weight);
      }
    }
    return key_that_reaches(drawing::share_of(whole, draw.top_p), kRankBits, tokens, sums, rank,
                            weight);
  }

  __device__ uint32_t token() const {
    if (!is_filtered(draw)) return from_all();
    Tokens tokens;
    const uint64_t last = last_rank(tokens);
    const uint64_t least = drawing::share_of(drawing::kUnit, draw.min_p);
    const auto weight = [&](uint32_t id, float logit) -> uint64_t {
      if (rank_of(logit, id) < last) return 0;
      const uint64_t what = scale.weight(logit);
      return what >= least ? what : 0;
    };
    const uint64_t all = sum_over(tokens, sums, weight);
    return token_at(__umul64hi(draw.random, all), all, tokens, sums, weight);
  }
};

__global__ void __launch_bounds__(kLine, 1)
    draw_tokens(DeviceRows rows, DevicePeak* peaks, DevicePeak* copies, const Draw* draws,
                DrawScratch scratch) {
  __shared__ LineSums sums;
  __shared__ ListedToken listed[DrawScratch::kMostListed];
  const uint32_t row = blockIdx.x;
  const Draw draw = draws[row];
  const DevicePeak peak = peaks[row];
  if (!is_drawn(peak, draw)) return;
  const uint32_t reached = scratch.listed[row];
  const uint32_t count = min(reached, DrawScratch::kMostListed);
  for (uint32_t i = threadIdx.x; i < count; i += kLine) {
    listed[i] = scratch.list[size_t{row} * DrawScratch::kMostListed + i];
  }
  __syncthreads();
  const uint32_t parts = DrawScratch::parts_of(rows.width);
  const Scale scale = scale_of(peak, draw);
  const Tokens list{0, rows.width, listed, count};
  const RowDraw from{
      draw,  scale, row_at(rows, row), rows.width, scratch.parts + size_t{row} * parts,
      parts, list,  reached == count,  sums};
  const uint32_t token = from.token();
  if (threadIdx.x != 0) return;
  scratch.listed[row] = 0;  // for the next search
  const DevicePeak found{(peak.key >> 32) << 32 | ~token, 0, 0};
  peaks[row] = found;
  copies[row] = found;
}

}  // namespace

void draw_from_rows(DeviceRows rows, const Draw* draws, const DrawScratch& scratch,
                    DevicePeak* peaks, DevicePeak* copies, cudaStream_t stream) {
  if (rows.rows == 0 || rows.width == 0) return;
  const uint32_t parts = DrawScratch::parts_of(rows.width);
  const dim3 grid(groups_of(parts * kLaneThreads, kThreads), rows.rows);
  weigh_parts<<<grid, kThreads, 0, stream>>>(rows, peaks, draws, scratch);
  draw_tokens<<<rows.rows, kLine, 0, stream>>>(rows, peaks, copies, draws, scratch);
}

}  // namespace skein::cuda
