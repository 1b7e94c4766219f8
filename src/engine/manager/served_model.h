// ServedModel: one loaded model and whatever answers for it at the moment: the batching engine; or
// DirectInference, one request at a time, where batching is off, where no scheduler could be built,
// and while a failed engine is made anew.
//
// Where the model's device is lost, requests that have sent nothing wait until it is there again
// and the weights with it. That takes all models on it together, so it is their owner's business:
// leave_device() of each, then return_to_device() of each.
//
// Any thread may call any member.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/loading/loaded_model.h"
#include "engine/loop/batch_inference_engine.h"
#include "engine/loop/inference_service.h"
#include "engine/manager/direct_service.h"

namespace skein {

struct ServedModelParts {
  std::shared_ptr<LoadedModel> model;
  uint64_t weight_bytes = 0;  // as the backend keeps them
  uint64_t workspace_bytes = 0;
  uint64_t kv_bytes = 0;
  bool enable_batching = true;
  EngineOptions engine;  // `hand_over` is the served model's own business
  // A new one for every engine: the one that failed took its own with it.
  std::function<Result<std::unique_ptr<StepRunner>>()> make_runner;
  std::function<Result<std::unique_ptr<DirectInference>>()> make_direct;
};

class ServedModel : public std::enable_shared_from_this<ServedModel> {
 public:
  struct Owner {
    // Runs a job on a thread that may take its time.
    std::function<void(std::function<void()>)> defer;
    // The model's device is lost. Called by a thread that must not wait.
    std::function<void()> on_device_lost;
  };

  static Result<std::shared_ptr<ServedModel>> start(std::string id, ServedModelParts parts,
                                                    const Clock& clock, Owner owner);
  ~ServedModel();

  const std::string& id() const { return id_; }
  const LoadedModel& model() const { return *parts_.model; }
  // Tokens of one request, prompt and answer: what the context and the KV pool hold.
  uint64_t max_request_tokens() const;
  uint32_t vocab() const { return parts_.engine.scheduler.vocab_size; }
  uint32_t max_batch() const { return parts_.engine.scheduler.max_batch; }
  uint64_t weight_bytes() const { return parts_.weight_bytes; }
  uint64_t kv_bytes() const { return parts_.kv_bytes; }
  uint64_t memory_bytes() const {  // all that it takes
    const FormCache* forms = parts_.model != nullptr ? parts_.model->forms() : nullptr;
    return parts_.weight_bytes + parts_.workspace_bytes + parts_.kv_bytes +
           (forms != nullptr ? forms->bytes() : 0);
  }

  // As InferenceService::submit.
  Result<RequestHandle> submit(GenerationRequest request, std::function<void()> on_ready);
  std::optional<TimeUs> share_retry_us(uint64_t tenant);
  void explain(std::vector<RequestId> ids, InferenceService::Explained done);
  void view(InferenceService::Viewed done);
  // The snapshot of whatever answers at the moment; counts are those of everything that ever
  // answered here. The state is kFailed only where nothing answers.
  EngineSnapshot snapshot() const;
  uint64_t direct_requests() const { return direct_requests_; }  // that batching did not serve
  uint32_t rebuilds() const { return rebuilds_; }

  void drain();
  bool stop(TimeUs timeout_us);
  bool idle() const;  // no request is live

  std::shared_ptr<const ComputeDevice> device() const {
    return parts_.model ? parts_.model->device() : nullptr;
  }
  bool device_is_lost() const { return parts_.model && parts_.model->is_lost(); }
  // Ends what computes here and lets go of all that is on the device. kUnavailable where a step
  // hangs and keeps it.
  Status leave_device();
  // Loads the weights anew, and goes on with what waits.
  Status return_to_device();
  // The device does not come back: what waits ends with the reason, and so does who asks later.
  void give_up(const Status& why);

 private:
  ServedModel(std::string id, ServedModelParts parts, const Clock& clock, Owner owner);
  Status start_engine();
  Status start_direct();
  Result<std::unique_ptr<DirectInference>> make_direct() const;  // mutex_
  std::shared_ptr<RequestCanceller> replace_engine(std::vector<Submission> silent,
                                                   const Status& why);
  void rebuild();
  void drop_engine();
  std::shared_ptr<BatchInferenceEngine> engine() const;
  std::shared_ptr<DirectService> direct() const;

  const std::string id_;
  const ServedModelParts parts_;
  const Clock& clock_;
  const Owner owner_;

  mutable std::mutex mutex_;
  std::shared_ptr<BatchInferenceEngine> engine_;  // nullptr: direct_ answers
  std::shared_ptr<DirectService> direct_;         // made when first needed
  EngineSnapshot past_;                           // counts of engines that failed
  bool stopping_ = false;
  bool is_away_ = false;  // from the device, on which nothing can be made
  Status given_up_;       // not ok: why nothing answers any more
  std::atomic<uint64_t> direct_requests_{0};
  std::atomic<uint32_t> rebuilds_{0};
};

}  // namespace skein
