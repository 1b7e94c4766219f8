#include "server/endpoints/reply.h"

#include <charconv>
#include <memory>
#include <thread>
#include <utility>

#include "base/log.h"
#include "server/answer/prompts.h"

namespace skein {
namespace {

std::optional<uint32_t> number_of(std::string_view text) {
  uint32_t number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return number;
}

}  // namespace

void send_error(const Call& call, const http::Responder& responder, const api::Error& error) {
  responder.send(error_response(call.route->dialect, error));
}

void send_json(const http::Responder& responder, std::string body) {
  responder.send({.body = std::move(body)});
}

void send_store_error(const Call& call, const http::Responder& responder, const Status& status) {
  const api::Error error = api::storage_failed(status);
  if (error.status >= 500)
    log_error("{} {}: {}", call.route->method, call.route->pattern, status.message());
  send_error(call, responder, error);
}

api::Parsed<ListOptions> list_options(const http::RequestHead& head, uint32_t default_limit,
                                      uint32_t max_limit) {
  ListOptions options;
  options.after = head.query_value("after").value_or("");
  options.purpose = head.query_value("purpose").value_or("");
  options.limit = default_limit;
  if (const auto text = head.query_value("limit")) {
    const auto limit = number_of(*text);
    if (!limit || *limit < 1 || *limit > max_limit) {
      return api::invalid_field("limit", fmt::format("1 to {} is expected here.", max_limit));
    }
    options.limit = *limit;
  }
  const std::string order = head.query_value("order").value_or("desc");
  if (order != "asc" && order != "desc") {
    return api::invalid_field("order", "asc or desc is expected here.");
  }
  options.oldest_first = order == "asc";
  return options;
}

std::string sampling_json(const SamplingParams& params, std::string_view source) {
  std::string out = "{";
  const auto append = [&out](std::string_view name, float value) {
    json::append_name(out, name);
    out.append(fmt::format("{}", value));  // 0.2, where the nearest double has more digits
  };
  append("temperature", params.temperature);
  append("top_p", params.top_p);
  append("min_p", params.min_p);
  json::append_member(out, "top_k", params.top_k);
  append("typical_p", params.typical_p);
  append("repetition_penalty", params.repetition_penalty);
  if (!source.empty()) json::append_member(out, "from", source);
  return out.append("}");
}

void on_worker(ServerContext& context, const Caller& caller, const http::Responder& responder,
               std::function<void()> run) {
  const auto refuse = [&context, dialect = caller.dialect, responder] {
    responder.send(error_response(dialect, context.no_worker()));
  };
  if (!context.workers.post(caller.priority, caller.key_id, std::move(run), refuse)) refuse();
}

void with_model(ServerContext& context, const Call& call, const std::string& wanted,
                const http::Responder& responder, ModelWork work) {
  auto id = model_for(context, *call.principal, wanted);
  if (!id.ok()) return send_error(call, responder, id.error());
  const auto here = std::this_thread::get_id();
  context.models.acquire(*id, [&context, caller = Caller(call), here, responder, model = *id,
                               work = std::move(work)](Result<ModelLease> lease) mutable {
    if (!lease.ok()) {
      responder.send(error_response(caller.dialect, api::model_load_failed(model, lease.status())));
      return;
    }
    if (std::this_thread::get_id() == here) return work(**lease);
    // The loading thread has other models to load.
    const auto shared = std::make_shared<ModelLease>(std::move(*lease));
    on_worker(context, caller, responder, [shared, work = std::move(work)] { work(**shared); });
  });
}

}  // namespace skein
