// POST /v1/chat/completions, /v1/completions and /v1/messages, and the first two under /v1/batch/.
#include <utility>

#include "server/answer/generate.h"
#include "server/endpoints/endpoints.h"

namespace skein {
namespace {

void refuse(const Call& call, http::Responder& responder, const api::Error& error) {
  responder.send(error_response(call.route->dialect, error));
}

void serve_chat(ServerContext& context, Call& call, http::Responder responder) {
  auto request = api::parse_chat_request(call.request.body);
  if (!request.ok()) return refuse(call, responder, request.error());
  call.request.body = std::string();  // what it said is in the request
  if (const auto problem = api::find_unsupported(*request)) {
    return refuse(call, responder, *problem);
  }
  generate_chat(context, caller_of(call), std::move(*request), std::move(responder));
}

void serve_message(ServerContext& context, Call& call, http::Responder responder) {
  auto request = api::parse_messages_request(call.request.body, false);
  if (!request.ok()) return refuse(call, responder, request.error());
  call.request.body = std::string();  // what it said is in the request
  if (const auto problem = api::find_unsupported(*request)) {
    return refuse(call, responder, *problem);
  }
  generate_message(context, caller_of(call), std::move(*request), std::move(responder));
}

void serve_completion(ServerContext& context, Call& call, http::Responder responder) {
  auto request = api::parse_completion_request(call.request.body);
  if (!request.ok()) return refuse(call, responder, request.error());
  call.request.body = std::string();  // what it said is in the request
  generate_completion(context, caller_of(call), std::move(*request), std::move(responder));
}

}  // namespace

void bind_generation(Router& router, ServerContext& context) {
  const auto bind = [&](Endpoint endpoint, auto serve) {
    router.bind(endpoint, [&context, serve](Call call, http::Responder responder) {
      serve(context, call, std::move(responder));
    });
  };
  bind(Endpoint::kChatCompletions, serve_chat);
  bind(Endpoint::kMessages, serve_message);
  bind(Endpoint::kCompletions, serve_completion);
}

}  // namespace skein
