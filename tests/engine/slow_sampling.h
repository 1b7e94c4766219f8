// What sampling means, written for reading: doubles, a sort of the whole vocabulary, one filter
// after the other.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <vector>

#include "engine/sampling/sampling_params.h"

namespace skein::testing {

// The logit of a token that cannot be drawn.
inline constexpr float kOut = -std::numeric_limits<float>::infinity();

using Distribution = std::map<TokenId, double>;  // only what can be drawn; sums to 1

inline void normalize(Distribution& p) {
  double sum = 0;
  for (const auto& [token, share] : p) sum += share;
  for (auto& [token, share] : p) share /= sum;
}

// Keeps tokens in the order of `key`, smallest first and the lower id among equals, until their
// shares reach `share`.
template <class Key>
void keep_until(Distribution& p, double share, Key key) {
  std::vector<std::pair<double, TokenId>> order;
  for (const auto& [token, unused] : p) order.emplace_back(key(token), token);
  std::sort(order.begin(), order.end());
  double sum = 0;
  Distribution kept;
  for (const auto& [unused, token] : order) {
    kept[token] = p[token];
    sum += p[token];
    if (sum >= share) break;
  }
  p = kept;
  normalize(p);
}

// The filters of `params` over `row`. `slack` multiplies the shares at which they cut: where it
// makes a difference the cut is closer than float32 sums can tell.
inline Distribution slow_distribution(std::span<const float> row, const SamplingParams& params,
                                      double slack = 1) {
  const double max = *std::max_element(row.begin(), row.end());
  Distribution p;
  for (size_t i = 0; i < row.size(); ++i) {
    const double share = std::exp((row[i] - max) / params.temperature);
    if (share > 0) p[static_cast<TokenId>(i)] = share;
  }
  normalize(p);
  const auto likeliest = [&](TokenId t) { return -double{row[static_cast<size_t>(t)]}; };
  if (params.typical_p < 1) {
    double entropy = 0;
    for (const auto& [token, share] : p) entropy -= share * std::log(share);
    const Distribution all = p;
    keep_until(p, params.typical_p * slack, [&](TokenId token) {
      // Equal shares must stay equal, whatever the logarithm does to them.
      return std::round(std::abs(-std::log(all.at(token)) - entropy) * 1e10);
    });
  }
  if (params.top_k > 0 && params.top_k < p.size()) {
    std::vector<std::pair<double, TokenId>> order;
    for (const auto& [token, unused] : p) order.emplace_back(likeliest(token), token);
    std::sort(order.begin(), order.end());
    for (size_t i = params.top_k; i < order.size(); ++i) p.erase(order[i].second);
    normalize(p);
  }
  if (params.top_p < 1) keep_until(p, params.top_p * slack, likeliest);
  if (params.min_p > 0) {
    double best = 0;
    for (const auto& [token, share] : p) best = std::max(best, share);
    std::erase_if(p, [&](const auto& item) { return item.second < params.min_p * slack * best; });
    normalize(p);
  }
  return p;
}

}  // namespace skein::testing
