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
#include "engine/loop/batch_inference_engine.h"
#include "engine/loop/inference_service.h"
#include "engine/loop/step_runner.h"
#include "engine/sampling/sampler.h"
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
    TokenId last_token = kNoToken;

    bool ended() const { return stream == nullptr; }
  };
  using LiveMap = std::unordered_map<RequestId, std::shared_ptr<Live>>;

  // A step from its plan to its delivery. It keeps its requests: one of them may end while the step
  // is under way, and the runner still looks at its sampler.
  struct Step {
    StepPlan plan;
    std::vector<std::shared_ptr<Live>> live;  // by row, as are the others
    std::vector<RowTask> tasks;
    std::vector<RowOutput> outputs;
    TimeUs started = 0;
    bool runs = false;  // false: it is run row by row when its turn comes
  };

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
  void note_plan(const StepPlan& plan, TimeUs now);
  Step& step_under_way(uint32_t number) { return steps_[(first_step_ + number) % steps_.size()]; }
  bool may_start();
  bool start_step(TimeUs now);  // false: there is nothing to run
  void start(Step& step);
  void finish_step();
  void collect(Step& step);
  void take_back_later_steps();
  void run_rows(Step& step);
  void watch_from(TimeUs started);  // kNever: nothing is under way
  bool given_up();                  // by the watchdog, since it was last asked
  void commit(const Step& step, TimeUs ended);
  void deliver(Step& step, TimeUs now);
  void deliver_token(Live& live, const TokenEvent& event, const SampledToken& sampled, TimeUs now);
  void report_progress(const Step& step);
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

  // The oldest step under way, for the watchdog.
  std::mutex step_mutex_;
  TimeUs step_started_ = kNever;
  bool step_given_up_ = false;

  // ---- the loop's own ----
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<ContinuousBatchingScheduler> scheduler_;
  LiveMap live_;
  std::vector<Message> messages_;
  std::vector<Step> steps_;  // a ring, as many as the runner takes at a time
  uint32_t first_step_ = 0;  // the oldest one under way
  uint32_t under_way_ = 0;
  TimeUs last_finish_ = 0;
  StepResult result_;
  std::vector<TokenId> sampled_;  // of one row
  StepEffects effects_;
  EngineSnapshot counters_;
  uint32_t open_slots_ = 0;  // as the door knows it
  std::vector<std::pair<std::shared_ptr<TokenStream>, GenerationEnd>> ended_;  // to be told
};

}  // namespace skein
