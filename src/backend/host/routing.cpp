#include "backend/host/routing.h"

#include <algorithm>

#include "backend/arithmetic.h"

namespace skein {
namespace {

void choose(std::span<const float> logits, std::span<uint32_t> experts) {
  for (size_t j = 0; j < experts.size(); ++j) {
    const auto chosen = experts.first(j);
    size_t best = logits.size();
    for (size_t e = 0; e < logits.size(); ++e) {
      if (std::find(chosen.begin(), chosen.end(), e) != chosen.end()) continue;
      if (best == logits.size() || logits[e] > logits[best]) best = e;
    }
    experts[j] = static_cast<uint32_t>(best);
  }
}

float chain(std::span<const float> values) {
  float sum = 0;
  for (const float value : values) sum = sum + value;
  return sum;
}

}  // namespace

void route_row(std::span<const float> logits, RouterKind kind, std::span<uint32_t> experts,
               std::span<float> weights) {
  choose(logits, experts);
  const float max = logits[experts[0]];
  for (size_t j = 0; j < experts.size(); ++j) {
    weights[j] = arithmetic::exp(logits[experts[j]] - max);
  }
  float total = 0;
  if (kind == RouterKind::kTopThenSoftmax) {
    total = chain(weights);
  } else {
    total = arithmetic::sum_of(logits.size(),
                               [&](size_t e) { return arithmetic::exp(logits[e] - max); });
  }
  for (float& weight : weights) weight = weight / total;
  if (kind == RouterKind::kSoftmaxThenTopNormalized) {
    total = chain(weights);
    for (float& weight : weights) weight = weight / total;
  }
}

}  // namespace skein
