#include "apps/serve_settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <set>
#include <system_error>
#include <type_traits>
#include <unistd.h>
#include <utility>

#include "base/log.h"
#include "base/resources.h"
#include "format/quote.h"
#include "server/store/random.h"

namespace skein::apps {
namespace {

namespace fs = std::filesystem;

// Requests in a step where the user names no number: as many always, and as many at most.
constexpr uint32_t kSureBatch = 32;
constexpr uint32_t kMostByItself = 128;

// A name that goes into JSON, URLs and metrics: UTF-8 would do, but file names need not be any.
bool is_servable(const std::string& id) {
  return !id.empty() &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

// The same for two ways to one file.
std::string identity_of(const std::string& path) {
  std::error_code error;
  const fs::path canonical = fs::canonical(path, error);
  return error ? path : canonical.string();
}

// A snapshot of the Hugging Face cache is named by its revision, so the user's word is better.
std::string id_of(const std::string& model, const std::string& path) {
  const bool is_snapshot = fs::path(path).parent_path().filename() == "snapshots";
  return is_snapshot ? model : stem_of_model(path);
}

// Stands in serve_options.def where no setting gets the value.
constexpr struct ByName {
} by_name;

// A setting whose unit differs from its option's.
template <class T, class Convert>
struct Converted {
  T& to;
  Convert convert;
};
template <class T, class Convert>
Converted(T&, Convert) -> Converted<T, Convert>;

TimeUs to_us(double seconds) {
  return static_cast<TimeUs>(std::llround(seconds * kUsPerSecond));
}

auto in_seconds(TimeUs& to) {
  return Converted{to, to_us};
}
auto in_ms(TimeUs& to) {
  return Converted{to, [](double ms) { return to_us(ms / 1000); }};
}
auto per_second(TimeUs& to) {
  return Converted{to, [](double rate) { return to_us(1 / rate); }};
}
auto in_hundredths(uint32_t& to) {
  return Converted{to,
                   [](double share) { return static_cast<uint32_t>(std::lround(100 * share)); }};
}

// A word that its option's check has let through.
struct NamedSpeculation {
  Speculation& to;
};
NamedSpeculation named_speculation(Speculation& to) {
  return {to};
}

template <class Option>
void set(ByName, const Option&) {}
void set(NamedSpeculation target, const std::string& name) {
  target.to = speculation_of(name).value_or(Speculation::kOff);
}
template <class T, class Convert>
void set(Converted<T, Convert> target, double value) {
  target.to = target.convert(value);
}
void set(uint64_t& target, Bytes value) {
  target = value.value;
}
template <class T, class Option>
requires std::is_convertible_v<Option, T>
void set(T& target, const Option& value) {
  target = static_cast<T>(value);
}

// 127.0.0.1:9090, [::]:9090 or name:9090.
Result<http::ServerOptions::Probe> parse_listen(const char* option, std::string_view text) {
  const size_t colon = text.rfind(':');
  const std::string_view digits = text.substr(std::min(colon, text.size() - 1) + 1);
  std::string_view host = text.substr(0, std::min(colon, text.size()));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (colon == std::string_view::npos || host.empty() || error != std::errc() ||
      end != digits.data() + digits.size()) {
    return invalid_argument("{} '{}': it must be ADDR:PORT, as in 127.0.0.1:9090", option, text);
  }
  return http::ServerOptions::Probe{std::string(host), port};
}

Status complete_http(const ServeOptions& options, http::ServerOptions& http) {
  for (const std::string& proxy : options.trusted_proxy) {
    SKEIN_ASSIGN(const http::AddressRange range, http::parse_address_range(proxy));
    http.trusted_proxies.push_back(range);
  }
  if (!options.probe_listen.empty()) {
    SKEIN_ASSIGN(http.probe, parse_listen("--probe-listen", options.probe_listen));
  }
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    return invalid_argument("--tls-cert and --tls-key go together; only {} was given",
                            options.tls_key.empty() ? "--tls-cert" : "--tls-key");
  }
  if (!options.tls_cert.empty()) http.tls = http::TlsFiles{options.tls_cert, options.tls_key};
  return {};
}

Status complete_kv_events(const ServeOptions& options, KvPublisher::Options& events) {
  if (options.kv_events.empty()) return {};
  SKEIN_ASSIGN(const auto listen, parse_listen("--kv-events", options.kv_events));
  events.host = listen.host;
  events.port = listen.port;
  events.topic = options.kv_events_topic;
  events.insecure_open = options.kv_events_insecure_open;
  events.encoding =
      options.kv_events_encoding == "map" ? KvEventEncoding::kMap : KvEventEncoding::kArray;
  if (options.model.empty()) {
    return invalid_argument(
        "--kv-events is for models that are named with --model; there are none");
  }
  if (!options.enable_batching || !options.prefix_cache) {
    return invalid_argument("--kv-events and {} exclude each other: there is no cache to tell of",
                            options.prefix_cache ? "--no-enable-batching" : "--no-prefix-cache");
  }
  return {};
}

Status complete_grpc(const ServeOptions& options, GrpcSettings& grpc) {
  if (options.grpc.empty()) {
    if (options.grpc_tokenizer.empty()) return {};
    return invalid_argument("--grpc-tokenizer is for --grpc, which was not given");
  }
  if (!has_grpc()) {
    return invalid_argument(
        "--grpc: this skein was built without gRPC; build it with `make build FLEET=1`");
  }
  SKEIN_ASSIGN(const auto listen, parse_listen("--grpc", options.grpc));
  grpc.host = listen.host;
  grpc.port = listen.port;
  grpc.insecure_open = options.grpc_insecure_open;
  if (options.model.empty()) {
    return invalid_argument("--grpc is for models that are named with --model; there are none");
  }
  if (options.grpc_tokenizer.size() > options.model.size()) {
    return invalid_argument("{} folders by --grpc-tokenizer for {} models",
                            options.grpc_tokenizer.size(), options.model.size());
  }
  return {};
}

// Whether a name can stand in ids and headers.
bool is_node_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '_' || c == '-';
  });
}

