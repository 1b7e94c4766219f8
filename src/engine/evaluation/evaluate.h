// Logits of many id lists, several lists at a time through the model.
//
//   Evaluator evaluator(model);
//   SKEIN_TRY(evaluator.run(lists, {.all = true}, [&](const Evaluator::Row& row) { ... }));
//
// The logits of a list do not depend on the lists beside it (model/decoder.h). Not thread-safe; the
// model's decoder is its own meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "engine/loading/loaded_model.h"

namespace skein {

class Evaluator {
 public:
  struct Options {
    bool all = false;     // logits of every position, not of the last one alone
    uint32_t greedy = 0;  // then that many likeliest tokens, one after the other
  };

  // Logits of one position, valid during the call. Positions of a list come in order; those of
  // different lists may alternate.
  struct Row {
    size_t list = 0;
    uint32_t position = 0;  // of the token that the logits follow; generated tokens count on
    std::span<const float> logits;
  };
  using OnRow = std::function<void(const Row& row)>;

  explicit Evaluator(LoadedModel& model) : model_(model) {}

  // Lists that are empty, hold an id outside the vocabulary or go beyond the context with what is
  // to be generated are refused, with the list's and the id's index.
  Status check(std::span<const std::vector<TokenId>> lists, const Options& options) const;

  // Checks, then computes. Rows come for the asked positions and for every generated token but the
  // last.
  Status run(std::span<const std::vector<TokenId>> lists, const Options& options,
             const OnRow& on_row);

 private:
  struct Running;
  Status run_group(std::span<const std::vector<TokenId>> lists, size_t first,
                   const Options& options, const OnRow& on_row);
  void step(std::span<Running> group, const Options& options, KvCache& cache, const OnRow& on_row);
  bool take(const Running& running, const Options& options);
  void deliver(Running& running, uint32_t position, std::span<const float> logits,
               const OnRow& on_row);

  LoadedModel& model_;
  std::vector<TokenId> tokens_;  // the batch
  std::vector<Sequence> sequences_;
  std::vector<uint32_t> logit_rows_;
};

// How far the distributions of one run lie from those of a reference, over many positions.
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
