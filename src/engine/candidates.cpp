#include "engine/candidates.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace skein {
namespace {

// A part of a row that stays in the first cache between a scan and what is done with its hits.
constexpr size_t kPartTokens = 1024;
// Without filters, what is not listed weighs at most this share. It costs a walk over the row to
// draw from that.
constexpr double kUnlistedShare = 1.0 / 64;
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kSmallest = std::numeric_limits<float>::min();
constexpr float kHighest = std::numeric_limits<float>::max();
constexpr double kLn2 = 0.69314718055994530942;
constexpr double kLog2E = 1.44269504088896340736;
constexpr int kUnitBits = std::countr_zero(CandidateSet::kUnit);
// 2^kLowestExponent weighs less than half a unit.
constexpr int kLowestExponent = -44;

// kUnit * e^x for x <= 0, within 2^-31 of itself or one unit. Not libm's: its variants for
// different CPUs round differently.
uint64_t weight_of(double x) {
  if (!(x > kLowestExponent * kLn2)) return 0;
  const int exponent = static_cast<int>(x * kLog2E - 0.5);
  const double r = x - exponent * kLn2;  // |r| <= ln2 / 2
  const double r2 = r * r;
  const double low = (1 + r) + r2 * (1.0 / 2 + r * (1.0 / 6));
  const double high = (1.0 / 24 + r * (1.0 / 120)) + r2 * (1.0 / 720 + r * (1.0 / 5040));
  const double r4 = r2 * r2;
  const double series = low + r4 * (high + r4 * (1.0 / 40320));
  const auto scale =
      std::bit_cast<double>(static_cast<uint64_t>(1023 + kUnitBits + exponent) << 52);
  return static_cast<uint64_t>(series * scale);
}

struct LikelierFirst {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  }
};

uint64_t weight_of(std::span<const Candidate> candidates) {
  uint64_t sum = 0;
  for (const Candidate& candidate : candidates) sum += candidate.weight;
  return sum;
}

// The last candidate to keep when they are taken in `before`'s order until their weights reach
// `weight`. Halves the part in question again and again, so the time is linear.
template <class Before>
Candidate last_of_weight(std::span<Candidate> part, uint64_t weight, Before before) {
  while (part.size() > 1) {
    const size_t half = part.size() / 2;
    std::nth_element(part.begin(), part.begin() + static_cast<ptrdiff_t>(half), part.end(), before);
    const uint64_t first = weight_of(part.first(half));
    if (first >= weight) {
      part = part.first(half);
    } else {
      weight -= first;
      part = part.subspan(half);
    }
  }
  return part.front();
}

uint64_t share_of(uint64_t weight, float share) {
  return static_cast<uint64_t>(std::ceil(static_cast<double>(weight) * double{share}));
}

}  // namespace

void CandidateSet::prepare(size_t vocab) {
  listed_.reserve(vocab);
  ranking_.reserve(vocab);
  hits_.resize(kPartTokens);
  hit_logits_.resize(kPartTokens);
}

void CandidateSet::fill(std::span<const float> row, const Peak& peak, const SamplingParams& params,
                        const VocabularyScan& scan) {
  max_ = peak.value;
  temperature_ = params.temperature;
  inverse_temperature_ = 1 / temperature_;
  unlisted_weight_ = 0;
  const uint32_t top_k = params.top_k < row.size() ? params.top_k : 0;
  const bool typical = params.typical_p < 1;
  if (typical) {
    list_above(row, threshold_of(0), scan);
  } else if (top_k > 0) {
    list_top(row, top_k, threshold_of(0), scan);
  } else if (params.top_p == 1 && params.min_p > 0) {
    list_above(row, threshold_of(params.min_p), scan);
  } else {
    list_share(row, peak, params.top_p, scan);
  }
  if (typical) keep_typical(params.typical_p);
  if (typical && top_k > 0) keep_top(top_k);
  if (params.top_p < 1) keep_share(params.top_p);
  if (params.min_p > 0) keep_relative(params.min_p);
}

uint64_t CandidateSet::listed_weight() const {
  return weight_of(listed_);
}

TokenId CandidateSet::at(uint64_t target, std::span<const float> row, const Peak& peak) const {
  for (const Candidate& candidate : listed_) {
    if (target < candidate.weight) return candidate.token;
    target -= candidate.weight;
  }
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] >= threshold_) continue;
    const uint64_t weight = weight_of(scaled(row[i]));
    if (target < weight) return static_cast<TokenId>(i);
    target -= weight;
  }
  return static_cast<TokenId>(peak.index);  // the scan's sum, a rounded one, was too large
}

std::span<const Candidate> CandidateSet::largest(std::span<const float> row, uint32_t count,
                                                 const VocabularyScan& scan) {
  list_top(row, count, kLowest, scan);
  std::sort(listed_.begin(), listed_.end(), LikelierFirst());
  return listed_;
}

// A logit that every token of at least that weight (1: the likeliest token's) reaches, and not much
// lower than it must be. Needs no logarithm. Never subnormal: a scan would take it for 0.
float CandidateSet::threshold_of(double weight) const {
  const int exponent =
      weight > 0 ? std::max(std::ilogb(weight) - 1, kLowestExponent) : kLowestExponent;
  const double logit = max_ + temperature_ * exponent * kLn2;
  if (std::abs(logit) < kSmallest) return -kSmallest;
  return std::nextafter(static_cast<float>(std::max<double>(logit, kLowest)), kLowest);
}

