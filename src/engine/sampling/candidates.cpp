#include "engine/sampling/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/arithmetic.h"
#include "base/check.h"
#include "base/rng.h"

namespace skein {
namespace {

using drawing::kFirstStep, drawing::kSecondStep, drawing::kLastStep, drawing::kWeightless;
using drawing::kPartTokens;  // they stay in the first cache between a scan and what follows
using drawing::share_of, drawing::weight_of;

constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kHighest = std::numeric_limits<float>::max();
static_assert(kPartTokens % 64 == 0, "a part has whole words of a mask");

LogitRow part_of(LogitRow row, size_t first) {
  return row.part(first, std::min(kPartTokens, row.values.size() - first));
}

}  // namespace

void CandidateSet::prepare(size_t vocab) {
  listed_.reserve(vocab);
  ranking_.reserve(vocab);
  part_weights_.reserve(vocab / kPartTokens + 1);
  hits_.resize(kPartTokens);
  values_.resize(kPartTokens);
}

TokenId CandidateSet::draw(LogitRow row, const Argmax& peak, const SamplingParams& params,
                           const VocabularyScan& scan, uint64_t random) {
  if (params.typical_p == 1 && params.top_k == 0 && params.top_p == 1 && params.min_p == 0) {
    set_scale(peak, params.temperature);
    return draw_unfiltered(row, scan, random);
  }
  filter(row, peak, params, scan);
  uint64_t target = high_half(random, listed_weight());
  for (const Candidate& candidate : listed_) {
    if (target < candidate.weight) return candidate.token;
    target -= candidate.weight;
  }
  SKEIN_CHECK(false, "{} candidates weigh less than their sum", listed_.size());
}

std::span<const Candidate> CandidateSet::filter(LogitRow row, const Argmax& peak,
                                                const SamplingParams& params,
                                                const VocabularyScan& scan) {
  set_scale(peak, params.temperature);
  const uint32_t top_k = params.top_k < row.values.size() ? params.top_k : 0;
  const bool typical = params.typical_p < 1;
  if (typical) {
    list_above(row, threshold_of(kWeightless), scan);
    keep_typical(params.typical_p);
    if (top_k > 0) keep_top(top_k);
  } else if (top_k > 0) {
    list_top(row, top_k, threshold_of(kWeightless), scan);
  } else if (params.top_p == 1 && params.min_p > 0) {
    list_above(row, threshold_of(std::max(std::ilogb(params.min_p) - 1, kWeightless)), scan);
  } else {
    list_share(row, params.top_p, scan);
  }
  if (typical || top_k > 0) whole_ = listed_weight();
  if (params.top_p < 1) keep_share(params.top_p);
  if (params.min_p > 0) keep_relative(params.min_p);
  return listed_;
}

std::span<const Candidate> CandidateSet::largest(LogitRow row, uint32_t count,
                                                 const VocabularyScan& scan) {
  list_top(row, count, kLowest, scan);
  std::sort(listed_.begin(), listed_.end(), [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  });
  return listed_;
}

void CandidateSet::set_scale(const Argmax& peak, float temperature) {
  max_ = peak.value;
  temperature_ = temperature;
  inverse_temperature_ = drawing::inverse_of(temperature);
}

// Finds the part first, by the sums of a scan, then the token in it.
TokenId CandidateSet::draw_unfiltered(LogitRow row, const VocabularyScan& scan, uint64_t random) {
  uint64_t target = high_half(random, weigh_parts(row, scan));
  size_t part = 0;
  while (target >= part_weights_[part]) target -= part_weights_[part++];
  const size_t first = part * kPartTokens;
  const LogitRow drawn = part_of(row, first);
  const std::span<float> values = std::span(values_).first(drawn.values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = drawn.allows(i) ? scaled(drawn.values[i]) : -arithmetic::kInfinity;
  }
  // Where all of them together weigh something and none does by itself: one that may be drawn.
  size_t last = 0;
  while (last + 1 < values.size() && values[last] == -arithmetic::kInfinity) ++last;
  scan.exp(values, values);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t weight = weight_of(values[i]);
    if (target < weight) return static_cast<TokenId>(first + i);
    target -= weight;
    if (weight > 0) last = i;
  }
  return static_cast<TokenId>(first + last);  // the scan's sum, a rounded one, was a bit larger
}

// The sum over all of them.
uint64_t CandidateSet::weigh_parts(LogitRow row, const VocabularyScan& scan) {
  part_weights_.clear();
  uint64_t whole = 0;
  for (size_t first = 0; first < row.values.size(); first += kPartTokens) {
    part_weights_.push_back(
        weight_of(scan.sum_exp(part_of(row, first), max_, inverse_temperature_)));
    whole += part_weights_.back();
  }
  return whole;
}

void CandidateSet::append(LogitRow row, size_t first, float threshold, const VocabularyScan& scan) {
  const size_t hits = scan.collect_above(part_of(row, first), threshold, hits_, values_);
  for (size_t i = 0; i < hits; ++i) {
    listed_.push_back({static_cast<TokenId>(first) + hits_[i], values_[i], 0});
  }
}

