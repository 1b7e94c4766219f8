// CandidateSet: the tokens of a row that a draw (backend/draw.h) may take, and the draw.
//
// Few of a vocabulary's tokens have weight, so filters list only those above a threshold and lower
// it when it turns out that they could have kept more. No result depends on how it was found. What
// would round to a weight of 0 cannot be drawn: less than one part in 4 * 10^12 of the likeliest.
// One thread at a time; nothing is allocated once prepare() has seen the vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/draw.h"
#include "backend/vocabulary_scan.h"
#include "base/ids.h"
#include "engine/sampling/sampling_params.h"

namespace skein {

// The largest logit of a row, and whether all of them are numbers.
using Argmax = VocabularyScan::Argmax;

struct Candidate {
  TokenId token = kNoToken;
  float logit = 0;
  uint64_t weight = 0;
};

class CandidateSet {
 public:
  void prepare(size_t vocab);

  // The token that 64 random bits draw from what the filters of `params` leave of a row whose
  // largest logit, a finite one, is `peak`. temperature > 0.
  TokenId draw(LogitRow row, const Argmax& peak, const SamplingParams& params,
               const VocabularyScan& scan, uint64_t random);

  // The candidates that draw() draws from: typical_p, top_k, top_p and min_p apply in this order,
  // each to what the one before left. Among equal logits the lower id counts as the likelier. In
  // the order of ids; never empty.
  std::span<const Candidate> filter(LogitRow row, const Argmax& peak, const SamplingParams& params,
                                    const VocabularyScan& scan);

  // The `count` largest logits of a row above -inf: likeliest first.
  std::span<const Candidate> largest(LogitRow row, uint32_t count, const VocabularyScan& scan);

 private:
  // Filters order candidates by this: the larger key first, then the lower id.
  struct Ranked {
    double key = 0;
    uint64_t weight = 0;
    TokenId token = kNoToken;
    bool operator<(const Ranked& other) const {
      return key != other.key ? key > other.key : token < other.token;
    }
  };
  static Ranked by_logit(const Candidate& candidate);
  static Ranked last_of_weight(std::span<Ranked> part, uint64_t weight);
  void rank_by_logit();

  void set_scale(const Argmax& peak, float temperature);
  TokenId draw_unfiltered(LogitRow row, const VocabularyScan& scan, uint64_t random);
  uint64_t weigh_parts(LogitRow row, const VocabularyScan& scan);
  void list_above(LogitRow row, float threshold, const VocabularyScan& scan);
  void list_top(LogitRow row, uint32_t count, float threshold, const VocabularyScan& scan);
  void list_share(LogitRow row, float share, const VocabularyScan& scan);
  void append(LogitRow row, size_t first, float threshold, const VocabularyScan& scan);
  void exponentiate(const VocabularyScan& scan);
  uint64_t listed_weight() const;

  void keep_typical(float share);
  void keep_top(uint32_t count);
  void keep_share(float share);
  void keep_relative(float share);

  float scaled(float logit) const { return (logit - max_) * inverse_temperature_; }
  float threshold_of(int exponent) const {
    return drawing::threshold_of(max_, temperature_, exponent);
  }

  float max_ = 0;
  float temperature_ = 1;
  float inverse_temperature_ = 1;
  std::vector<Candidate> listed_;
  std::vector<Ranked> ranking_;
  uint64_t whole_ = 0;                  // what top_p is a share of
  std::vector<uint64_t> part_weights_;  // of the row's parts
  std::vector<TokenId> hits_;           // of one part
  std::vector<float> values_;           // likewise
};

}  // namespace skein
