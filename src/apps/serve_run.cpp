#include "apps/serve_run.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "apps/load_progress.h"
#include "apps/model_options.h"
#include "apps/model_path.h"
#include "apps/model_table.h"
#include "apps/serve_events.h"
#include "apps/service_notify.h"
#include "apps/state_dir.h"
#include "base/background_log.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/load_served_model.h"
#include "server/server.h"
#include "server/store/random.h"

namespace skein::apps {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kRedraw{100};
constexpr milliseconds kForEver{24 * 3600 * 1000};

TimeUs to_us(double seconds) {
  return static_cast<TimeUs>(std::llround(seconds * kUsPerSecond));
}

// Ends the process without destructors, which could wait for what never comes.
[[noreturn]] void leave(const CommandResult& result) {
  if (!result.message().empty()) std::fprintf(stderr, "skein: %s\n", result.message().c_str());
  std::fflush(nullptr);
  flush_log();
  ::_exit(result.exit_status());
}

// Every stream is a file; the usual soft limit of 1,024 is for programs that use select().
void raise_file_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) log_warning("the file limit could not be raised");
}

LogLevel log_level_of(const std::string& name) {
  constexpr std::pair<const char*, LogLevel> kLevels[] = {{"debug", LogLevel::kDebug},
                                                          {"info", LogLevel::kInfo},
                                                          {"warning", LogLevel::kWarning},
                                                          {"error", LogLevel::kError}};
  for (const auto& [word, level] : kLevels) {
    if (name == word) return level;
  }
  return LogLevel::kOff;
}

ModelFlags model_flags(const ServeOptions& options) {
  ModelFlags flags;
  flags.precision = options.precision;
  flags.kv_dtype = options.kv_dtype;
  flags.isa = options.cpu_isa == "auto" ? "" : options.cpu_isa;
  flags.threads = static_cast<uint32_t>(options.threads);
  flags.max_context = static_cast<uint32_t>(options.max_context);
  return flags;
}

ServingOptions serving_options(const ServeOptions& options) {
  const ModelFlags flags = model_flags(options);
  ServingOptions serving;
  serving.enable_batching = options.enable_batching;
  serving.batch_block_pool_size = static_cast<uint32_t>(options.batch_block_pool_size);
  serving.batch_max_batch_size = static_cast<uint32_t>(options.batch_max_batch_size);
  serving.max_queue = static_cast<uint32_t>(options.max_queue);
  serving.step_tokens = static_cast<uint32_t>(options.step_tokens);
  serving.prefix_cache = options.prefix_cache;
  serving.us_per_class = to_us(1 / options.aging_rate);
  serving.inter_token_target_us = to_us(options.inter_token_target_ms / 1000);
  serving.max_slowdown_percent = static_cast<uint32_t>(std::lround(100 * options.max_slowdown));
  serving.step_timeout_us = to_us(options.step_timeout);
  serving.stall_timeout_us = to_us(options.stall_timeout);
  serving.model.precision = precision_of(flags);
  serving.model.kv_type = kv_type_of(flags);
  if (!flags.isa.empty()) serving.model.isa = flags.isa;
  serving.model.max_context = flags.max_context;
  fill_random(std::as_writable_bytes(std::span(&serving.hash_key, 1)));
  return serving;
}

// 127.0.0.1:9090, [::]:9090 or name:9090.
Result<http::ServerOptions::Probe> parse_listen(std::string_view text) {
  const size_t colon = text.rfind(':');
  const std::string_view digits = text.substr(std::min(colon, text.size() - 1) + 1);
  std::string_view host = text.substr(0, std::min(colon, text.size()));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (colon == std::string_view::npos || host.empty() || error != std::errc() ||
      end != digits.data() + digits.size()) {
    return invalid_argument("--probe-listen '{}': it must be ADDR:PORT, as in 0.0.0.0:9090", text);
  }
  return http::ServerOptions::Probe{std::string(host), port};
}

Result<http::ServerOptions> http_options(const ServeOptions& options) {
  http::ServerOptions http;
  http.host = options.host;
  http.port = static_cast<uint16_t>(options.port);
  http.io_threads = options.io_threads;
  http.worker_threads = options.worker_threads;
  http.max_connections = options.max_connections;
  http.cors_origins = options.cors_origin;
  http.max_waiting_per_address = options.max_idle_per_address;
  for (const std::string& proxy : options.trusted_proxy) {
    SKEIN_ASSIGN(const http::AddressRange range, http::parse_address_range(proxy));
    http.trusted_proxies.push_back(range);
  }
  if (!options.probe_listen.empty()) {
    SKEIN_ASSIGN(http.probe, parse_listen(options.probe_listen));
  }
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    return invalid_argument("--tls-cert and --tls-key go together; only {} was given",
                            options.tls_key.empty() ? "--tls-cert" : "--tls-key");
  }
  if (!options.tls_cert.empty()) http.tls = http::TlsFiles{options.tls_cert, options.tls_key};
  return http;
}

