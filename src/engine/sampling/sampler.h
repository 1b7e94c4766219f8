// Sampler: logits of one row to one token.
//
// Deterministic: the token depends on the logits, the parameters, the tokens before it and the
// number (seed, choice, position), and on nothing else. The position counts from the first token of
// the prompt, so an answer that is cut and whose prompt and tokens so far become the prompt of
// another request goes on as it would have; but presence and frequency penalties and min_tokens
// count the answer's tokens alone. Greedy is exact: the largest logit, the
// lowest id among equals. The order of what is applied: allowed, banned, bias and
// min_tokens; penalties; the form; temperature; typical_p, top_k, top_p, min_p; the draw.
//
// In a form, a stop token may be drawn exactly where the form may end. min_tokens and ignore_eos
// keep it from being drawn there as long as anything else can follow; where nothing else can, the
// answer ends.
//
// What a form allows next may take long to find. Who samples for many in a step says how much work
// it can wait for (SamplerScratch); a token that takes more is put off, drawn beside the steps
// (draw_beside) and given when it is asked for again. It is the same token either way.
//
// Thread-safety: rows may be sampled at the same time by different threads, each with a scratch of
// its own; a RequestSampler is used by one thread at a time. Sampling allocates nothing once a
// scratch has seen its vocabulary, but for the text that a form remembers; accept() allocates only
// when the distinct tokens that penalties must know outgrow their table, which doubles then.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/draw.h"
#include "backend/vocabulary_scan.h"
#include "base/ids.h"
#include "base/status.h"
#include "engine/forms/form_place.h"
#include "engine/sampling/candidates.h"
#include "engine/sampling/sampling_params.h"
#include "engine/sampling/token_counts.h"
#include "sched/types.h"

namespace skein {

struct TokenLogprob {
  TokenId token = kNoToken;
  float logprob = 0;
};

struct SampledToken {
  TokenId token = kNoToken;
  bool stop = false;     // one of the stop ids, and they count; or none, and the form ends here
  bool last = false;     // the answer is complete with it, by its form
  bool put_off = false;  // there is none yet: it takes longer than whoever asks can wait
  float logprob = 0;     // with SamplingParams::logprobs
  uint32_t top_count = 0;
  std::array<TokenLogprob, kMaxTopLogprobs> top;  // likeliest first

  // The token itself, then the likeliest: how many were written.
  size_t write_logprobs(std::span<TokenLogprob, 1 + kMaxTopLogprobs> out) const {
    out[0] = {token, logprob};
    std::copy_n(top.begin(), top_count, out.begin() + 1);
    return 1 + top_count;
  }
};

// Memory that one thread samples with, for any number of requests. For each token it can wait for
// as much work on a form as `form_work` says, and for what `more_work`, which outlives it, has
// left.
class SamplerScratch {
 public:
  static constexpr uint64_t kAnyWork = UINT64_MAX;
  explicit SamplerScratch(VocabularyScan scan, uint64_t form_work = kAnyWork,
                          grammar::SharedWork* more_work = nullptr)
      : scan_(scan), form_work_(form_work), more_work_(more_work) {}
  // One for a thread that can wait.
  SamplerScratch patient() const { return SamplerScratch(scan_); }

 private:
  friend class RequestSampler;
  VocabularyScan scan_;
  uint64_t form_work_;
  grammar::SharedWork* more_work_;
  std::vector<float> row_;         // the logits after edits
  grammar::TokenMask allowed_{0};  // the tokens that the form allows
  CandidateSet candidates_;
};

// The memory of a request's sampling: its parameters and the counts of its tokens.
class RequestSampler {
 public:
  // `params` are valid for `vocab`, which is the form's, too. The prompt counts for the repetition
  // penalty. No form: any token may be drawn. `thought_budget` as FormPlace takes it.
  RequestSampler(SamplingParams params, uint32_t vocab, std::span<const TokenId> prompt,
                 std::shared_ptr<const Form> form = nullptr,
                 std::optional<uint32_t> thought_budget = {});

  const SamplingParams& params() const { return params_; }