Status complete_node(const ServeOptions& options, StoreOptions& store) {
  if (!store.node.empty() && !is_node_name(store.node)) {
    return invalid_argument("--node '{}': it must have 1 to 64 letters, digits and any of '._-'",
                            store.node);
  }
  if (!store.node.empty() || store.url.empty()) return {};
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {'h', 'o', 's', 't'};
  const std::string whole = host.data();
  store.node = fmt::format("{}-{}", whole.substr(0, whole.find('.')),
                           options.port == 0 ? static_cast<uint64_t>(::getpid()) : options.port);
  if (is_node_name(store.node)) return {};
  return invalid_argument("the name of this machine cannot be that of a node; give --node");
}

// The names by which clients may call a server without keys, beside localhost and the bound one.
Status complete_hosts(std::vector<std::string>& hosts, bool insecure_open) {
  for (const std::string& host : hosts) {
    const bool is_v6 = host.starts_with('[') && host.ends_with(']');
    if (host.empty() || host.find_first_of(is_v6 ? "/ *" : "/ *:") != std::string::npos) {
      return invalid_argument(
          "--allow-host {}: it must be a name or an address alone, as in llm.example.org", host);
    }
  }
  std::array<char, 256> name{};
  if (insecure_open && ::gethostname(name.data(), name.size() - 1) == 0) {
    const std::string whole = name.data();
    hosts.push_back(whole);
    hosts.push_back(whole.substr(0, whole.find('.')));
  }
  return {};
}

}  // namespace

Result<std::vector<ModelConfig>> models_to_load(const std::vector<std::string>& models,
                                                const std::vector<std::string>& names,
                                                const ModelFolders& folders) {
  if (names.size() > models.size()) {
    return invalid_argument("{} served model names for {} models", names.size(), models.size());
  }
  std::vector<ModelConfig> configs;
  for (size_t i = 0; i < models.size(); ++i) {
    SKEIN_ASSIGN(const std::string path, locate_model(models[i], folders));
    const std::string id = i < names.size() ? names[i] : id_of(models[i], path);
    if (!is_servable(id)) {
      return invalid_argument(
          "{} cannot be a model's name: it must be printable ASCII without "
          "spaces; give one with --served-model-name",
          in_quotes(id));
    }
    for (const ModelConfig& other : configs) {
      if (other.id != id) continue;
      return invalid_argument(
          "two models are called '{}': {} and {}; tell them apart with "
          "--served-model-name",
          id, other.path, path);
    }
    configs.push_back({.id = id, .path = path});
  }
  return configs;
}

