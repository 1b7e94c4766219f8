// From a parsed request to its answer: the model is acquired, the prompt made, the work submitted,
// and what comes back written as the client's API wants it.
//
// Every call ends with exactly one answer. Call on a worker: prompts are rendered and tokenized
// here, or later on ServerContext::workers where the model has to be loaded first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "generate/prompt.h"
#include "server/api/chat_request.h"
#include "server/api/completion_request.h"
#include "server/context.h"
#include "server/http/responder.h"
#include "server/router.h"

namespace skein {

// Who asks for what class of service, and under which names it is logged.
struct Caller {
  PrincipalPtr principal;
  Priority priority = Priority::NORMAL;
  std::string route;
  std::string request_id;
  std::optional<TimeUs> timeout_us;   // of the header; a field of the request goes before it
  std::shared_ptr<void> memory = {};  // of the request, until its prompts are submitted
};
Caller caller_of(const Call& call);

void generate_chat(ServerContext& context, Caller caller, api::ChatRequest request,
                   http::Responder responder);
void generate_message(ServerContext& context, Caller caller, api::ChatRequest request,
                      http::Responder responder);
void generate_completion(ServerContext& context, Caller caller, api::CompletionRequest request,
                         http::Responder responder);

// For a line of a batch: the same answers, whole, to a function that is called once, on some
// thread. Never a stream. The result cancels it; `done` is then called with status 499. `is_final`:
// asking again would not help.
using LineDone = std::function<void(http::Response response, std::string id, bool is_final)>;
std::shared_ptr<LiveRequest> generate_chat(ServerContext& context, Caller caller,
                                           api::ChatRequest request, LineDone done);
std::shared_ptr<LiveRequest> generate_completion(ServerContext& context, Caller caller,
                                                 api::CompletionRequest request, LineDone done);

// What the model's files lack for a request: a tokenizer for text, a template too for a
// conversation. The reason is logged, for it may name paths.
std::optional<api::Error> find_missing(const ServedModel& served, bool tokenizer, bool chat);

PromptBuilder prompts_of(const ServerContext& context, const ServedModel& served);

// What a key is told whose minute is used up, and when to come again.
api::Error rate_limit_error(const Admission& admission);

// The model of a request that may use it: an id that exists and that the key allows.
api::Parsed<std::string> model_for(const ServerContext& context, const Principal& who,
                                   const std::string& wanted);

}  // namespace skein
