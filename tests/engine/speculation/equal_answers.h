// Requests of every kind, with guesses of every kind, against the same requests without any: the
// answers must be the same, tokens, log-probabilities and ends.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/isa.h"
#include "engine/answer.h"
#include "engine/even_clock.h"
#include "engine/loading/loaded_model.h"
#include "engine/loop/batch_inference_engine.h"

namespace skein::testing {

// Who guesses: nobody, the engine, the engine with a draft model, which is the same one in another
// precision, and three adversaries whose guesses count as certain.
enum class Guesser : uint8_t { kNobody, kNgram, kModel, kRandom, kAlwaysRight, kAlwaysWrong };
inline constexpr Guesser kGuessers[] = {Guesser::kNgram, Guesser::kModel, Guesser::kRandom,
                                        Guesser::kAlwaysRight, Guesser::kAlwaysWrong};

struct EqualReport {
  uint32_t requests = 0;
  uint32_t different = 0;
  uint32_t stop_texts = 0;  // answers that could end with one, and did stop
  std::string first_difference;
  SchedulerStats stats;     // of all runs with guesses
  SchedulerStats by_model;  // of that with a draft model
};

// Greedy and drawn, with penalties, biases, log-probabilities, minimal lengths, stop texts and
// forms; prompts share beginnings or repeat themselves; two tenants; a pool that is too small for
// the batch.
class EqualAnswers {
 public:
  EqualAnswers(const std::string& model_path, std::optional<CpuIsa> isa, uint32_t requests,
               uint32_t longest);

  // By everyone who guesses, one after the other.
  EqualReport run();

 private:
  std::vector<Answer> answers_of(Guesser guesser, SchedulerStats& stats);
  std::unique_ptr<StepRunner> runner_for(Guesser guesser);
  GenerationRequest request(uint32_t number) const;
  Answer read_answer(RequestHandle& handle, uint32_t number) const;
  std::vector<TokenId> guess(Guesser guesser, RequestId id, uint32_t position) const;

  static constexpr uint32_t kBatch = 12;
  static constexpr uint32_t kBlocks = 10;
  static constexpr uint32_t kStepTokens = 48;

  ComputePool pool_{1};
  EvenClock clock_;
  std::shared_ptr<LoadedModel> model_;
  std::shared_ptr<LoadedModel> draft_;
  uint32_t requests_;
  uint32_t longest_;
  std::vector<std::shared_ptr<const Form>> forms_;
  std::vector<Answer> expected_;
};

}  // namespace skein::testing
