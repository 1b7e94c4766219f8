// DraftModel: a small model that says what a large one with the same vocabulary may draw next.
//
// It draws with the request's own sampler, which is to say with the parameters and the random
// number of each position that the large model's token will be drawn with: where both see
// the same likelihoods they draw the same token, greedy or not. Nothing it says changes a token.
//
// How many it makes follows from how many came true and from what a pass of it costs beside one of
// the large model, by the weights that either reads: integers, and no clock. A call computes at
// most as many rows as the model's limits hold in a pass and kMostDrafts passes; a long prompt is
// read over several calls, and there are no guesses before its end.
//
// Used by one thread, which computes with the pool. What a backend throws passes through; then it
// is of no use any more.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/compute_pool.h"
#include "base/ids.h"
#include "base/status.h"
#include "engine/loading/loaded_model.h"
#include "engine/sampling/sampler.h"

namespace skein {

class DraftModel {
 public:
  static constexpr uint32_t kMostDrafts = 7;

  // What it has read of a request's text, and how its guesses fared. Gives its blocks back.
  class Reader {
   public:
    Reader() = default;
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    ~Reader();

   private:
    friend class DraftModel;
    void learn(std::span<const TokenId> text);
    uint32_t wanted(uint32_t cost_milli);

    std::shared_ptr<std::vector<BlockId>> free_;  // where the blocks are from
    std::vector<BlockId> blocks_;
    uint32_t computed_ = 0;         // tokens of the text and the guesses that the cache holds
    uint32_t guessed_at_ = 0;       // the text was as long as that when the guesses were made
    std::vector<TokenId> guesses_;  // the latest ones
    uint32_t come_true_ = 700;      // in 1/1000
    uint32_t waited_ = 0;           // calls without a guess, since it did not pay
  };

  // A request whose next tokens are to be guessed.
  struct Wish {
    Reader* reader;
    std::span<const TokenId> text;   // prompt and answer
    std::span<const TokenId> ahead;  // its last tokens, those that the sampler has not accepted yet
    const RequestSampler* sampler;
    // Guesses from elsewhere, with their odds; others take their place where those are likelier.
    std::vector<TokenId>* drafts;
    std::vector<uint16_t>* odds;
  };

  // `model` computes with `pool`; `cost_milli`: what a pass of it costs, in 1/1000 of a step of the
  // large model. kResourceExhausted where the cache cannot be had.
  static Result<std::unique_ptr<DraftModel>> create(std::shared_ptr<LoadedModel> model,
                                                    uint32_t blocks, uint32_t cost_milli,
                                                    ComputePool& pool);
  // Whether what `draft` draws can stand for a token of `target`: the same ids for the same bytes.
  // Names both, with both numbers.
  static Status check_vocabulary(const LoadedModel& draft, const std::string& draft_name,
                                 const LoadedModel& target, const std::string& target_name);
  // What a pass of `draft` costs, in 1/1000 of one of `target`.
  static uint32_t cost_milli(const LoadedModel& draft, const LoadedModel& target);

  void guess(std::span<const Wish> wishes);

 private:
  // A wish in the making.
  struct Draft {
    const Wish* wish = nullptr;
    uint32_t count = 0;          // of guesses that are wanted
    std::vector<TokenId> ahead;  // of the sampler: tokens that are known, then guesses
    size_t logit = SIZE_MAX;     // its row in the latest pass; SIZE_MAX: none
    bool ended = false;
  };

  DraftModel(std::shared_ptr<LoadedModel> model, std::unique_ptr<KvCache> cache,
             uint32_t cost_milli, ComputePool& pool);
  void choose(std::span<const Wish> wishes);
  bool grow(Reader& reader, uint64_t tokens);
  void read_texts();
  bool read_guesses();
  void add_rows(Draft& draft, std::span<const TokenId> tokens, bool samples);
  void compute();
  void draw(Draft& draft, const HostRows& logits, SamplerScratch& scratch) const;
  static void write(const Draft& draft);

  std::shared_ptr<LoadedModel> model_;
  std::unique_ptr<KvCache> cache_;
  uint32_t cost_milli_;
  ComputePool& pool_;
  std::shared_ptr<std::vector<BlockId>> free_;
  std::vector<SamplerScratch> scratches_;  // one per compute thread

  std::vector<Draft> drafts_;
  // The pass that is being made.
  std::vector<TokenId> tokens_;
  std::vector<Sequence> sequences_;
  std::vector<uint32_t> logit_rows_;
};

}  // namespace skein
