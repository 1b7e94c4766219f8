// How the loop ends: in order, or because it cannot go on.
#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"
#include "engine/loop/engine_core.h"

namespace skein {

// The orderly end: nobody is left without one.
void EngineCore::shut() {
  mailbox_.close();
  mailbox_.drain(messages_);
  const TimeUs now = clock_.now();
  for (Message& message : messages_) {
    if (const Submit* submit = std::get_if<Submit>(&message)) {
      end_unstarted(submit->id, submit->stream, FinishReason::kDrained, {});
    } else {
      std::visit([&](auto& m) { apply(m, now); }, message);
    }
  }
  answer_explains();
  std::vector<EndEvent> ended;
  scheduler_->cancel_all(FinishReason::kDrained, ended);
  for (const EndEvent& event : ended) finish(event.request, event.reason, now);
  counters_.state = EngineState::kStopped;
  publish();
}

// The runner is lost. What has sent nothing can go elsewhere; the rest ends here.
void EngineCore::fail(const Status& why) {
  log_error("{}", why.message());
  watch_from(kNever);
  const TimeUs now = clock_.now();
  std::vector<RequestId> ids;
  for (const auto& [id, live] : live_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  std::vector<Orphan> orphans;
  for (const RequestId id : ids) {
    Live& live = *live_.at(id);
    if (live.first_token != kNever || !options_.adopt || live.stream->ended()) {
      finish(id, FinishReason::kError, now, why);
      continue;
    }
    live.request.sampling = live.sampler.params();
    if (live.deadline != kNever) live.request.timeout_us = live.deadline - now;
    orphans.push_back({id, std::move(live.request), std::move(live.stream)});
  }
  live_.clear();
  counters_.state = EngineState::kFailed;
  publish();
  // From here on nobody can submit. What came between the last step and now is orphaned too.
  mailbox_.close();
  mailbox_.drain(messages_);
  for (Message& message : messages_) {
    if (Submit* submit = std::get_if<Submit>(&message)) {
      orphans.push_back({submit->id, std::move(submit->request), std::move(submit->stream)});
    }
  }
  for (Explain& asked : take_explains(kNever)) asked.done(unavailable("the engine has failed"));
  if (options_.adopt) {
    live_count_.fetch_sub(static_cast<uint32_t>(orphans.size()));
    std::shared_ptr<RequestCanceller> successor = options_.adopt(std::move(orphans), why);
    // Only now: had it thrown, they would have to be told.
    const std::lock_guard watched_lock(watched_mutex_);
    watched_.clear();
    const std::lock_guard lock(snapshot_mutex_);
    successor_ = std::move(successor);
  } else {
    for (const Orphan& orphan : orphans) {
      end_unstarted(orphan.id, orphan.stream, FinishReason::kError, why);
    }
    publish();
  }
}

// Not even the orderly failure was possible: memory is short. Whoever is live is told, and whoever
// owns the engine that it needs another one.
void EngineCore::give_up() noexcept {
  mailbox_.close();
  {
    const std::lock_guard lock(snapshot_mutex_);
    snapshot_.state = EngineState::kFailed;
  }
  const auto attempt = [](auto&& action) {
    try {
      action();
    } catch (const std::exception&) {
      // The next one may fare better.
    }
  };
  std::unordered_map<RequestId, Watched> live;
  {
    const std::lock_guard lock(watched_mutex_);
    live.swap(watched_);
  }
  for (const auto& entry : live) {
    GenerationEnd end;
    end.status = {Code::kInternal, "engine failed"};  // short enough not to allocate
    attempt([&] { entry.second.stream->end(std::move(end)); });
  }
  live_count_ = 0;
  attempt([&] {
    for (Explain& asked : take_explains(kNever)) asked.done(unavailable("the engine has failed"));
  });
  attempt([&] {
    if (options_.adopt) (void)options_.adopt({}, {Code::kInternal, "engine failed"});
  });
}

}  // namespace skein
