// DirectService: DirectInference as a service. Requests wait in the order of the scheduler (class,
// aged) and run one at a time, on a thread of their own. A watchdog ends them as it does an
// engine's: whose deadline passes while another one runs, and everything once a pass over the model
// hangs. While the model's device is lost they wait, the one that ran among them where it has sent
// nothing.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "engine/loop/inference_service.h"
#include "engine/manager/direct_inference.h"

namespace skein {

class DirectService final : public InferenceService {
 public:
  // Of the scheduler's configuration its limits count: queue, context, vocabulary, time per class.
  // `inference` may be nullptr: it waits for one. `on_lost` is called on the service's thread when
  // a pass finds the device lost. `clock` must outlive the service. Throws std::system_error where
  // no thread can be had.
  static Owned<DirectService> create(std::unique_ptr<DirectInference> inference,
                                     const ServiceOptions& options, const Clock& clock,
                                     std::function<void()> on_lost = {});

  // Waits for the request that runs, which the loss of its device ends, and lets go of the
  // inference. False where that takes longer.
  bool pause(TimeUs timeout_us);
  void resume(std::unique_ptr<DirectInference> inference);
  // Ends everything that waits.
  void end_waiting(const Status& why);

  // Takes requests over under the ids they have. The result is where their cancels go.
  std::shared_ptr<RequestCanceller> take_over(std::vector<Submission> requests);
  void cancel(RequestId id, FinishReason reason) override;
  using InferenceService::explain;
  void explain(std::vector<RequestId> ids, Explained done) override;
  void view(Viewed done) override;
  EngineSnapshot snapshot() const override;

 private:
  DirectService(std::unique_ptr<DirectInference> inference, const ServiceOptions& options,
                const Clock& clock, std::function<void()> on_lost);

  struct Waiting : Submission {
    TimeUs key = 0;        // as the scheduler's: arrival + class x time per class
    bool at_door = false;  // it holds a place there; what was taken over does not
  };
  using WaitingList = std::vector<Waiting>;

  void serve() override;
  Status accept(Submission submission) override;
  void wake() override;
  void watch() override;

  void add(Submission submission, bool at_door);
  WaitingList::iterator find(RequestId id);
  std::optional<Explanation> explain_one(RequestId id);
  // False: its device was lost before it had sent anything.
  bool serve_one(const Waiting& request);
  // What came of a request beside the outcome that the inference knows of.
  struct Course {
    std::optional<FinishReason> cut;  // why it was ended by us
    Status why;
    bool has_sent = false;
    bool is_lost = false;
  };
  Result<DirectOutcome> generate(const Waiting& request, Course& course);
  void stop_running(FinishReason reason);
  void end_one(const Waiting& waiting, FinishReason reason, Status status = {});
  void finish(const Waiting& request, GenerationEnd end);
  static bool before(const Waiting& a, const Waiting& b) {
    return a.key != b.key ? a.key < b.key : a.id < b.id;
  }

  const std::function<void()> on_lost_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<DirectInference> inference_;  // nullptr: paused; it stays while a request runs
  WaitingList waiting_;  // not in order: there are few, and the best is looked for
  const Waiting* running_ = nullptr;
  std::optional<FinishReason> stop_reason_;  // why the one that runs should end
  std::atomic<bool> stop_flag_{false};       // that it should
  EngineSnapshot counters_;
};

}  // namespace skein
