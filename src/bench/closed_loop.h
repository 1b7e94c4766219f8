// A closed loop over a service: so many requests in flight at any moment, until all are done.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>

#include "base/clock.h"
#include "bench/result.h"
#include "bench/run_benchmark.h"

namespace skein::bench {

// Requests are greedy and run past stop tokens. `on_tokens` gets the number so far, on the calling
// thread. After `cancel` became true what runs is cancelled. The long prompts end with the
// requests.
LoadRun run_closed_loop(InferenceService& service, std::span<const BenchRequest> requests,
                        uint32_t concurrency, const Clock& clock,
                        const std::function<void(uint64_t)>& on_tokens,
                        const std::atomic<bool>& cancel, const LongPrompts& long_prompts = {});

}  // namespace skein::bench