void CandidateSet::append(std::span<const float> row, size_t first, size_t count, float threshold,
                          const VocabularyScan& scan) {
  const size_t hits = scan.collect_above(row.subspan(first, count), threshold, hits_, hit_logits_);
  for (size_t i = 0; i < hits; ++i) {
    listed_.push_back({static_cast<TokenId>(first) + hits_[i], hit_logits_[i], 0});
  }
}

void CandidateSet::list_above(std::span<const float> row, float threshold,
                              const VocabularyScan& scan) {
  listed_.clear();
  threshold_ = threshold;
  for (size_t first = 0; first < row.size(); first += kPartTokens) {
    append(row, first, std::min(kPartTokens, row.size() - first), threshold, scan);
  }
  weigh();
}

// The threshold rises to the worst of the best `count` so far whenever enough have come together. A
// later token of the same logit has a higher id, so it is right to leave it out.
void CandidateSet::list_top(std::span<const float> row, uint32_t count, float threshold,
                            const VocabularyScan& scan) {
  listed_.clear();
  const size_t enough = count + std::max<size_t>(count, kPartTokens / 2);
  for (size_t first = 0; first < row.size(); first += kPartTokens) {
    append(row, first, std::min(kPartTokens, row.size() - first), threshold, scan);
    if (listed_.size() < enough) continue;
    keep_top(count);
    float worst = kHighest;
    for (const Candidate& candidate : listed_) worst = std::min(worst, candidate.logit);
    threshold = std::nextafter(worst, kHighest);
  }
  keep_top(count);
  weigh();
}

// Tokens that weigh less than (1 - share) of the whole, divided by the vocabulary, weigh less than
// (1 - share) together: those above reach the share without them.
void CandidateSet::list_share(std::span<const float> row, const Peak& peak, float share,
                              const VocabularyScan& scan) {
  const auto inverse_temperature =
      static_cast<float>(std::min<double>(inverse_temperature_, kHighest));
  const double sum = scan.sum_exp(row, peak.value, inverse_temperature);
  const double rest = share < 1 ? 1 - double{share} : kUnlistedShare;
  list_above(row, threshold_of(sum * rest / static_cast<double>(row.size())), scan);
  const auto whole = static_cast<uint64_t>(sum * static_cast<double>(kUnit));
  const uint64_t listed = listed_weight();
  unlisted_weight_ = whole > listed ? whole - listed : 0;
  if (share == 1 || listed >= share_of(whole, share)) return;
  list_above(row, threshold_of(0), scan);  // the scan's rounding decides: take the exact weights
  unlisted_weight_ = 0;
}

void CandidateSet::weigh() {
  for (Candidate& candidate : listed_) candidate.weight = weight_of(scaled(candidate.logit));
}

// How far a token's information is from the mean, |-log p - H|, is how far its scaled logit is from
// their mean: the logarithm of the sum is in both.
void CandidateSet::keep_typical(float share) {
  double mean = 0;
  for (const Candidate& candidate : listed_) {
    mean += static_cast<double>(candidate.weight) * scaled(candidate.logit);
  }
  const uint64_t whole = listed_weight();
  mean /= static_cast<double>(whole);
  const auto more_typical = [this, mean](const Candidate& a, const Candidate& b) {
    const double from_a = std::abs(scaled(a.logit) - mean);
    const double from_b = std::abs(scaled(b.logit) - mean);
    return from_a != from_b ? from_a < from_b : a.token < b.token;
  };
  ranking_.assign(listed_.begin(), listed_.end());
  const Candidate last = last_of_weight(std::span(ranking_), share_of(whole, share), more_typical);
  std::erase_if(listed_, [&](const Candidate& c) { return more_typical(last, c); });
}

void CandidateSet::keep_top(uint32_t count) {
  if (listed_.size() <= count) return;
  ranking_.assign(listed_.begin(), listed_.end());
  const auto last = ranking_.begin() + (count - 1);
  std::nth_element(ranking_.begin(), last, ranking_.end(), LikelierFirst());
  std::erase_if(listed_, [&](const Candidate& c) { return LikelierFirst()(*last, c); });
}

void CandidateSet::keep_share(float share) {
  const uint64_t whole = listed_weight() + unlisted_weight_;
  unlisted_weight_ = 0;
  ranking_.assign(listed_.begin(), listed_.end());
  const Candidate last =
      last_of_weight(std::span(ranking_), share_of(whole, share), LikelierFirst());
  std::erase_if(listed_, [&](const Candidate& c) { return LikelierFirst()(last, c); });
}

void CandidateSet::keep_relative(float share) {
  uint64_t best = 0;
  for (const Candidate& candidate : listed_) best = std::max(best, candidate.weight);
  const uint64_t least = share_of(best, share);
  unlisted_weight_ = 0;
  std::erase_if(listed_, [&](const Candidate& c) { return c.weight < least; });
}

}  // namespace skein
