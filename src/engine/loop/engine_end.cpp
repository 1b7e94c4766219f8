// How the engine's loop ends: in order, or because it cannot go on.
#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"
#include "engine/loop/batch_inference_engine.h"

namespace skein {

// The orderly end: nobody is left without one.
void BatchInferenceEngine::shut() {
  mailbox_.close();
  mailbox_.drain(messages_);
  const TimeUs now = clock_.now();
  for (Message& message : messages_) {
    if (const Submission* submit = std::get_if<Submission>(&message)) {
      end_unstarted(submit->id, submit->stream, FinishReason::kDrained, {});
    } else {
      std::visit([&](auto& m) { apply(m, now); }, message);
    }
  }
  answer_explanations();
  std::vector<EndEvent> ended;
  scheduler_->cancel_all(FinishReason::kDrained, ended);
  for (const EndEvent& event : ended) finish(event.request, event.reason, now);
  counters_.state = EngineState::kStopped;
  publish();
}

// The runner is lost. What has sent nothing can go elsewhere; the rest ends here.
void BatchInferenceEngine::fail(const Status& why) {
  log_error("{}", why.message());
  watch_.set_step_start(kNever);
  const TimeUs now = clock_.now();
  std::vector<RequestId> ids;
  for (const auto& [id, live] : live_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  std::vector<Submission> silent;
  for (const RequestId id : ids) {
    EngineRequest& live = *live_.at(id);
    if (live.first_token != kNever || !failover_.possible() || live.stream->ended()) {
      finish(id, FinishReason::kError, now, why);
      continue;
    }
    live.request.sampling = live.sampler.params();
    silent.push_back(std::move(static_cast<Submission&>(live)));
  }
  live_.clear();
  counters_.state = EngineState::kFailed;
  publish();
  // From here on nobody can submit. What came between the last step and now has sent nothing
  // either; who gave up meanwhile is not served by the next one.
  failover_.begin();
  mailbox_.close();
  mailbox_.drain(messages_);
  for (Message& message : messages_) {
    if (Submission* submit = std::get_if<Submission>(&message)) {
      silent.push_back(std::move(*submit));
    } else if (const Cancel* cancel = std::get_if<Cancel>(&message)) {
      failover_.cancel(cancel->id, cancel->reason);
    }
  }
  explanations_.refuse(unavailable("the engine has failed"));
  if (failover_.possible()) {
    live_count_.fetch_sub(static_cast<uint32_t>(silent.size()));
    failover_.hand_over(std::move(silent), why);
    watch_.clear();  // only now: had it thrown, they would have to be told
  } else {
    for (const Submission& submission : silent) {
      end_unstarted(submission.id, submission.stream, FinishReason::kError, why);
    }
    publish();
  }
}

// Not even the orderly failure was possible: memory is short. Whoever is live is told, and whoever
// owns the engine that it needs another one.
void BatchInferenceEngine::give_up() noexcept {
  static constexpr const char* kWhy = "engine failed";  // short enough not to allocate
  mailbox_.close();
  set_state(EngineState::kFailed);
  watch_.end_all(kWhy);
  live_count_ = 0;
  const auto attempt = [](auto&& action) {
    try {
      action();
    } catch (const std::exception&) {
      // The next one may fare better.
    }
  };
  attempt([&] { explanations_.refuse(unavailable("the engine has failed")); });
  attempt([&] {
    if (failover_.possible()) failover_.hand_over({}, {Code::kInternal, kWhy});
  });
}

}  // namespace skein