std::vector<ModelConfig> models_in_folder(const std::string& models_folder,
                                          const std::vector<ModelConfig>& taken) {
  std::set<std::string> ids;
  std::set<std::string> files;
  for (const ModelConfig& config : taken) {
    ids.insert(config.id);
    files.insert(identity_of(config.path));
  }
  std::vector<ModelConfig> configs;
  for (NamedModel& model : list_models(models_folder)) {
    if (!is_servable(model.name) || !files.insert(identity_of(model.path)).second) continue;
    if (!ids.insert(model.name).second) continue;
    configs.push_back({.id = std::move(model.name), .path = std::move(model.path)});
  }
  return configs;
}

Result<std::vector<SamplingWish>> parse_sampling_wishes(const std::vector<std::string>& texts) {
  std::vector<SamplingWish> wishes;
  for (const std::string& text : texts) {
    const std::string model = text.substr(0, text.find(' '));
    auto values = parse_sampling_values(std::string_view(text).substr(model.size()));
    if (!values.ok()) return invalid_argument("--model-sampling '{}': {}", text, values.message());
    if (model.empty() || values->empty()) {
      return invalid_argument(
          "--model-sampling '{}': it must be a model's name and then values, as in "
          "'NAME temperature=0.2 top_p=0.9'",
          text);
    }
    wishes.push_back({model, std::move(*values)});
  }
  return wishes;
}

Status set_sampling(const std::vector<SamplingWish>& wishes, std::vector<ModelConfig>& models) {
  Status unknown;
  for (const SamplingWish& wish : wishes) {
    const bool is_for_all = wish.model == "*";
    bool found = is_for_all;
    for (ModelConfig& model : models) {
      if (!is_for_all && wish.model != model.id) continue;
      model.sampling.insert(model.sampling.end(), wish.values.begin(), wish.values.end());
      found = true;
    }
    if (!found) unknown = not_found("--model-sampling: no model is called '{}'", wish.model);
  }
  return unknown;
}

Result<std::vector<GrpcSettings::Model>> grpc_models(const std::vector<ModelConfig>& models,
                                                     const std::vector<std::string>& folders) {
  namespace fs = std::filesystem;
  std::vector<GrpcSettings::Model> named;
  for (size_t i = 0; i < models.size(); ++i) {
    const std::string& folder = i < folders.size() ? folders[i] : models[i].path;
    std::error_code error;
    if (!fs::is_regular_file(fs::path(folder) / "tokenizer.json", error)) {
      return not_found(
          "--grpc: {} is no folder with a tokenizer.json, which routers read for '{}'; make one "
          "with "
          "`skein export-tokenizer {} DIR` and give it with --grpc-tokenizer",
          folder, models[i].id, models[i].path);
    }
    named.push_back({models[i].id, fs::absolute(folder, error).string()});
  }
  return named;
}

Result<ServeSettings> serve_settings(const ServeOptions& options) {
  ServeSettings settings;
  auto& [model, serving, manager, server] = settings;
  EngineOptions& engine = serving.engine;
  SchedulerConfig& scheduler = engine.scheduler;
  http::ServerOptions& http = server.http;
  StoreOptions& store = server.store;
#define SKEIN_OPTION(group, type, name, fallback, check, target, help) set(target, options.name);
#include "apps/serve_options.def"
#undef SKEIN_OPTION
  if (model.isa == "auto") model.isa.clear();
  scheduler.step_drafts = kStepDrafts;
  if (scheduler.max_batch == 0) {
    scheduler.max_batch = kMostByItself;
    scheduler.sure_batch = kSureBatch;
  }
  serving.model = model_options(model);
  fill_random(std::as_writable_bytes(std::span(&scheduler.hash_key, 1)));
  server.workers.us_per_class = scheduler.us_per_class;
  server.workers.gives_way = true;
  server.version = SKEIN_VERSION;
  SKEIN_TRY(complete_node(options, store));
  http.node = store.node;
  store.lease_ms = static_cast<int64_t>(options.store_lease) * 1000;
  server.store_grace_s = static_cast<int64_t>(options.store_grace);
  if (server.request_memory_bytes == 0) {
    server.request_memory_bytes =
        std::clamp(available_memory() / 16, uint64_t{128} << 20, uint64_t{1} << 30);
  }
  if (options.log_requests) {
    server.log_request = [](const FinishedRequest& request) {
      log_info("request {}", log_line(request));
    };
  }
  SKEIN_TRY(complete_http(options, http));
  SKEIN_TRY(complete_kv_events(options, server.kv_events.options));
  SKEIN_TRY(complete_grpc(options, server.grpc));
  SKEIN_TRY(complete_hosts(server.allow_hosts, options.insecure_open));
  return settings;
}

}  // namespace skein::apps
