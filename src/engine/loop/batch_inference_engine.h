// BatchInferenceEngine: continuous batching for one model, on a thread of its own.
//
// The engine's thread owns scheduler, model, KV bytes and samplers outright (engine_core.h); values
// cross its border and nothing else: messages in, token events out, a snapshot per step.
//
// A row that fails ends alone. A step that throws is run again row by row, and only rows that fail
// alone end with an error. A step that does not come back within the step timeout makes the engine
// kHung: everything that runs or waits ends with kError and kDeadlineExceeded, and what the step
// brings when it does come back is ignored. However long a step takes, nobody waits beyond its own
// deadline. An engine whose runner is lost becomes kFailed: requests that have sent nothing go to
// Options::adopt, the others end with an error.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engine/loop/inference_service.h"
#include "engine/loop/step_runner.h"
#include "engine/loop/watchdog.h"
#include "sched/scheduler.h"

namespace skein {

class EngineCore;

// A request that its engine could not go on with.
struct Orphan {
  RequestId id;
  GenerationRequest request;  // timeout_us: what is left of it
  std::shared_ptr<TokenStream> stream;
};

struct EngineOptions {
  SchedulerConfig scheduler;
  TimeUs step_timeout_us = 60 * kUsPerSecond;
  TimeUs stall_timeout_us = 60 * kUsPerSecond;  // a reader that takes nothing for so long is cut
  // Called on the engine's thread when it fails. Returns where cancels of the orphans go from now
  // on; without it they end with an error.
  std::function<std::shared_ptr<RequestCanceller>(std::vector<Orphan>, const Status& why)> adopt;
};

class BatchInferenceEngine final : public InferenceService {
 public:
  // Starts the thread. `clock` must outlive the engine, also one whose stop() returned false.
  static Result<std::unique_ptr<BatchInferenceEngine>> create(std::unique_ptr<StepRunner> runner,
                                                              EngineOptions options,
                                                              const Clock& clock);
  ~BatchInferenceEngine() override;

  Result<RequestHandle> submit(GenerationRequest request, std::function<void()> on_ready) override;
  std::optional<TimeUs> share_retry_us(uint64_t tenant, uint32_t requests) override;
  using InferenceService::explain;
  void explain(std::vector<RequestId> ids, Explained done) override;
  EngineSnapshot snapshot() const override;
  void drain() override;
  bool stop(TimeUs timeout_us) override;

 private:
  explicit BatchInferenceEngine(std::shared_ptr<EngineCore> core) : core_(std::move(core)) {}

  // Shared with the thread, so that one which hangs in a step for ever finds its things in place.
  std::shared_ptr<EngineCore> core_;
  std::unique_ptr<Watchdog> watchdog_;
  std::thread thread_;
};

}  // namespace skein
