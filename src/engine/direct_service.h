// DirectService: DirectInference as a service. Requests wait in the order of the scheduler (class,
// aged) and run one at a time, on a thread of their own.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engine/batch_inference_engine.h"
#include "engine/direct_inference.h"
#include "engine/inference_service.h"

namespace skein {

class DirectService final : public InferenceService {
 public:
  struct Options {
    SchedulerConfig scheduler;  // its limits: queue, context, vocabulary, time per class
    TimeUs stall_timeout_us = 60 * kUsPerSecond;
  };
  // `clock` must outlive the service.
  DirectService(std::unique_ptr<DirectInference> inference, Options options, const Clock& clock);
  ~DirectService() override;

  Result<RequestHandle> submit(GenerationRequest request, std::function<void()> on_ready) override;
  // Takes over a request under the id it has. The result is where its cancel goes.
  std::shared_ptr<RequestCanceller> adopt(std::vector<Orphan> orphans);
  Result<Explanation> explain(RequestId id) override;
  EngineSnapshot snapshot() const override;
  void drain() override;
  bool stop(TimeUs timeout_us) override;

 private:
  class Core;
  std::shared_ptr<Core> core_;
  std::thread thread_;
};

}  // namespace skein