// What clients may call a server without keys, beside localhost and the bound name.
Result<std::vector<std::string>> allowed_hosts(const ServeOptions& options) {
  std::vector<std::string> hosts = options.allow_host;
  for (const std::string& host : hosts) {
    const bool is_v6 = host.starts_with('[') && host.ends_with(']');
    if (host.empty() || host.find_first_of(is_v6 ? "/ *" : "/ *:") != std::string::npos) {
      return invalid_argument(
          "--allow-host {}: it must be a name or an address alone, as in llm.example.org", host);
    }
  }
  std::array<char, 256> name{};
  if (options.insecure_open && ::gethostname(name.data(), name.size() - 1) == 0) {
    const std::string whole = name.data();
    hosts.push_back(whole);
    hosts.push_back(whole.substr(0, whole.find('.')));
  }
  return hosts;
}

// host:port for a URL; an IPv6 address stands in brackets.
std::string authority_of(const std::string& host, uint16_t port) {
  const bool is_v6 = host.find(':') != std::string::npos && host.front() != '[';
  return is_v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

class ServeRun {
 public:
  explicit ServeRun(const ServeOptions& options) : options_(options), signals_(events_) {}

  CommandResult run();

 private:
  Status start();
  Status add_models();
  Status start_server();
  void announce() const;
  void begin_loading();
  std::optional<CommandResult> load();
  void serve();
  void reload();
  void stay_alive() const;
  CommandResult stop(CommandResult result);
  bool is_loading() const;

  const ServeOptions& options_;
  ServeEvents events_;
  ServeSignals signals_;  // before everything that has threads
  BackgroundLog log_;
  ServiceNotifier notifier_;
  SystemClock clock_;
  ModelFolders folders_;
  std::vector<ModelConfig> first_;  // load at the start
  std::vector<ModelConfig> known_;  // all
  LoadShare load_share_;
  std::unique_ptr<ComputePool> pool_;
  std::unique_ptr<SchedulerManager> manager_;
  std::unique_ptr<Server> server_;
};

Status ServeRun::start() {
  folders_ = model_folders();
  if (!options_.model_folder.empty()) folders_.models = options_.model_folder;
  SKEIN_ASSIGN(first_, models_to_load(options_.model, options_.served_model_name, folders_));
  raise_file_limit();
  pool_ = make_pool(model_flags(options_));
  SchedulerManager::Options manager;
  manager.memory_bytes = options_.memory.value != 0 ? options_.memory.value : available_memory();
  manager.max_models = static_cast<uint32_t>(options_.max_models);
  ServingOptions serving = serving_options(options_);
  serving.model.report = [this](uint64_t done, uint64_t all) { load_share_.report(done, all); };
  manager_ = std::make_unique<SchedulerManager>(manager, make_model_loader(serving, *pool_, clock_),
                                                clock_);
  SKEIN_TRY(add_models());
  return start_server();
}

// Those of the command line first: the first of all is what an absent `model` means.
Status ServeRun::add_models() {
  known_ = first_;
  for (ModelConfig& config : models_in_folder(folders_.models, known_)) {
    known_.push_back(std::move(config));
  }
  if (known_.empty()) {
    return not_found("there is no model to serve: give --model, or put one into {}",
                     folders_.models.empty() ? "a --model-folder" : folders_.models);
  }
  for (const ModelConfig& config : known_) SKEIN_TRY(manager_->add(config));
  return {};
}

Status ServeRun::start_server() {
  ServerSettings settings;
  SKEIN_ASSIGN(settings.http, http_options(options_));
  settings.state_dir = options_.state_dir.empty() ? default_state_dir() : options_.state_dir;
  if (settings.state_dir.empty()) {
    return invalid_argument("neither XDG_STATE_HOME nor HOME is set: give --state-dir");
  }
  settings.default_model = known_.front().id;
  settings.version = SKEIN_VERSION;
  settings.share_prefixes = options_.share_prefixes;
  settings.insecure_open = options_.insecure_open;
  SKEIN_ASSIGN(settings.allow_hosts, allowed_hosts(options_));
  settings.batch_lines = options_.batch_lines;
  if (options_.log_requests) {
    settings.log_request = [](const FinishedRequest& request) {
      log_info("request {}", log_line(request));
    };
  }
  settings.on_drain_request = [this] { events_.push({ServeEvent::Kind::kStop, 0, {}}); };
  SKEIN_ASSIGN(server_, Server::create(std::move(settings), *manager_, clock_));
  return server_->start();
}

void ServeRun::announce() const {
  const char* scheme = options_.tls_cert.empty() ? "http" : "https";
  std::printf("skein %s listens on %s://%s\n", SKEIN_VERSION, scheme,
              authority_of(options_.host, server_->port()).c_str());
  if (server_->probe_port() != 0) log_info("probes are answered on port {}", server_->probe_port());
  std::fflush(stdout);
}

void ServeRun::begin_loading() {
  for (size_t i = 0; i < first_.size(); ++i) {
    manager_->acquire(first_[i].id, [this, i](const Result<ModelLease>& lease) {
      events_.push({ServeEvent::Kind::kLoaded, i, lease.status()});
    });
  }
}

// Nothing when the models are there; otherwise how the run ends.
std::optional<CommandResult> ServeRun::load() {
  std::vector<std::string> ids;
  for (const ModelConfig& config : first_) ids.push_back(config.id);
  LoadProgress progress(std::move(ids), load_share_);
  notifier_.status("loading");
  begin_loading();
  for (size_t left = first_.size(); left > 0;) {
    progress.draw();
    const std::optional<ServeEvent> event = events_.pop(kRedraw);
    if (!event) continue;
    progress.clear();
    if (event->kind == ServeEvent::Kind::kStop) return stop({});
    if (event->kind == ServeEvent::Kind::kReload) {
      reload();
      continue;
    }
    if (!event->status.ok()) {
      return stop(Status(event->status.code(),
                         fmt::format("model {} could not be loaded: {}", first_[event->model].id,
                                     event->status.message())));
    }
    progress.done(event->model);
    --left;
  }
  return std::nullopt;
}

void ServeRun::serve() {
  const milliseconds patience = notifier_.watchdog_interval().value_or(kForEver);
  while (true) {
    const std::optional<ServeEvent> event = events_.pop(patience);
    if (!event) {
      stay_alive();
    } else if (event->kind == ServeEvent::Kind::kStop) {
      return;
    } else if (event->kind == ServeEvent::Kind::kReload) {
      notifier_.reloading();
      reload();
      notifier_.ready();
    }
  }
}

// A service manager that hears nothing starts the server again, which is what a hung step needs.
void ServeRun::stay_alive() const {
  for (const ModelStatus& model : manager_->models()) {
    if (model.served && model.served->snapshot().state == EngineState::kHung) return;
  }
  notifier_.alive();
}

void ServeRun::reload() {
  server_->reload_keys();
  size_t added = 0;
  for (ModelConfig& config : models_in_folder(folders_.models, known_)) {
    if (!manager_->add(config).ok()) continue;
    known_.push_back(std::move(config));
    ++added;
  }
  log_info("keys and model folder read again: {} new models", added);
}

bool ServeRun::is_loading() const {
  const std::vector<ModelStatus> models = manager_->models();
  return std::any_of(models.begin(), models.end(),
                     [](const ModelStatus& model) { return model.state == ModelState::kLoading; });
}

CommandResult ServeRun::stop(CommandResult result) {
  const milliseconds grace(static_cast<int64_t>(options_.drain_timeout * 1000));
  const auto until = steady_clock::now() + grace;
  notifier_.stopping();
  log_info("draining: no new work, running requests have {} s to end", options_.drain_timeout);
  server_->drain();
  if (!server_->stop(grace)) {
    log_warning("the drain timeout of {} s is over; what still ran was cut off",
                options_.drain_timeout);
  }
  // A load cannot be called off, and nothing that it does needs an orderly end.
  if (is_loading()) leave(result);
  const auto left = std::max(until - steady_clock::now(), steady_clock::duration::zero());
  const auto left_us = std::chrono::duration_cast<std::chrono::microseconds>(left).count();
  // The engines before the server: what they still have to say goes to its streams.
  if (!manager_->shutdown(left_us)) leave(result);
  server_.reset();
  log_info("stopped");
  return result;
}

CommandResult ServeRun::run() {
  if (Status started = start(); !started.ok()) return started;
  announce();
  if (std::optional<CommandResult> ended = load()) return *ended;
  server_->set_ready();
  notifier_.ready();
  log_info("ready: {} models loaded, {} more in the folder", first_.size(),
           known_.size() - first_.size());
  serve();
  return stop({});
}

}  // namespace

CommandResult run_server(const ServeOptions& options) {
  set_log_level(log_level_of(options.log_level));
  return ServeRun(options).run();
}

}  // namespace skein::apps
