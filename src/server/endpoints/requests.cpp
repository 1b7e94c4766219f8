// /v1/requests/{id}: what a request is doing, and its end.
#include <utility>

#include "server/endpoints/endpoints.h"
#include "server/endpoints/reply.h"
#include "server/json/append.h"

namespace skein {
namespace {

void append_count(std::string& out, std::string_view name, uint64_t count) {
  out.append(",\"").append(name).append("\":");
  json::append_int(out, static_cast<int64_t>(count));
}

void append_text(std::string& out, std::string_view name, std::string_view text) {
  out.append(",\"").append(name).append("\":");
  json::append_string(out, text);
}

// The members, each with a comma before it.
void append_explanation(std::string& out, const Explanation& explanation) {
  append_text(out, "state", name_of(explanation.status));
  append_text(out, "class", name_of(explanation.priority));
  out.append(R"(,"effective_priority":)");
  json::append_number(out, static_cast<double>(explanation.effective_priority_milli) / 1000);
  append_count(out, "queue_position", explanation.queue_position);
  append_count(out, "prompt_tokens", explanation.prompt_tokens);
  append_count(out, "generated_tokens", explanation.generated_tokens);
  append_count(out, "computed_tokens", explanation.computed_tokens);
  append_count(out, "cached_tokens", explanation.cached_tokens);
  append_count(out, "blocks", explanation.blocks);
  append_count(out, "preemptions", explanation.preemptions);
  append_text(out, "wait_reason", name_of(explanation.wait));
  append_text(out, "explanation", explanation.describe());
  out.append(R"(,"timings":{"since_arrival_ms":)");
  json::append_number(out, static_cast<double>(explanation.waited_us) / kUsPerMs);
  out.push_back('}');
}

// The first choice's facts stand at the top, where a client with one choice looks for them.
std::string request_answer(const RequestExplanation& request) {
  std::string out = R"({"id":)";
  json::append_string(out, request.id);
  append_text(out, "object", "request");
  append_text(out, "model", request.model);
  out.append(R"(,"seed":)");
  json::append_int(out, static_cast<int64_t>(request.seed));  // as the request's field is read
  if (request.choices.empty()) {
    append_text(out, "state", request.state);
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
      if (!explanation.status.ok()) {
        return send_error(call, responder, api::from_status(explanation.status));
      }
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
