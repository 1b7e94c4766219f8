// /v1/requests/{id}: what a request is doing, and its end.
#include <utility>

#include "server/endpoints/endpoints.h"
#include "server/endpoints/reply.h"
#include "server/json/append.h"

namespace skein {
namespace {

// The members, each with a comma before it.
void append_explanation(std::string& out, const Explanation& explanation) {
  json::append_member(out, "state", name_of(explanation.status));
  json::append_member(out, "class", name_of(explanation.priority));
  out.append(R"(,"effective_priority":)");
  json::append_number(out, static_cast<double>(explanation.effective_priority_milli) / 1000);
  json::append_member(out, "queue_position", explanation.queue_position);
  json::append_member(out, "prompt_tokens", explanation.prompt_tokens);
  json::append_member(out, "generated_tokens", explanation.generated_tokens);
  json::append_member(out, "computed_tokens", explanation.computed_tokens);
  json::append_member(out, "cached_tokens", explanation.cached_tokens);
  json::append_member(out, "blocks", explanation.blocks);
  json::append_member(out, "preemptions", explanation.preemptions);
  json::append_member(out, "wait_reason", name_of(explanation.wait));
  json::append_member(out, "explanation", explanation.describe());
  out.append(R"(,"timings":{"since_arrival_ms":)");
  json::append_number(out, static_cast<double>(explanation.waited_us) / kUsPerMs);
  out.push_back('}');
}

// The first choice's facts stand at the top, where a client with one choice looks for them.
std::string request_answer(const RequestExplanation& request) {
  std::string out = R"({"id":)";
  json::append_string(out, request.id);
  json::append_member(out, "object", "request");
  json::append_member(out, "model", request.model);
  out.append(R"(,"seed":)");
  json::append_int(out, static_cast<int64_t>(request.seed));  // as the request's field is read
  if (request.choices.empty()) {
    json::append_member(out, "state", request.state);
  } else {
    append_explanation(out, request.choices.front().explanation);
  }
  out.append(R"(,"choices":[)");
  for (size_t i = 0; i < request.choices.size(); ++i) {
    if (i > 0) out.push_back(',');
    out.append(R"({"index":)");
    json::append_int(out, request.choices[i].index);
    append_explanation(out, request.choices[i].explanation);
    out.push_back('}');
  }
  return out.append("]}");
}

// Null after the client was told that there is none.
std::shared_ptr<LiveRequest> find(const ServerContext& context, const Call& call,
                                  const http::Responder& responder) {
  auto request = context.live.find(call.id, call.principal->key_id, call.principal->admin);
  if (request == nullptr) send_error(call, responder, api::not_found());
  return request;
}

}  // namespace

void bind_requests(Router& router, ServerContext& context) {
  router.bind(Endpoint::kRequest, [&context](const Call& call, const http::Responder& responder) {
    const auto request = find(context, call, responder);
    if (request == nullptr) return;
    request->explain([call, responder](const RequestExplanation& explanation) {
      if (explanation.error) return send_error(call, responder, *explanation.error);
      send_json(responder, request_answer(explanation));
    });
  });
  router.bind(Endpoint::kRequestCancel,
              [&context](const Call& call, const http::Responder& responder) {
                const auto request = find(context, call, responder);
                if (request == nullptr) return;
                request->cancel();
                std::string out = R"({"id":)";
                json::append_string(out, call.id);
                send_json(responder, out.append(R"(,"object":"request","cancelled":true})"));
              });
}

}  // namespace skein
