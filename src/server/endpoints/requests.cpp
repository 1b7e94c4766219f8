// /v1/requests/{id}: what a request is doing, and its end.

#include "server/endpoints/reply.h"
#include "server/json.h"

namespace skein::endpoints {
namespace {

using json::append_member;

// The members, each with a comma before it.
void append_explanation(std::string& out, const Explanation& explanation) {
  append_member(out, "state", name_of(explanation.status));
  append_member(out, "class", name_of(explanation.priority));
  append_member(out, "effective_priority",
                static_cast<double>(explanation.effective_priority_milli) / 1000);
  append_member(out, "queue_position", explanation.queue_position);
  append_member(out, "prompt_tokens", explanation.prompt_tokens);
  append_member(out, "generated_tokens", explanation.generated_tokens);
  append_member(out, "computed_tokens", explanation.computed_tokens);
  append_member(out, "cached_tokens", explanation.cached_tokens);
  append_member(out, "blocks", explanation.blocks);
  append_member(out, "preemptions", explanation.preemptions);
  append_member(out, "wait_reason", name_of(explanation.wait));
  append_member(out, "explanation", explanation.describe());
  json::append_name(out, "timings");
  out.push_back('{');
  append_member(out, "since_arrival_ms", static_cast<double>(explanation.waited_us) / kUsPerMs);
  out.push_back('}');
}

// The first choice's facts stand at the top, where a client with one choice looks for them.
std::string request_answer(const RequestExplanation& request) {
  std::string out = "{";
  append_member(out, "id", request.id);
  append_member(out, "object", "request");
  append_member(out, "model", request.model);
  append_member(out, "seed", request.seed);  // as the request's field is read
  if (request.sampling) {
    json::append_name(out, "sampling");
    out.append(sampling_json(*request.sampling, ""));
  }
  if (request.has_form) {
    json::append_name(out, "form");
    json::append_name(out.append("{"), "relaxed");
    json::append_list(out, request.relaxed,
                      [&](const std::string& pointer) { json::append_string(out, pointer); });
    out.push_back('}');
  }
  if (!request.call_format.empty()) append_member(out, "tool_format", request.call_format);
  if (request.choices.empty()) {
    append_member(out, "state", request.state);
  } else {
    append_explanation(out, request.choices.front().explanation);
  }
  json::append_name(out, "choices");
  json::append_list(out, request.choices, [&](const ChoiceExplanation& choice) {
    out.push_back('{');
    append_member(out, "index", choice.index);
    append_explanation(out, choice.explanation);
    out.push_back('}');
  });
  return out.append("}");
}

// Null after the client was told that there is none.
std::shared_ptr<LiveRequest> find(const ServerContext& context, const Call& call,
                                  const http::Responder& responder) {
  auto request = context.live.find(call.id, call.principal->key_id, call.principal->admin);
  if (request == nullptr) send_error(call, responder, api::not_found());
  return request;
}

}  // namespace

void explain_request(ServerContext& context, Call& call, const http::Responder& responder) {
  const auto request = find(context, call, responder);
  if (request == nullptr) return;
  request->explain([call, responder](const RequestExplanation& explanation) {
    if (explanation.error) return send_error(call, responder, *explanation.error);
    send_json(responder, request_answer(explanation));
  });
}

void cancel_request(ServerContext& context, Call& call, const http::Responder& responder) {
  const auto request = find(context, call, responder);
  if (request == nullptr) return;
  request->cancel();
  std::string out = "{";
  append_member(out, "id", call.id);
  send_json(responder, out.append(R"(,"object":"request","cancelled":true})"));
}

}  // namespace skein::endpoints
