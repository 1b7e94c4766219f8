// BatchInferenceEngine: continuous batching for one model, on a thread of its own.
//
// Its loop: plan, run, commit, deliver. The thread owns scheduler, model, KV bytes and samplers
// outright; values cross its border and nothing else: messages in, token events out, a snapshot per
// step. A step that hangs is the StepWatch's business, steps that throw are the StepRing's, and
// where requests go when the runner is lost is the Failover's.
//
// A segment that fails ends its request alone. A step that throws is run again segment by segment,
// and only requests that fail alone end with an error. A step that does not come back within the
// step timeout makes the engine kHung: everything that runs or waits ends with kError and
// kDeadlineExceeded, and what the step brings when it does come back is ignored. However long a
// step takes, nobody waits beyond its own deadline. An engine whose runner is lost becomes kFailed:
// requests that have sent nothing go to EngineOptions::hand_over, the others end with an error.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/mailbox.h"
#include "engine/loop/failover.h"
#include "engine/loop/inference_service.h"
#include "engine/loop/kv_event_feed.h"
#include "engine/loop/pending_explanations.h"
#include "engine/loop/slow_draws.h"
#include "engine/loop/step_ring.h"
#include "engine/loop/step_runner.h"
#include "engine/speculation/draft_memory.h"
#include "sched/scheduler.h"

namespace skein {

struct EngineOptions : ServiceOptions {
  Failover::HandOver hand_over;  // of an engine that fails; without it all requests end
  // Who is told what comes into the prefix cache and leaves it, with SchedulerConfig::kv_events;
  // nullptr: nobody.
  std::shared_ptr<KvEventFeed> kv_events;
  // Of a small model that guesses; may be empty. A new one for every engine, as runners are.
  std::function<Result<std::unique_ptr<DraftModel>>()> make_draft_model;
};

class BatchInferenceEngine final : public InferenceService {
 public:
  // Starts the thread. `clock` must outlive the engine, also one whose stop() returned false.
  static Result<Owned<BatchInferenceEngine>> create(std::unique_ptr<StepRunner> runner,
                                                    EngineOptions options, const Clock& clock);

  void cancel(RequestId id, FinishReason reason) override;
  using InferenceService::explain;
  void explain(std::vector<RequestId> ids, Explained done) override;
  void view(Viewed done) override;
  void drain() override;
  // What its runner computes on is lost: it fails, as if the next step had found out. Nothing where
  // it has ended already.
  void lose(std::string why) { (void)mailbox_.push(Loss{std::move(why)}); }

 private:
  BatchInferenceEngine(std::unique_ptr<StepRunner> runner,
                       std::unique_ptr<ContinuousBatchingScheduler> scheduler,
                       EngineOptions options, const Clock& clock);

  struct Cancel {
    RequestId id;
    FinishReason reason;
  };
  struct Drain {};
  struct Loss {
    std::string why;
  };
  using Message = std::variant<Submission, Cancel, Drain, Loss>;

  void serve() override;
  Status accept(Submission submission) override;
  void wake() override { mailbox_.wake(); }
  void watch() override;

  void apply(Submission& message, TimeUs now);
  void apply(Cancel& message, TimeUs now);
  void apply(Drain& message, TimeUs now);
  void apply(Loss& message, TimeUs) { loss_ = std::move(message.why); }
  // Questions (engine_questions.cpp)
  void answer_questions();
  void refuse_questions(const Status& why, TimeUs asked_before = kNever);
  bool start_step(TimeUs now);  // false: there is nothing to run
  void note_plan(const StepPlan& plan, TimeUs now);
  void finish_step();
  void commit(StepUnderWay& step, TimeUs ended);
  void deliver(StepUnderWay& step, TimeUs now);
  // `sampled`: with its logprobs, where they were asked for.
  void cut_off(RequestId request, TimeUs now);
  void deliver_token(EngineRequest& live, const TokenEvent& event, const SampledToken* sampled,
                     TimeUs now);
  void draw_put_off(StepUnderWay& step);
  void resume_drawn();
  void drop_given_up(TimeUs now);
  void finish(RequestId id, FinishReason reason, TimeUs now, Status status = {});
  void end_unstarted(RequestId id, const std::shared_ptr<TokenStream>& stream, FinishReason reason,
                     Status status);
  void publish();
  void shut();
  void fail(const Status& why);
  void give_up() noexcept;

  Mailbox<Message> mailbox_;
  PendingExplanations explanations_;
  PendingViews views_;
  Failover failover_;
  const std::shared_ptr<KvEventFeed> kv_events_;  // nullptr: nobody asks

  // ---- the thread's own ----
  std::unique_ptr<ContinuousBatchingScheduler> scheduler_;
  StepRing steps_;
  SlowDraws slow_draws_;
  std::vector<RequestId> drawn_;
  DraftMemory draft_memory_;
  std::unique_ptr<DraftModel> draft_model_;  // nullptr: none
  std::unordered_map<RequestId, std::shared_ptr<EngineRequest>> live_;
  std::vector<Message> messages_;
  TimeUs last_finish_ = 0;
  StepEffects effects_;
  EngineSnapshot counters_;
  uint32_t open_slots_ = 0;  // as the door knows it
  std::optional<std::string> loss_;
  std::vector<std::pair<std::shared_ptr<TokenStream>, GenerationEnd>> ended_;  // to be told
};

}  // namespace skein
