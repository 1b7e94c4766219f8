// EngineCore: the inside of a BatchInferenceEngine. Two sides: the door, which any thread may use,
// and the loop, which one thread runs and which owns everything below the line.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/mailbox.h"
#include "engine/batch_inference_engine.h"
#include "engine/inference_service.h"
#include "engine/sampler.h"
#include "engine/step_runner.h"
#include "sched/queue_door.h"
#include "sched/scheduler.h"

namespace skein {

class EngineCore final : public RequestCanceller, public std::enable_shared_from_this<EngineCore> {
 public:
  EngineCore(std::unique_ptr<StepRunner> runner,
             std::unique_ptr<ContinuousBatchingScheduler> scheduler, EngineOptions options,
             const Clock& clock);

  // The door.
  Result<RequestHandle> submit(GenerationRequest request, std::function<void()> on_ready);
  std::optional<TimeUs> share_retry_us(uint64_t tenant, uint32_t requests);
  void cancel(RequestId id, FinishReason reason) override;
  void explain(std::vector<RequestId> ids, InferenceService::Explained done);
  EngineSnapshot snapshot() const;
  void drain();
  void request_stop();
  bool wait_stopped(TimeUs timeout_us);
  TimeUs step_timeout_us() const { return options_.step_timeout_us; }
  // Called by the watchdog. While a step keeps the loop: ends whose deadline passes meanwhile, and
  // once it is over its time everything that runs or waits; answers explanations that wait for it.
  void watch();

  // The loop: returns after request_stop(), or when the runner is lost.
  void run();

 private:
  struct Submit {
    RequestId id;
    GenerationRequest request;
    std::shared_ptr<TokenStream> stream;
    TimeUs arrived = 0;
  };
  struct Cancel {
    RequestId id;
    FinishReason reason;
  };
  struct Drain {};
  using Message = std::variant<Submit, Cancel, Drain>;

  // Not in the mailbox: the watchdog answers those that wait too long.
  struct Explain {
    std::vector<RequestId> ids;
    InferenceService::Explained done;
    TimeUs asked = 0;
  };
  // What the watchdog knows of a live request.
  struct Watched {
    std::shared_ptr<TokenStream> stream;
    TimeUs deadline = kNever;
  };

  // What the loop knows about a live request beside the scheduler.
  struct Live {
    Live(Submit&& submit, uint32_t vocab);

    std::shared_ptr<TokenStream> stream;
    RequestSampler sampler;
    GenerationRequest request;  // without its sampling; the prompt until a token was sent
    GenerationEnd end;
    TimeUs arrived = 0;
    TimeUs deadline = kNever;
    TimeUs started = kNever;  // first admitted
    TimeUs first_token = kNever;
    uint32_t computed_tokens = 0;  // by the model, up to the first token
  };
  using LiveMap = std::unordered_map<RequestId, Live>;

  // The door's.
  Status enter(const GenerationRequest& request, TimeUs now);
  void leave(uint64_t tenant);
  void unwatch(RequestId id);
  void watch_step(TimeUs now);
  std::vector<Explain> take_explains(TimeUs asked_before);
  Status hang_status() const;

  // The loop's.
  void apply(Submit& message, TimeUs now);
  void apply(Cancel& message, TimeUs now);
  void apply(Drain& message, TimeUs now);
  void answer_explains();
  void note_plan(TimeUs now);
  void run_step();
  void run_rows();
  void begin_step(TimeUs now);
  bool end_step();  // true: the watchdog gave it up meanwhile
  void commit(TimeUs started, TimeUs ended);
  void deliver(TimeUs now);
  void report_progress();
  void finish(RequestId id, FinishReason reason, TimeUs now, Status status = {});
  void drop_given_up(TimeUs now);
  void publish();
  void end_unstarted(RequestId id, const std::shared_ptr<TokenStream>& stream, FinishReason reason,
                     Status status);
  void fail(const Status& why);
  void give_up() noexcept;
  void shut();

  const EngineOptions options_;
  const Clock& clock_;
  Mailbox<Message> mailbox_;
  std::atomic<uint64_t> next_id_{1};
  std::atomic<uint32_t> live_count_{0};  // submitted, and not ended yet
  std::atomic<bool> stopping_{false};
  std::atomic<bool> draining_{false};
  std::atomic<bool> hung_{false};

  mutable std::mutex snapshot_mutex_;
  EngineSnapshot snapshot_;  // its state says no more than running, failed or stopped
  std::shared_ptr<RequestCanceller> successor_;  // of a failed engine, for its orphans

  std::mutex stopped_mutex_;
  std::condition_variable stopped_changed_;
  bool stopped_ = false;

  // Places of those that were submitted and never admitted yet.
  std::mutex door_mutex_;
  QueueDoor door_;

  std::mutex explain_mutex_;
  std::vector<Explain> explains_;

  // Live requests, for the watchdog. Taken after step_mutex_ where both are.
  std::mutex watched_mutex_;
  std::unordered_map<RequestId, Watched> watched_;

  // The step that runs, for the watchdog.
  std::mutex step_mutex_;
  TimeUs step_started_ = kNever;
  bool step_given_up_ = false;

  // ---- the loop's own ----
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<ContinuousBatchingScheduler> scheduler_;
  LiveMap live_;
  std::vector<Message> messages_;
  StepPlan plan_;
  std::vector<RowTask> tasks_;
  std::vector<RowOutput> outputs_;
  StepResult result_;
  StepEffects effects_;
  EngineSnapshot counters_;
  uint32_t open_slots_ = 0;  // as the door knows it
  std::vector<std::pair<std::shared_ptr<TokenStream>, GenerationEnd>> ended_;  // to be told
};

}  // namespace skein