  // The token at `position` of prompt and answer, which is not remembered until accept().
  // kInternal, naming token and value, for a logit that is NaN or +inf where it counts: of a token
  // that may be drawn, or of any with logprobs. kInvalidArgument when the parameters leave no token
  // to draw, or none that the form allows; kOutOfRange when the form takes more work than it may.
  // `ahead`: tokens before it that were not accepted yet. May be put off, where there is a form.
  Result<SampledToken> sample(std::span<const float> logits, uint32_t position,
                              SamplerScratch& scratch, std::span<const TokenId> ahead = {}) const;
  // Whether the largest logit is all that sample() would look at.
  bool takes_peak(uint32_t position, std::span<const TokenId> ahead = {}) const;
  // Whether draw_at() is all that sample() would do, at every position of the answer, whatever the
  // tokens before it are.
  bool only_draws() const;
  // The draw of the token at `position`.
  Draw draw_at(uint32_t position) const;
  // The same token as sample(), where takes_peak() or only_draws(), from what was found: of a row
  // whose largest logit is finite.
  SampledToken sample_found(TokenId token) const;
  void accept(TokenId token);

  // For a token that was put off. Between the two the other members are the caller's of the second
  // one, on its thread, and sample() puts off again on any.
  void begin_beside() { form_->is_drawn_beside.store(true, std::memory_order_relaxed); }
  bool is_drawn_beside() const {
    return form_ != nullptr && form_->is_drawn_beside.load(std::memory_order_acquire);
  }
  void draw_beside(std::span<const float> logits, uint32_t position, SamplerScratch& scratch) const;

  // Nothing without a form. Any thread.
  std::optional<FormUse> form_use() const;

 private:
  // What was drawn beside the steps.
  struct Drawn {
    uint32_t position;
    Result<SampledToken> token;
  };
  // A token that was drawn, and where the answer would stand behind it.
  struct Next {
    TokenId token;
    FormPlace place;
  };
  // Where the answer stands in its form: after the accepted tokens, and further.
  struct InForm {
    FormPlace place;
    // Behind it, each after those before it: more than one where drafts came true. So accept()
    // never asks the form itself, which may take long and which another thread may have.
    std::vector<Next> next = {};
    bool lost = false;  // a token was accepted that the form does not allow
    std::optional<Drawn> drawn = {};
    std::atomic<bool> is_drawn_beside = false;
    // For who wants to know.
    std::atomic<grammar::Zone> zone = grammar::Zone::kBound;
    std::atomic<uint32_t> masks = 0;
    std::atomic<uint64_t> slowest_mask_ns = 0;
  };

  Result<SampledToken> sample_now(std::span<const float> logits, uint32_t position,
                                  SamplerScratch& scratch, std::span<const TokenId> ahead) const;
  bool has_penalties() const;
  bool is_stop(TokenId token) const;
  const grammar::TokenMask* mask_at(FormPlace& place) const;
  const FormPlace& place_behind_next() const {
    return form_->next.empty() ? form_->place : form_->next.back().place;
  }
  Status draw_within_work(std::span<const float> row, uint32_t position, SamplerScratch& scratch,
                          std::span<const TokenId> ahead, SampledToken& out) const;
  Status draw_in_form(std::span<const float> row, uint32_t position, SamplerScratch& scratch,
                      std::span<const TokenId> ahead, SampledToken& out) const;
  Status draw_in_place(FormPlace& place, std::span<const float> row, uint32_t position,
                       SamplerScratch& scratch, SampledToken& out) const;
  TokenId draw_unmasked(const FormPlace& place, std::span<const float> row, uint32_t position,
                        bool stops, SamplerScratch& scratch) const;
  const uint64_t* allowed_by(const grammar::TokenMask& mask, bool stops,
                             SamplerScratch& scratch) const;
  TokenId draw(LogitRow row, const Argmax& peak, uint32_t position, SamplerScratch& scratch) const;
  bool holds_off_stops(uint32_t position) const;
  bool leaves_as_is(uint32_t position, std::span<const TokenId> ahead) const;
  std::span<const float> edited(std::span<const float> logits, uint32_t position,
                                SamplerScratch& scratch, std::span<const TokenId> ahead) const;
  void penalize(std::span<float> row, const TokenCounts& counts) const;
  Status add_top_logprobs(std::span<const float> logits, SamplerScratch& scratch, SampledToken& out,
                          double& log_sum) const;

  SamplingParams params_;
  uint32_t vocab_;
  uint64_t first_stop_;  // position from which on stop tokens may be drawn
  TokenCounts counts_;
  std::unique_ptr<InForm> form_;  // nullptr: none
};

}  // namespace skein
