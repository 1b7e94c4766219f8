#include "apps/serve_run.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "apps/files.h"
#include "apps/model_check.h"
#include "apps/options.h"
#include "apps/serve_events.h"
#include "apps/serve_sandbox.h"
#include "apps/serve_settings.h"
#include "apps/terminal.h"
#include "backend/registry.h"
#include "base/log.h"
#include "base/patience.h"
#include "base/sandbox.h"
#include "base/side_process.h"
#include "engine/manager/load_served_model.h"
#include "format/locate.h"
#include "server/observe/traces.h"
#include "server/server.h"
#include "server/store/store.h"

namespace skein::apps {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kRedraw{100};
constexpr milliseconds kForEver{24 * 3600 * 1000};

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

// host:port for a URL; an IPv6 address stands in brackets.
std::string authority_of(const std::string& host, uint16_t port) {
  const bool is_v6 = host.find(':') != std::string::npos && host.front() != '[';
  return is_v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

// ---- before there are threads ----

struct ServeFiles {
  ModelFolders folders;
  std::vector<ModelConfig> first;  // load at the start
  std::vector<ModelConfig> known;  // all, and those of the command line before the others
  std::vector<SamplingWish> sampling;
  std::string draft_model;                // where it is; empty: none
  std::vector<GrpcSettings::Model> grpc;  // of `first`, where --grpc is given
  std::string state_dir;
};

// Errors say what is not there, or what two models are called.
Result<ServeFiles> find_files(const ServeOptions& options) {
  ServeFiles files;
  files.folders = model_folders();
  if (!options.model_folder.empty()) files.folders.models = options.model_folder;
  SKEIN_ASSIGN(files.first,
               models_to_load(options.model, options.served_model_name, files.folders));
  if (!options.draft_model.empty()) {
    SKEIN_ASSIGN(files.draft_model, locate_model(options.draft_model, files.folders));
  }
  if (!options.grpc.empty()) {
    SKEIN_ASSIGN(files.grpc, grpc_models(files.first, options.grpc_tokenizer));
  }
  // Those of the command line first: the first of all is what an absent `model` means.
  files.known = files.first;
  for (ModelConfig& config : models_in_folder(files.folders.models, files.first)) {
    files.known.push_back(std::move(config));
  }
  if (files.known.empty()) {
    return not_found("there is no model to serve: give --model, or put one into {}",
                     files.folders.models.empty() ? "a --model-folder" : files.folders.models);
  }
  SKEIN_ASSIGN(files.sampling, parse_sampling_wishes(options.model_sampling));
  SKEIN_TRY(set_sampling(files.sampling, files.known));
  files.state_dir = options.state_dir.empty() ? default_state_dir() : options.state_dir;
  if (files.state_dir.empty() && options.store.empty()) {
    return invalid_argument("neither XDG_STATE_HOME nor HOME is set: give --state-dir");
  }
  return files;
}

// Gives up what serving does not need, for good, and makes the state folder. The process that reads
// model files before the server does, with fewer rights still. The log says what is in force.
Result<std::unique_ptr<SideProcess>> enter_serve_sandbox(const ServeOptions& options,
                                                         const ServeFiles& files) {
  if (options.store.empty()) SKEIN_TRY(make_state_dir(files.state_dir));
  std::vector<std::string> paths;
  for (const ModelConfig& config : files.known) paths.push_back(config.path);
  if (!files.draft_model.empty()) paths.push_back(files.draft_model);
  SandboxRules rules = serve_sandbox(options, files.folders, paths, files.state_dir);
  if (!options.store.empty()) SKEIN_TRY(add_store(options.store, rules));
  if (!options.otlp_endpoint.empty()) {
    SKEIN_ASSIGN(const TraceEndpoint collector, parse_trace_endpoint(options.otlp_endpoint));
    rules.connect_ports.push_back(collector.port);
  }
  const auto max_context = static_cast<uint32_t>(options.max_context);
  SKEIN_ASSIGN(std::unique_ptr<SideProcess> checker, start_model_checker(rules, max_context));
  SKEIN_ASSIGN(const SandboxReport report, enter_sandbox(rules));
  log_info("sandbox: {}", report.to_string());
  return checker;
}

// ---- the run ----

class ServeRun {
 public:
  // `checker` null: models are loaded unchecked, and there is no sandbox.
  ServeRun(const ServeOptions& options, ServeSettings settings, ServeFiles files,
           std::unique_ptr<SideProcess> checker)
      : options_(options),
        settings_(std::move(settings)),
        files_(std::move(files)),
        checker_(std::move(checker)),
        signals_(events_) {}

  CommandResult run();

 private:
  Status start();
  Status before_load(const ModelConfig& config);
  Status start_server();
  void log_device(const Backend& backend) const;
  SchedulerManager::Loader model_loader();
  void announce() const;
  void begin_loading();
  std::optional<CommandResult> load();
  Status serve();
  void reload();
  void stay_alive() const;
  void give_notice();
  CommandResult stop(CommandResult result);
  bool is_loading() const;

  const ServeOptions& options_;
  const ServeSettings settings_;
  ServeFiles files_;
  const std::unique_ptr<SideProcess> checker_;
  ServeEvents events_;
  ServeSignals signals_;  // before everything that has threads
  BackgroundLog log_;
  ServiceNotifier notifier_;
  SystemClock clock_;
  LoadShare load_share_;
  std::unique_ptr<ComputePool> pool_;
  std::unique_ptr<SchedulerManager> manager_;
  std::unique_ptr<Server> server_;
};

Status ServeRun::start() {
  raise_file_limit();
  pool_ = make_pool(settings_.model);
  SchedulerManager::Options manager = settings_.manager;
  SKEIN_ASSIGN(const auto backend, make_backend(settings_.serving.model, *pool_));
  log_device(*backend);
  if (manager.memory_bytes == 0) manager.memory_bytes = backend->available();
  manager.share = &load_share_;
  manager.before_load = [this](const ModelConfig& config) { return before_load(config); };
  manager.after_load = [this](const ModelConfig& config) { server_->end_load(config); };
  // There is nothing left to serve with; a service manager starts the next process.
  manager.on_device_gone = [this](const Status& why) {
    events_.push({ServeEvent::Kind::kStop, 0, why});
  };
  manager_ = std::make_unique<SchedulerManager>(manager, model_loader(), clock_);
  for (const ModelConfig& config : files_.known) SKEIN_TRY(manager_->add(config));
  SKEIN_TRY(start_server());
  // A shared store that comes back is connected to anew, and so is a collector of traces.
  const bool connects = !options_.store.empty() || !options_.otlp_endpoint.empty();
  return checker_ ? forbid_new_sockets(connects ? Sockets::kConnect : Sockets::kNone) : ok_status();
}

// Who let the server choose is told why it is the CPU.
void ServeRun::log_device(const Backend& backend) const {
  log_info("computes on {}", backend.name());
  if (options_.device != "auto" || backend.name().starts_with("cuda")) return;
  ModelOptions wanted = settings_.serving.model;
  wanted.device = "cuda";
  const auto gpu = make_backend(wanted, *pool_);
  log_info("no GPU is used: {}",
           gpu.ok() ? "--cpu-isa asks for the CPU" : std::string_view(gpu.message()));
}

SchedulerManager::Loader ServeRun::model_loader() {
  ServingOptions serving = settings_.serving;
  serving.model.report = [this](uint64_t done, uint64_t all) { load_share_.report(done, all); };
  serving.kv_events = [this](const std::string& model) { return server_->kv_events(model); };
  serving.draft_model = files_.draft_model;
  SchedulerManager::Loader load = make_model_loader(serving, *pool_, clock_);
  return checker_ ? with_check(std::move(load), *checker_, files_.draft_model) : load;
}

// Loads begin when the server is there.
Status ServeRun::before_load(const ModelConfig& config) {
  const bool named = std::any_of(files_.first.begin(), files_.first.end(),
                                 [&config](const ModelConfig& one) { return one.id == config.id; });
  return server_->begin_load(config, named);
}

Status ServeRun::start_server() {
  ServerSettings settings = settings_.server;
  settings.store.state_dir = files_.state_dir;
  settings.default_model = files_.known.front().id;
  if (!options_.kv_events.empty()) {
    for (const ModelConfig& config : files_.first) settings.kv_events.models.push_back(config.id);
  }
  settings.grpc.models = files_.grpc;
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
  for (size_t i = 0; i < files_.first.size(); ++i) {
    manager_->acquire(files_.first[i].id, [this, i](const Result<ModelLease>& lease) {
      events_.push({ServeEvent::Kind::kLoaded, i, lease.status()});
    });
  }
}

// Nothing when the models are there; otherwise how the run ends.
std::optional<CommandResult> ServeRun::load() {
  std::vector<std::string> ids;
  for (const ModelConfig& config : files_.first) ids.push_back(config.id);
  LoadProgress progress(std::move(ids), load_share_);
  notifier_.status("loading");
  begin_loading();
  for (size_t left = files_.first.size(); left > 0;) {
    progress.draw();
    const std::optional<ServeEvent> event = events_.pop(kRedraw);
    if (!event) continue;
    progress.clear();
    if (event->kind == ServeEvent::Kind::kStop) return stop(event->status);
    if (event->kind == ServeEvent::Kind::kReload) {
      reload();
      continue;
    }
    if (!event->status.ok()) {
      return stop(Status(event->status.code(),
                         fmt::format("model {} could not be loaded: {}",
                                     files_.first[event->model].id, event->status.message())));
    }
    progress.done(event->model);
    --left;
  }
  return std::nullopt;
}

// Why it has to end; ok: because it was told to.
Status ServeRun::serve() {
  const milliseconds patience = notifier_.watchdog_interval().value_or(kForEver);
  while (true) {
    const std::optional<ServeEvent> event = events_.pop(patience);
    if (!event) {
      stay_alive();
    } else if (event->kind == ServeEvent::Kind::kStop) {
      return event->status;
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
  server_->reload_certificate();
  size_t added = 0;
  std::vector<ModelConfig> found = models_in_folder(files_.folders.models, files_.known);
  (void)set_sampling(files_.sampling, found);  // names of models that were known before
  for (ModelConfig& config : found) {
    if (!manager_->add(config).ok()) continue;
    files_.known.push_back(std::move(config));
    ++added;
  }
  log_info("keys, certificate and model folder read again: {} new models", added);
}

bool ServeRun::is_loading() const {
  const std::vector<ModelStatus> models = manager_->models();
  return std::any_of(models.begin(), models.end(),
                     [](const ModelStatus& model) { return model.state == ModelState::kLoading; });
}

// Others have the store too, and a router will send them what comes.
void ServeRun::give_notice() {
  const milliseconds notice(static_cast<int64_t>(options_.drain_notice * 1000));
  server_->leave();
  log_info("leaving: /health says so, and work is taken for {} s more", options_.drain_notice);
  std::this_thread::sleep_for(notice);
}

CommandResult ServeRun::stop(CommandResult result) {
  const PatientScope patient;  // it ends in good order, also when memory is short
  const milliseconds grace(static_cast<int64_t>(options_.drain_timeout * 1000));
  notifier_.stopping();  // first: nobody tells a service manager's watchdog anything from here on
  if (!options_.store.empty()) give_notice();
  const auto until = steady_clock::now() + grace;
  server_->drain();
  log_info("draining: no new work; {} running requests have {} s to end", server_->running(),
           options_.drain_timeout);
  const Stopped stopped = server_->stop(grace);
  if (stopped != Stopped::kWhole) {
    log_warning("the drain timeout of {} s is over; what still ran was cut off",
                options_.drain_timeout);
  }
  if (stopped == Stopped::kLeftBehind) leave(result);
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
  log_info("ready: {} models loaded, {} more in the folder", files_.first.size(),
           files_.known.size() - files_.first.size());
  return stop(serve());
}

}  // namespace

CommandResult run_server(const ServeOptions& options) {
  set_log_level(log_level_of(options.log_level));
  Result<ServeSettings> settings = serve_settings(options);
  if (!settings.ok()) return settings.status();
  Result<ServeFiles> files = find_files(options);
  if (!files.ok()) return files.status();
  std::unique_ptr<SideProcess> checker;
  if (options.sandbox) {
    auto entered = enter_serve_sandbox(options, *files);
    if (!entered.ok()) return entered.status();
    checker = std::move(*entered);
  }
  return ServeRun(options, std::move(*settings), std::move(*files), std::move(checker)).run();
}

}  // namespace skein::apps