void CandidateSet::list_above(LogitRow row, float threshold, const VocabularyScan& scan) {
  listed_.clear();
  for (size_t first = 0; first < row.values.size(); first += kPartTokens) {
    append(row, first, threshold, scan);
  }
  exponentiate(scan);
}

// The threshold rises to the worst of the best `count` so far whenever enough have come together. A
// later token of the same logit has a higher id, so it is right to leave it out.
void CandidateSet::list_top(LogitRow row, uint32_t count, float threshold,
                            const VocabularyScan& scan) {
  listed_.clear();
  const size_t enough = count + std::max<size_t>(count, kPartTokens / 2);
  for (size_t first = 0; first < row.values.size(); first += kPartTokens) {
    append(row, first, threshold, scan);
    if (listed_.size() < enough) continue;
    keep_top(count);
    float worst = kHighest;
    for (const Candidate& candidate : listed_) worst = std::min(worst, candidate.logit);
    threshold = std::nextafter(worst, kHighest);
  }
  keep_top(count);
  exponentiate(scan);
}

// Lowers the threshold until what is listed reaches the share: the likeliest that do are among it
// then. In the end everything is listed, and the sum is theirs instead of the scan's.
void CandidateSet::list_share(LogitRow row, float share, const VocabularyScan& scan) {
  whole_ = weigh_parts(row, scan);
  for (const int exponent : {kFirstStep, kSecondStep, kLastStep}) {
    list_above(row, threshold_of(exponent), scan);
    if (share < 1 && listed_weight() >= share_of(whole_, share)) return;
  }
  list_above(row, threshold_of(kWeightless), scan);
  whole_ = listed_weight();
}

void CandidateSet::exponentiate(const VocabularyScan& scan) {
  for (size_t first = 0; first < listed_.size(); first += kPartTokens) {
    const size_t count = std::min(kPartTokens, listed_.size() - first);
    const std::span<float> values = std::span(values_).first(count);
    for (size_t i = 0; i < count; ++i) values[i] = scaled(listed_[first + i].logit);
    scan.exp(values, values);
    for (size_t i = 0; i < count; ++i) listed_[first + i].weight = weight_of(values[i]);
  }
}

uint64_t CandidateSet::listed_weight() const {
  uint64_t sum = 0;
  for (const Candidate& candidate : listed_) sum += candidate.weight;
  return sum;
}

// The last one to keep when they are taken in order until their weights reach `weight`. Halves the
// part in question again and again, so the time is linear.
CandidateSet::Ranked CandidateSet::last_of_weight(std::span<Ranked> part, uint64_t weight) {
  while (part.size() > 1) {
    const size_t half = part.size() / 2;
    std::nth_element(part.begin(), part.begin() + static_cast<ptrdiff_t>(half), part.end());
    uint64_t first = 0;
    for (const Ranked& ranked : part.first(half)) first += ranked.weight;
    if (first >= weight) {
      part = part.first(half);
    } else {
      weight -= first;
      part = part.subspan(half);
    }
  }
  return part.front();
}

// How far a token's information is from the mean, |-log p - H|, is how far its scaled logit is from
// their mean: the logarithm of the sum is in both.
void CandidateSet::keep_typical(float share) {
  const uint64_t whole = listed_weight();
  double mean = 0;
  for (const Candidate& c : listed_) {
    mean += static_cast<double>(c.weight) * double{scaled(c.logit)};
  }
  mean /= static_cast<double>(whole);
  const auto rank = [&](const Candidate& c) {
    return Ranked{-std::abs(double{scaled(c.logit)} - mean), c.weight, c.token};
  };
  ranking_.clear();
  for (const Candidate& c : listed_) ranking_.push_back(rank(c));
  const Ranked last = last_of_weight(ranking_, share_of(whole, share));
  std::erase_if(listed_, [&](const Candidate& c) { return last < rank(c); });
}

CandidateSet::Ranked CandidateSet::by_logit(const Candidate& candidate) {
  return {candidate.logit, candidate.weight, candidate.token};
}

void CandidateSet::rank_by_logit() {
  ranking_.clear();
  for (const Candidate& candidate : listed_) ranking_.push_back(by_logit(candidate));
}

void CandidateSet::keep_top(uint32_t count) {
  if (listed_.size() <= count) return;
  rank_by_logit();
  const auto last = ranking_.begin() + (count - 1);
  std::nth_element(ranking_.begin(), last, ranking_.end());
  std::erase_if(listed_, [&](const Candidate& c) { return *last < by_logit(c); });
}

void CandidateSet::keep_share(float share) {
  rank_by_logit();
  const Ranked last = last_of_weight(ranking_, share_of(whole_, share));
  std::erase_if(listed_, [&](const Candidate& c) { return last < by_logit(c); });
}

void CandidateSet::keep_relative(float share) {
  uint64_t best = 0;
  for (const Candidate& candidate : listed_) best = std::max(best, candidate.weight);
  const uint64_t least = share_of(best, share);
  std::erase_if(listed_, [&](const Candidate& c) { return c.weight < least; });
}

}  // namespace skein
