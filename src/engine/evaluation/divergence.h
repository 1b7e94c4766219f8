// How far the distributions of one run lie from those of a reference, over many positions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/ids.h"

namespace skein {

class Divergence {
 public:
  struct Summary {
    size_t positions = 0;
    double mean_kl = 0;  // of KL(reference || measured), in nats
    double p99_kl = 0;
    double max_kl = 0;
    double same_top = 0;    // share of positions with the same likeliest token
    double perplexity = 0;  // of the tokens that really came next; 0 where none was given
    double reference_perplexity = 0;
  };

  // Logits of one position, as many in both; `next` is the token that really came, kNoToken where
  // there is none.
  void add(std::span<const float> reference, std::span<const float> measured, TokenId next);
  Summary summary() const;

 private:
  std::vector<double> kl_;
  size_t same_top_ = 0;
  size_t predicted_ = 0;
  double log_loss_ = 0;
  double reference_log_loss_ = 0;
};

}  // namespace skein
