// POST /v1/chat/completions, /v1/completions, /v1/messages and /v1/responses, and the first two
// under /v1/batch/.
#include <utility>

#include "server/answer/answer_job.h"
#include "server/endpoints/continued.h"
#include "server/endpoints/http_sink.h"
#include "server/endpoints/reply.h"

namespace skein::endpoints {
namespace {

// Reads the body and has it answered; what a header says of the time counts where the body is
// silent.
template <class Request>
void begin_answer(ServerContext& context, Call& call, const http::Responder& responder,
                  const api::AnswerKind& kind, api::Parsed<Request>&& request) {
  if (!request.ok()) return send_error(call, responder, request.error());
  std::optional<TimeUs>& timeout_us = request->options.timeout_us;
  if (!timeout_us) timeout_us = header_timeout_us(call.request.head);
  auto sink = std::make_unique<HttpSink>(responder, call.route->dialect);
  std::make_shared<AnswerJob>(context, std::move(call), kind, std::move(*request), std::move(sink))
      ->begin();
}

}  // namespace

void chat_completions(ServerContext& context, Call& call, const http::Responder& responder) {
  begin_answer(context, call, responder, api::AnswerKind::kChat,
               api::parse_chat_request(call.request.body));
}

void messages(ServerContext& context, Call& call, const http::Responder& responder) {
  begin_answer(context, call, responder, api::AnswerKind::kMessage,
               api::parse_messages_request(call.request.body, false));
}

void responses(ServerContext& context, Call& call, const http::Responder& responder) {
  with_conversation(context, call, responder, false,
                    [&context, responder](Call& whole, api::Parsed<api::ChatRequest>&& request) {
                      begin_answer(context, whole, responder, api::AnswerKind::kResponse,
                                   std::move(request));
                    });
}

void completions(ServerContext& context, Call& call, const http::Responder& responder) {
  begin_answer(context, call, responder, api::AnswerKind::kCompletion,
               api::parse_completion_request(call.request.body));
}

}  // namespace skein::endpoints
