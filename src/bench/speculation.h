// What speculation is worth: three kinds of requests, with and without it, in turns.
//
// Answers are compared token by token: one that differs ends the measurement with an error. Every
// request is a tenant of its own, so that nothing is guessed from an earlier round's answer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "engine/loop/inference_service.h"

namespace skein::bench {

// A question, and how its answer begins: the rest is up to the model.
struct SpeculationItem {
  std::string question;
  std::string beginning;
};

struct SpeculationWorkload {
  std::string_view name;
  float temperature = 0;
  std::vector<SpeculationItem> items;
};

// chat: open questions, drawn at temperature 0.7; edit: a file of code with one change, greedy;
// quote: a document word for word, greedy.
std::vector<SpeculationWorkload> speculation_workloads();

struct SpeculationRequest {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  uint32_t max_tokens = 0;
};

// Of one level of load; tokens a second are the median over the rounds.
struct SpeculationResult {
  double off_tokens_per_second = 0;
  double on_tokens_per_second = 0;
  double ratio = 0;      // the median of the rounds' ratios
  double cpu_ratio = 0;  // likewise, of the CPU time that the process took over the same stretches
  uint64_t tokens = 0;
  uint64_t drafted_tokens = 0;
  uint64_t accepted_tokens = 0;
};

// `requests` over and over, `concurrency` at a time, in `rounds` of one run without and one with
// `how`. Of one stream the time counts from the first token to the last, of many all of it.
Result<SpeculationResult> measure_speculation(InferenceService& service,
                                              std::span<const SpeculationRequest> requests,
                                              uint32_t concurrency, uint32_t rounds,
                                              Speculation how, const Clock& clock);

}  // namespace skein::bench
