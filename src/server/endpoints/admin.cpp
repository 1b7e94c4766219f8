// /admin: models in and out of memory, keys, drain and figures. The gate lets admins in alone.
#include <map>
#include <utility>

#include "base/log.h"
#include "server/api/fields.h"
#include "server/auth/api_key.h"
#include "server/endpoints/reply.h"
#include "server/json.h"
#include "server/live/live_text.h"

namespace skein::endpoints {
namespace {

constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxModels = 1024;
constexpr int64_t kMaxRate = 1'000'000'000;

void answer(const http::Responder& responder, const json::Value& body, int status = 200) {
  responder.send(
      {.status = status, .body = body.dump(-1, ' ', false, json::Value::error_handler_t::replace)});
}

// Why something that the admin asked for by name cannot be had; `missing` is for an unknown name.
api::Error error_of(const Status& status, api::Error missing) {
  return status.code() == Code::kNotFound ? std::move(missing) : api::from_status(status);
}

// ---- models ----

struct WantedModel {
  std::string id;
  bool force = false;  // of a load: also where the last one killed the server
};

api::Parsed<WantedModel> model_of(const Call& call) {
  auto body = api::parse_body(call.request.body);
  if (!body.ok()) return body.error();
  api::Problem problem;
  const api::Fields fields(*body, "", problem);
  WantedModel wanted{fields.required_string("model", kMaxNameBytes),
                     fields.boolean("force").value_or(false)};
  if (problem) return *problem;
  return wanted;
}

// Who loads models learns more than a client does.
api::Error load_error(const std::string& id, const Status& status) {
  if (status.code() == Code::kNotFound) return api::model_not_found(id);
  api::Error error = api::model_load_failed(id, status);
  if (status.code() == Code::kDataLoss) error.message = status.message();
  return error;
}

void answer_model(const http::Responder& responder, const std::string& id, const char* state) {
  answer(responder, {{"id", id}, {"object", "model"}, {"state", state}});
}

void forgive(ServerContext& context, const std::string& id) {
  for (const ModelStatus& model : context.models.models()) {
    if (model.config.id == id) context.store.quarantine().forgive(model.config.path);
  }
}

// ---- keys ----

json::Value json_of(const KeyRecord& key) {
  json::Value out = {{"id", key.id},
                     {"object", "key"},
                     {"name", key.name},
                     {"tier", name_of(key.tier)},
                     {"models", key.models},
                     {"rpm", key.requests_per_minute},
                     {"tokens_per_minute", key.tokens_per_minute},
                     {"admin", key.admin},
                     {"created_at", key.created_at_s}};
  const auto time_of = [](int64_t at_s) { return at_s == 0 ? json::Value() : json::Value(at_s); };
  out["rotated_at"] = time_of(key.rotated_at_s);
  out["revoked_at"] = time_of(key.revoked_at_s);
  return out;
}

json::Value json_of(const UsageCounts& usage) {
  return {{"requests", usage.requests},
          {"prompt_tokens", usage.prompt_tokens},
          {"cached_tokens", usage.cached_tokens},
          {"output_tokens", usage.output_tokens}};
}

api::Parsed<KeyRecord> key_of(const Call& call) {
  auto body = api::parse_body(call.request.body);
  if (!body.ok()) return body.error();
  api::Problem problem;
  const api::Fields fields(*body, "", problem);
  KeyRecord key;
  key.name = fields.required_string("name", kMaxNameBytes);
  key.tier = static_cast<Priority>(fields.choice("tier", {"high", "normal", "low"})
                                       .value_or(static_cast<size_t>(Priority::NORMAL)));
  fields.for_each("models", kMaxModels, [&](const json::Value& model, const std::string& path) {
    if (model.is_string() && is_model_name(model.get_ref<const std::string&>())) {
      key.models.push_back(model.get<std::string>());
    } else {
      problem =
          api::invalid_field(path, "This must be the name of a model, without control characters.");
    }
  });
  key.requests_per_minute = static_cast<uint32_t>(fields.integer("rpm", 0, kMaxRate).value_or(0));
  key.tokens_per_minute =
      static_cast<uint64_t>(fields.integer("tokens_per_minute", 0, kMaxRate).value_or(0));
  key.admin = fields.boolean("admin").value_or(false);
  if (problem) return *problem;
  return key;
}

// The record with its secret, which is shown this once.
Done<KeyRecord> shows_key(const Call& call, const http::Responder& responder, std::string secret) {
  return [call, responder, secret = std::move(secret)](const Result<KeyRecord>& key) {
    if (!key.ok()) return send_store_error(call, responder, key.status());
    json::Value body = json_of(*key);
    body["key"] = key_text(key->id, secret);
    answer(responder, body);
  };
}

// Answers about a key that this server refuses already although the store did not take it.
void send_unwritten(const Call& call, const http::Responder& responder, const Status& status,
                    std::string_view what, std::string_view next) {
  api::Error error = api::storage_failed(status);
  if (error.status < 500) return send_error(call, responder, error);
  log_error("{} {}: {}", call.route->method, call.route->pattern, status.message());
  error.message = fmt::format(
      "{} is refused by this server from now on, but that could not be written: after a restart it "
      "would be valid again. {} {}",
      what, error.message, next);
  send_error(call, responder, error);
}

// ---- figures ----

json::Value engine_figures(const EngineSnapshot& snapshot) {
  const SchedulerStats& stats = snapshot.scheduler;
  json::Value waiting = json::Value::object();
  for (uint32_t p = 0; p < kPriorities; ++p) {
    waiting[std::string(name_of(static_cast<Priority>(p)))] = stats.waiting[p];
  }
  return {
      {"state", name_of(snapshot.state)},
      {"live_requests", snapshot.live},
      {"waiting", std::move(waiting)},
      {"prefilling", stats.prefilling},
      {"running", stats.running},
      {"kv_blocks",
       {{"pool", stats.pool_blocks}, {"held", stats.held_blocks}, {"cached", stats.cached_blocks}}},
      {"steps", stats.steps},
      {"computed_tokens", stats.computed_tokens},
      {"generated_tokens", stats.generated_tokens},
      {"wasted_tokens", stats.wasted_tokens},
      {"prefix_query_tokens", stats.prefix_query_tokens},
      {"prefix_hit_tokens", stats.prefix_hit_tokens},
      {"preemptions", stats.preemptions},
      {"last_step_ms", static_cast<double>(snapshot.last_step_us) / kUsPerMs},
      {"faults", snapshot.faults}};
}

json::Value model_figures(const ModelStatus& model) {
  json::Value out = {{"id", model.config.id},
                     {"state", name_of(model.state)},
                     {"pinned", model.config.pinned},
                     {"leases", model.leases}};
  if (!model.failure.ok()) out["failure"] = model.failure.message();
  if (!model.served) return out;
  out["weight_bytes"] = model.served->weight_bytes();
  out["kv_bytes"] = model.served->kv_bytes();
  out["max_request_tokens"] = model.served->max_request_tokens();
  out["direct_requests"] = model.served->direct_requests();
  out["rebuilds"] = model.served->rebuilds();
  EngineSnapshot snapshot = model.served->snapshot();
  add_counts(snapshot, model.past);
  out["engine"] = engine_figures(snapshot);
  return out;
}

}  // namespace

void load_model(ServerContext& context, Call& call, const http::Responder& responder) {
  auto wanted = model_of(call);
  if (!wanted.ok()) return send_error(call, responder, wanted.error());
  if (wanted->force) forgive(context, wanted->id);
  // Loading takes its time; nobody waits here for it.
  context.models.acquire(wanted->id,
                         [call, responder, id = wanted->id](const Result<ModelLease>& lease) {
                           if (lease.ok()) return answer_model(responder, id, "ready");
                           send_error(call, responder, load_error(id, lease.status()));
                         });
}

void unload_model(ServerContext& context, Call& call, const http::Responder& responder) {
  auto wanted = model_of(call);
  if (!wanted.ok()) return send_error(call, responder, wanted.error());
  const Status unloaded = context.models.unload(wanted->id);
  if (unloaded.ok()) return answer_model(responder, wanted->id, "unloaded");
  if (unloaded.code() == Code::kUnavailable) {
    return send_error(call, responder,
                      {.status = 409,
                       .message = "The model is in use; try again when its requests have ended.",
                       .param = "model",
                       .code = "model_in_use"});
  }
  send_error(call, responder, error_of(unloaded, api::model_not_found(wanted->id)));
}

void list_keys(ServerContext& context, Call& call, const http::Responder& responder) {
  using Keys = std::vector<KeyRecord>;
  using Usage = std::vector<OwnerUsage>;
  const auto keys =
      await<Keys>([&](Done<Keys> done) { context.store.keys().list(std::move(done)); });
  if (!keys.ok()) return send_store_error(call, responder, keys.status());
  const auto usage =
      await<Usage>([&](Done<Usage> done) { context.store.keys().usage(std::move(done)); });
  if (!usage.ok()) return send_store_error(call, responder, usage.status());
  std::map<std::string, UsageCounts> by_owner;
  for (const OwnerUsage& one : *usage) by_owner[one.owner] = one.counts;
  json::Value data = json::Value::array();
  for (const KeyRecord& key : *keys) {
    data.push_back(json_of(key));
    data.back()["usage"] = json_of(by_owner[key.id]);
  }
  answer(responder, {{"object", "list"}, {"data", std::move(data)}});
}

void add_key(ServerContext& context, Call& call, const http::Responder& responder) {
  auto key = key_of(call);
  if (!key.ok()) return send_error(call, responder, key.error());
  std::string secret = make_secret();
  const KeyDigest digest = digest_secret(secret);
  key->id = make_key_id();
  key->salt = digest.salt;
  key->digest = digest.digest;
  context.store.keys().add(*key, shows_key(call, responder, std::move(secret)));
}

void rotate_key(ServerContext& context, Call& call, const http::Responder& responder) {
  context.keys.bar(call.id, KeyRing::Bar::kSecret);
  std::string secret = make_secret();
  const KeyDigest digest = digest_secret(secret);
  context.store.keys().rotate(
      call.id, digest,
      [call, responder,
       show = shows_key(call, responder, std::move(secret))](const Result<KeyRecord>& key) {
        if (key.ok()) return show(key);
        send_unwritten(call, responder, key.status(), "The old secret", "Then do this again.");
      });
}

void revoke_key(ServerContext& context, Call& call, const http::Responder& responder) {
  context.keys.bar(call.id, KeyRing::Bar::kKey);
  context.store.keys().revoke(call.id, [call, responder](const Result<KeyRecord>& key) {
    if (!key.ok())
      return send_unwritten(call, responder, key.status(), "The key",
                            "Until then the server tries again by itself.");
    answer(responder, json_of(*key));
  });
}

void drain(ServerContext& context, Call& call, const http::Responder& responder) {
  log_info("drain asked for by {}", call.principal->name);
  // The answer first: it is the last one that is sure to leave.
  answer(responder, {{"status", "draining"}}, 202);
  context.settings.on_drain_request();
}

void stats(ServerContext& context, Call&, const http::Responder& responder) {
  const ManagerStats loads = context.models.stats();
  json::Value models = json::Value::array();
  for (const ModelStatus& model : context.models.models()) models.push_back(model_figures(model));
  answer(responder, {{"version", context.settings.version},
                     {"ready", context.ready.load()},
                     {"draining", context.draining.load()},
                     {"live_requests", context.live.size()},
                     {"loads", loads.loads},
                     {"failed_loads", loads.failed_loads},
                     {"evictions", loads.evictions},
                     {"direct_requests", loads.direct_requests},
                     {"models", std::move(models)}});
}

}  // namespace skein::endpoints
