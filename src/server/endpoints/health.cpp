// Whether the server is alive, whether it is ready, what it is, and how it does.
#include <algorithm>

#include "server/endpoints/endpoints.h"

namespace skein {
namespace {

constexpr uint64_t kRetryS = 2;  // of a probe that found the server not ready

// Why requests should go elsewhere; null when they should come.
const char* why_not_ready(const ServerContext& context) {
  if (context.draining) return "draining";
  if (!context.ready) return "loading";
  for (const ModelStatus& model : context.models.models()) {
    if (!model.served) continue;
    const EngineState state = model.served->snapshot().state;
    if (state == EngineState::kHung || state == EngineState::kFailed) return name_of(state);
  }
  return nullptr;
}

http::Response status_response(int status, std::string_view word) {
  return {.status = status, .body = std::string(R"({"status":")").append(word).append("\"}")};
}

void health(const ServerContext& context, const http::Responder& responder) {
  const char* why = why_not_ready(context);
  // A full disk stops uploads and batches; answers go on.
  const char* well = context.store.space().is_low() ? "degraded" : "ok";
  http::Response response = why == nullptr ? status_response(200, well) : status_response(503, why);
  if (why != nullptr) response.headers.push_back({"Retry-After", std::to_string(kRetryS)});
  responder.send(std::move(response));
}

}  // namespace

void bind_health(Router& router, ServerContext& context) {
  router.bind(Endpoint::kHealth, [&context](const Call&, const http::Responder& responder) {
    health(context, responder);
  });
  router.bind(Endpoint::kLive, [](const Call&, const http::Responder& responder) {
    responder.send(status_response(200, "ok"));
  });
  router.bind(Endpoint::kVersion, [&context](const Call&, const http::Responder& responder) {
    responder.send({.body = R"({"version":")" + context.version + "\"}"});
  });
  router.bind(Endpoint::kMetrics, [&context](const Call&, const http::Responder& responder) {
    context.metrics.set_state_free_bytes(context.store.space().free_bytes());
    responder.send({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                    .body = context.metrics.page(context.models)});
  });
}

}  // namespace skein
