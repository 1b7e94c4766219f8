// CandidateSet: the tokens of a row that a draw may still take.
//
// Few of a vocabulary's tokens have weight, so only those above a threshold are listed; it is low
// enough that no filter could have kept what lies below it. Weights are whole numbers, so sums are
// exact in any order, and no result depends on how they were computed. One thread at a time;
// nothing is allocated once prepare() has seen the vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/scan.h"
#include "base/ids.h"
#include "engine/sampling_params.h"

namespace skein {

// The largest logit of a row, and whether all of them are numbers.
using Peak = VocabularyScan::Argmax;

struct Candidate {
  TokenId token = kNoToken;
  float logit = 0;
  uint64_t weight = 0;
};

class CandidateSet {
 public:
  // The weight of a row's likeliest token. What would round to 0 cannot be drawn: less than one
  // part in 4 * 10^12 of the likeliest.
  static constexpr uint64_t kUnit = uint64_t{1} << 42;

  void prepare(size_t vocab);

  // Lists what the filters of `params` leave of a row whose largest logit, a finite one, is `peak`;
  // typical_p, top_k, top_p and min_p apply in this order, each to what the one before left. Among
  // equal logits the lower id counts as the likelier. temperature > 0.
  void fill(std::span<const float> row, const Peak& peak, const SamplingParams& params,
            const VocabularyScan& scan);

  // In the order of ids; never empty.
  std::span<const Candidate> listed() const { return listed_; }
  uint64_t listed_weight() const;
  // What tokens that are not listed weigh together, where no filter has taken them out.
  uint64_t unlisted_weight() const { return unlisted_weight_; }

  // The token at `target`, which is below the sum of both weights: listed ones come first. `row`
  // and `peak` are those of fill().
  TokenId at(uint64_t target, std::span<const float> row, const Peak& peak) const;

  // The `count` largest logits of a row above -inf: likeliest first. For a row without fill().
  std::span<const Candidate> largest(std::span<const float> row, uint32_t count,
                                     const VocabularyScan& scan);

 private:
  void list_above(std::span<const float> row, float threshold, const VocabularyScan& scan);
  void list_top(std::span<const float> row, uint32_t count, float threshold,
                const VocabularyScan& scan);
  void list_share(std::span<const float> row, const Peak& peak, float share,
                  const VocabularyScan& scan);
  void append(std::span<const float> row, size_t first, size_t count, float threshold,
              const VocabularyScan& scan);
  void weigh();

  void keep_typical(float share);
  void keep_top(uint32_t count);
  void keep_share(float share);
  void keep_relative(float share);

  double scaled(float logit) const { return (double{logit} - max_) * inverse_temperature_; }
  float threshold_of(double weight) const;

  double max_ = 0;
  double temperature_ = 1;
  double inverse_temperature_ = 1;
  std::vector<Candidate> listed_;
  std::vector<Candidate> ranking_;  // a copy to be put out of order
  std::vector<TokenId> hits_;       // of one part of a row
  std::vector<float> hit_logits_;   // likewise
  float threshold_ = 0;             // listed are the logits from it on
  uint64_t unlisted_weight_ = 0;
};

}  // namespace skein
