// DirectService: DirectInference as a service. Requests wait in the order of the scheduler (class,
// aged) and run one at a time, on a thread of their own. A watchdog ends them as it does an
// engine's: whose deadline passes while another one runs, and everything once a pass over the model
// hangs.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engine/loop/batch_inference_engine.h"
#include "engine/loop/inference_service.h"
#include "engine/loop/watchdog.h"
#include "engine/manager/direct_inference.h"

namespace skein {

class DirectService final : public InferenceService {
 public:
  struct Options {
    SchedulerConfig scheduler;  // its limits: queue, context, vocabulary, time per class
    TimeUs step_timeout_us = 60 * kUsPerSecond;
    TimeUs stall_timeout_us = 60 * kUsPerSecond;
  };
  // `clock` must outlive the service. Throws std::system_error where no thread can be had.
  DirectService(std::unique_ptr<DirectInference> inference, Options options, const Clock& clock);
  ~DirectService() override;

  Result<RequestHandle> submit(GenerationRequest request, std::function<void()> on_ready) override;
  // Takes over a request under the id it has. The result is where its cancel goes.
  std::shared_ptr<RequestCanceller> adopt(std::vector<Orphan> orphans);
  std::optional<TimeUs> share_retry_us(uint64_t tenant, uint32_t requests) override;
  using InferenceService::explain;
  void explain(std::vector<RequestId> ids, Explained done) override;
  EngineSnapshot snapshot() const override;
  void drain() override;
  bool stop(TimeUs timeout_us) override;

 private:
  class Core;
  std::shared_ptr<Core> core_;
  std::unique_ptr<Watchdog> watchdog_;
  std::thread thread_;
};

}  // namespace skein
