// What every job that has an engine work for it does alike: who asks, why an engine said no, and
// what its requests are doing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/manager/served_model.h"
#include "server/answer/answer_account.h"
#include "server/answer/live_requests.h"
#include "server/context.h"
#include "server/router.h"

namespace skein {

// What the log and the metrics know of a call from the start.
FinishedRequest describe_call(const Call& call, const std::string& id);

// A tenant is a key, also where prefixes are shared. Lines of its batches are another tenant: they
// take nothing of what the key itself may have waiting.
uint64_t tenant_of(const Principal& who, bool is_background);

api::Error cancelled_error();

// Why an answer has ended too early; nothing where it is complete, or where an error says why.
std::optional<api::Error> early_end(FinishReason reason);

// Tells the client why the engine refused a request, or failed; counts it.
api::Error engine_error(ServerContext& context, ServedModel& served, AnswerAccount& account,
                        uint64_t tenant, uint32_t requests, const Status& status);

// One engine request of a job.
struct LiveChoice {
  uint32_t index = 0;
  RequestId id;
};

// Asks the engine what the choices are doing, in one message, adds it to `explanation` and hands
// that to `done`, on a worker where one is free.
void explain_choices(ServerContext& context, Priority priority, ServedModel& served,
                     std::vector<LiveChoice> choices, RequestExplanation explanation,
                     std::function<void(RequestExplanation)> done);

}  // namespace skein
