// run_benchmark: one request at a time, then ever more of them at once, over the same prompts.
//
// Whatever can answer is measured: a model (model_target.h), or a stand-in for one in tests.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "bench/result.h"
#include "engine/loop/inference_service.h"

namespace skein::bench {

struct BenchRequest {
  std::vector<TokenId> prompt;
  uint32_t max_tokens = 0;
  float temperature = 0;  // 0: the likeliest tokens; else drawn, by a seed of the request's number
};

// The prompts that come in between, one at a time, a new one as soon as the last has its answer of
// one token; by their number. Empty: none do.
using LongPrompts = std::function<std::vector<TokenId>(uint32_t number)>;

class BenchTarget {
 public:
  virtual ~BenchTarget() = default;

  // The baseline: one request alone, past any stop token. on_token() for each; ends early when
  // `cancel` becomes true. The number of prompt tokens that were found computed.
  virtual Result<uint32_t> generate(const BenchRequest& request,
                                    const std::function<void()>& on_token,
                                    const std::atomic<bool>& cancel) = 0;

  // A service with an empty cache that runs `batch` requests at a time and holds any `batch` of
  // `requests`.
  virtual Result<InferenceService::Owned<InferenceService>> start(
      uint32_t batch, std::span<const BenchRequest> requests) = 0;
};

// Told what happens, on the calling thread.
class BenchObserver {
 public:
  virtual ~BenchObserver() = default;
  virtual void begins(const char* mode, uint32_t concurrency, uint64_t tokens) = 0;
  virtual void got_tokens(uint64_t tokens_so_far) = 0;
  virtual void ended(const BenchmarkResult& result) = 0;
};

struct BenchOptions {
  std::vector<uint32_t> concurrencies = {1, 2, 4, 8, 16, 32, 64};
  uint32_t requests = 20;  // per level, at least; rounded up so that every place is used equally
  uint32_t rounds = 1;     // of every level, one after the other; the median counts
  bool single = true;      // the baseline: one at a time
  LongPrompts long_prompts = {};  // if any: every level once more, while these keep arriving
};

// Requests of a level: a multiple of the concurrency, so that no level ends in a thin tail.
uint32_t requests_at(uint32_t concurrency, uint32_t least);

// The largest of them.
uint32_t requests_needed(const BenchOptions& options);

// `requests` has at least requests_needed() of them; a level uses the first ones. Results are the
// baseline's, if wanted, then one per level, or two; after `cancel` became true those that there
// are, the last one of what had been done by then. An error of the target or of every request ends
// it.
Result<std::vector<BenchmarkResult>> run_benchmark(BenchTarget& target,
                                                   std::span<const BenchRequest> requests,
                                                   const BenchOptions& options, const Clock& clock,
                                                   BenchObserver& observer,
                                                   const std::atomic<bool>& cancel);

}  // namespace skein::bench
