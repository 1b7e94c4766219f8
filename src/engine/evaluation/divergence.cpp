#include "engine/evaluation/divergence.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace skein {
namespace {

// A logit less this is a log-probability.
double log_sum_exp(std::span<const float> logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  return max + std::log(sum);
}

ptrdiff_t top_of(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

}  // namespace

void Divergence::add(std::span<const float> reference, std::span<const float> measured,
                     TokenId next) {
  SKEIN_CHECK(reference.size() == measured.size() && !reference.empty(),
              "{} logits against {} of the reference", measured.size(), reference.size());
  const double reference_sum = log_sum_exp(reference);
  const double measured_sum = log_sum_exp(measured);
  double kl = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = reference[i] - reference_sum;
    const double p = std::exp(log_p);
    if (p > 0) kl += p * (log_p - (measured[i] - measured_sum));
  }
  kl_.push_back(kl);
  same_top_ += top_of(reference) == top_of(measured) ? 1 : 0;
  if (next == kNoToken) return;
  ++predicted_;
  log_loss_ += measured_sum - measured[static_cast<size_t>(next)];
  reference_log_loss_ += reference_sum - reference[static_cast<size_t>(next)];
}

Divergence::Summary Divergence::summary() const {
  Summary out;
  out.positions = kl_.size();
  if (kl_.empty()) return out;
  std::vector<double> sorted = kl_;
  std::sort(sorted.begin(), sorted.end());
  for (const double kl : sorted) out.mean_kl += kl / static_cast<double>(sorted.size());
  const auto rank = static_cast<size_t>(std::ceil(0.99 * static_cast<double>(sorted.size())));
  out.p99_kl = sorted[rank - 1];
  out.max_kl = sorted.back();
  out.same_top = static_cast<double>(same_top_) / static_cast<double>(sorted.size());
  if (predicted_ == 0) return out;
  out.perplexity = std::exp(log_loss_ / static_cast<double>(predicted_));
  out.reference_perplexity = std::exp(reference_log_loss_ / static_cast<double>(predicted_));
  return out;
}

}  // namespace skein
