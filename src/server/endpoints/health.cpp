// Whether the server is alive, whether it is ready, what it is, and how it does.

#include "server/context.h"
#include "server/router.h"

namespace skein::endpoints {
namespace {

constexpr uint64_t kRetryS = 2;  // of a probe that found the server not ready

http::Response status_response(int status, std::string_view word) {
  return {.status = status, .body = std::string(R"({"status":")").append(word).append("\"}")};
}

// Tells the metrics how much each budget has given out.
void note_budgets(const ServerContext& context) {
  Metrics& metrics = context.metrics;
  const ManagerStats models = context.models.stats();
  const FileBudget& files = context.store.file_budget();
  metrics.set_state_free_bytes(context.store.space().free_bytes());
  if (context.store.is_shared()) {
    metrics.set_store(context.store.away_s(), context.store.nodes());
  }
  metrics.set_budget("requests", context.memory.used_bytes(), context.memory.limit_bytes());
  metrics.set_budget("models", models.used_bytes, models.limit_bytes);
  metrics.set_budget("files", files.used_bytes(), files.limit_bytes());
}

// Without the models that the caller may not use.
std::string metrics_page(const ServerContext& context, const Principal& who) {
  return context.metrics.page(context.models,
                              [&who](std::string_view model) { return who.may_use(model); });
}

api::Error busy() {
  return {.status = 503,
          .message = "Too many ask for the metrics at once; try again later.",
          .code = "unavailable",
          .retry_after_s = kRetryS};
}

}  // namespace

void health(ServerContext& context, Call&, const http::Responder& responder) {
  const char* why = context.why_not_ready();
  // A full disk, or a shared store that is away, stops uploads and batches; answers go on.
  const bool is_degraded = context.store.space().is_low() || context.store.away_s() > 0;
  const char* well = is_degraded ? "degraded" : "ok";
  http::Response response = why == nullptr ? status_response(200, well) : status_response(503, why);
  if (why != nullptr) response.headers.push_back({"Retry-After", std::to_string(kRetryS)});
  responder.send(std::move(response));
}

void live(ServerContext&, Call&, const http::Responder& responder) {
  responder.send(status_response(200, "ok"));
}

void version(ServerContext& context, Call&, const http::Responder& responder) {
  responder.send({.body = R"({"version":")" + context.settings.version + "\"}"});
}

// The page of many models takes milliseconds: too long for an I/O thread, and whoever watches the
// server must not wait for the text work of others.
void metrics(ServerContext& context, Call& call, const http::Responder& responder) {
  const auto scrape = [&context, call, responder] {
    note_budgets(context);
    responder.send({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                    .body = metrics_page(context, *call.principal)});
  };
  const auto refuse = [call, responder] {
    responder.send(error_response(call.route->dialect, busy()));
  };
  if (!context.scrapes.post(Priority::NORMAL, "", scrape, refuse)) refuse();
}

}  // namespace skein::endpoints
