#include "server/answer/job_parts.h"

#include <algorithm>
#include <utility>

namespace skein {

FinishedRequest describe_call(const Call& call, const std::string& id) {
  FinishedRequest about;
  about.id = id;
  about.request_id = call.request.request_id;
  about.route = call.route->pattern;
  about.key_name = call.principal->name;
  about.priority = call.priority;
  return about;
}

uint64_t tenant_of(const Principal& who, bool is_background) {
  const uint64_t key = who.salt.low;
  return is_background ? ~key : key;
}

api::Error cancelled_error() {
  return {.status = 499, .message = "The request was cancelled.", .code = "cancelled"};
}

std::optional<api::Error> early_end(FinishReason reason) {
  switch (reason) {
    case FinishReason::kTimedOut:
      return api::deadline_exceeded();
    case FinishReason::kDrained:
      return api::draining(1);
    case FinishReason::kClient:
      return cancelled_error();
    case FinishReason::kStop:
    case FinishReason::kLength:
    case FinishReason::kToolCalls:
    case FinishReason::kError:
      break;
  }
  return std::nullopt;
}

api::Error engine_error(ServerContext& context, ServedModel& served, AnswerAccount& account,
                        uint64_t tenant, uint32_t requests, const Status& status) {
  if (status.code() == Code::kResourceExhausted) {
    if (const auto retry_us = served.share_retry_us(tenant, requests)) {
      account.reject(Rejection::kTenantShare);
      const auto retry_s = static_cast<uint64_t>((*retry_us + kUsPerSecond - 1) / kUsPerSecond);
      return api::share_full(status.message(), std::clamp<uint64_t>(retry_s, 1, 60));
    }
    account.reject(Rejection::kQueueFull);
    uint32_t waiting = 0;
    for (const uint32_t of_class : served.snapshot().scheduler.waiting) waiting += of_class;
    return api::queue_full(context.metrics.retry_after_s(served.id(), waiting));
  }
  if (status.code() == Code::kUnavailable) {
    account.reject(Rejection::kUnavailable);
    if (served.snapshot().state == EngineState::kHung) return api::engine_hung(1);
  }
  // The engine's time ran out, not the client's: a step hangs.
  if (status.code() == Code::kDeadlineExceeded) return api::engine_hung(1);
  return api::from_status(status);
}

void explain_choices(ServerContext& context, Priority priority, ServedModel& served,
                     std::vector<LiveChoice> choices, RequestExplanation explanation,
                     std::function<void(RequestExplanation)> done) {
  std::vector<RequestId> ids;
  ids.reserve(choices.size());
  for (const LiveChoice& choice : choices) ids.push_back(choice.id);
  // The engine's thread only passes on what it said.
  served.explain(std::move(ids), [&context, priority, choices = std::move(choices),
                                  explanation = std::move(explanation), done = std::move(done)](
                                     Result<std::vector<Explanation>> found) mutable {
    if (!found.ok()) explanation.error = api::from_status(found.status());
    const auto tell = [choices = std::move(choices), explanation = std::move(explanation), done,
                       found = std::move(found)]() mutable {
      // One that has ended meanwhile has nothing to explain.
      for (size_t i = 0; found.ok() && i < found->size(); ++i) {
        const auto at = std::find_if(choices.begin(), choices.end(), [&](const LiveChoice& choice) {
          return choice.id == (*found)[i].id;
        });
        explanation.choices.push_back({at->index, (*found)[i]});
      }
      done(std::move(explanation));
    };
    const auto refuse = [&context, done] {
      RequestExplanation refused;
      refused.error = context.no_worker();
      done(std::move(refused));
    };
    if (!context.workers.post(priority, tell, refuse)) refuse();
  });
}

}  // namespace skein
