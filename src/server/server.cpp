#include "server/server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "base/log.h"
#include "server/batch/batch_executor.h"
#include "server/context.h"
#include "server/endpoints/endpoints.h"
#include "server/observe/audit.h"
#include "server/origin_guard.h"
#include "server/router.h"

namespace skein {
namespace {

// Routes that begin new work: refused while the server drains.
bool begins_work(const Route& route) {
  switch (route.endpoint) {
    case Endpoint::kChatCompletions:
    case Endpoint::kCompletions:
    case Endpoint::kMessages:
    case Endpoint::kEmbeddings:
    case Endpoint::kFileUpload:
    case Endpoint::kBatchCreate:
    case Endpoint::kAdminLoad:
      return true;
    default:
      return false;
  }
}

class KeyGate final : public Gate {
 public:
  KeyGate(const KeyRing& keys, const Clock& clock, Metrics& metrics,
          const std::atomic<bool>& draining, OriginGuard::Options guard,
          OriginGuard::Options probe_guard)
      : keys_(keys),
        audit_(clock),
        metrics_(metrics),
        draining_(draining),
        guard_(std::move(guard)),
        probe_guard_(std::move(probe_guard)) {}

  bool is_open() const override { return keys_.is_open(); }

  std::optional<api::Error> screen(const Route* route, const http::RequestHead& head,
                                   const std::string& peer) override {
    auto error = guard_.check(head, route != nullptr && route->is_page);
    if (error) audit_.refused(error->status, {head.method, head.path, peer}, "");
    return error;
  }

  std::optional<api::Error> screen_probe(const http::RequestHead& head) override {
    return probe_guard_.check(head, false);
  }

  api::Parsed<PrincipalPtr> enter(const Route& route, const http::RequestHead& head,
                                  const std::string& peer) override {
    PrincipalPtr who =
        route.auth == Auth::kNone ? anonymous_ : keys_.authenticate(credential_of(head));
    const Audit::Call call{head.method, head.path, peer};
    const bool is_admin_call = route.auth == Auth::kAdmin;
    if (who == nullptr || (is_admin_call && who->is_anonymous())) {
      audit_.refused(401, call, "");
      return api::unauthorized();
    }
    if (is_admin_call && !who->admin) {
      audit_.refused(403, call, who->key_id);
      return api::forbidden("This needs a key with the admin right.");
    }
    if (is_admin_call) audit_.admin_call(call, *who);
    if (draining_ && begins_work(route)) {
      metrics_.on_rejected("", Rejection::kDraining);
      return api::draining(kRetryAfterDrainS);
    }
    return who;
  }

  void answered(const Route* route, const http::Answered& answer) override {
    metrics_.on_answer(route, answer.status);
    // Whoever was not admitted has a line already.
    if (!answer.caller || (answer.status != 401 && answer.status != 403)) return;
    audit_.refused(answer.status, {answer.method, answer.path, answer.peer}, *answer.caller);
  }

 private:
  static constexpr uint64_t kRetryAfterDrainS = 5;

  const KeyRing& keys_;
  Audit audit_;
  Metrics& metrics_;
  const std::atomic<bool>& draining_;
  const OriginGuard guard_;
  const OriginGuard probe_guard_;
  const PrincipalPtr anonymous_ = std::make_shared<const Principal>();
};

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

OriginGuard::Options guard_options(const ServerSettings& settings) {
  OriginGuard::Options options{settings.allow_hosts, settings.insecure_open,
                               settings.http.cors_origins};
  options.hosts.push_back(settings.http.host);
  return options;
}

// Probes name a machine or a pod by its address.
OriginGuard::Options probe_guard_options(const ServerSettings& settings) {
  OriginGuard::Options options = guard_options(settings);
  options.any_address = true;
  if (settings.http.probe) options.hosts.push_back(settings.http.probe->host);
  return options;
}

constexpr std::chrono::milliseconds kLookAgain{5};

}  // namespace

// The order of the members is the order in which they may need each other: what is declared later
// ends first.
class Server::Impl {
 public:
  Impl(ServerSettings settings, std::unique_ptr<Store> store, SchedulerManager& models,
       const Clock& clock)
      : settings_(std::move(settings)),
        store_(std::move(store)),
        keys_(store_->salt_key()),
        limiter_(clock),
        memory_(settings_.request_memory_bytes),
        metrics_(clock),
        context_{clock,
                 models,
                 *store_,
                 keys_,
                 limiter_,
                 metrics_,
                 live_,
                 delivery_,
                 memory_,
                 workers_,
                 settings_.default_model,
                 settings_.share_prefixes,
                 settings_.keepalive_interval,
                 settings_.log_request,
                 settings_.version,
                 ready_,
                 draining_,
                 settings_.on_drain_request},
        workers_(settings_.workers, clock),
        gate_(keys_, clock, metrics_, draining_, guard_options(settings_),
              probe_guard_options(settings_)),
        router_(gate_),
        http_(settings_.http, router_, workers_, memory_) {
    bind_generation(router_, context_);
    bind_text(router_, context_);
    bind_models(router_, context_);
    bind_files(router_, context_);
    bind_batches(router_, context_);
    bind_requests(router_, context_);
    bind_health(router_, context_);
    bind_admin(router_, context_);
  }

  Status check_exposure() {
    SKEIN_TRY(keys_.follow(store_->keys()));
    if (!keys_.is_open() || settings_.insecure_open || is_loopback(settings_.http.host)) return {};
    return invalid_argument(
        "{} can be reached from other machines and there are no API keys; make one with `skein "
        "keys "
        "add --name NAME`, bind to 127.0.0.1, or say --insecure-open",
        settings_.http.host);
  }

  Status start() {
    SKEIN_TRY(http_.start());
    executor_ = std::make_unique<BatchExecutor>(context_, settings_.batch_lines);
    return {};
  }

  void drain() { draining_ = true; }

  Stopped stop(std::chrono::milliseconds grace) {
    using std::chrono::steady_clock;
    drain();
    executor_.reset();
    store_->quarantine().end_all_loads();  // the process may end in the middle of one
    // The port stays open as long as anything runs, so that new work is refused aloud.
    const auto until = steady_clock::now() + grace;
    while (live_.size() > 0 && steady_clock::now() < until) std::this_thread::sleep_for(kLookAgain);
    const bool whole = live_.size() == 0;
    const auto left = std::max(until - steady_clock::now(), steady_clock::duration::zero());
    if (!http_.stop(std::chrono::duration_cast<std::chrono::milliseconds>(left))) {
      return Stopped::kLeftBehind;
    }
    return whole ? Stopped::kWhole : Stopped::kCutOff;
  }

  const ServerSettings settings_;
  std::unique_ptr<Store> store_;
  KeyRing keys_;
  RateLimiter limiter_;
  ByteBudget memory_;
  Metrics metrics_;
  LiveRequests live_;
  std::atomic<bool> ready_{false};
  std::atomic<bool> draining_{false};
  ServerContext context_;
  // Their threads use the context until they are joined.
  Delivery delivery_;
  http::Workers workers_;
  KeyGate gate_;
  Router router_;
  http::HttpServer http_;
  std::unique_ptr<BatchExecutor> executor_;
};

Result<std::unique_ptr<Server>> Server::create(ServerSettings settings, SchedulerManager& models,
                                               const Clock& clock) {
  StoreOptions store_options;
  store_options.state_dir = settings.state_dir;
  store_options.min_free_bytes = settings.min_free_disk_bytes;
  store_options.file_limits = settings.file_limits;
  SKEIN_ASSIGN(std::unique_ptr<Store> store, Store::open(std::move(store_options)));
  auto impl = std::make_unique<Impl>(std::move(settings), std::move(store), models, clock);
  SKEIN_TRY(impl->check_exposure());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Status Server::start() {
  return impl_->start();
}

uint16_t Server::port() const {
  return impl_->http_.port();
}

uint16_t Server::probe_port() const {
  return impl_->http_.probe_port();
}

void Server::set_ready() {
  impl_->ready_ = true;
}

void Server::reload_keys() {
  impl_->store_->keys().reload([](const Status& status) {
    if (!status.ok()) log_error("the keys could not be read again: {}", status.message());
  });
}

void Server::reload_certificate() {
  const Status status = impl_->http_.reload_certificate();
  if (status.ok()) return;
  log_error("the certificate could not be read again, so the old one stays: {}", status.message());
}

Status Server::begin_load(const ModelConfig& config, bool named_by_operator) {
  ModelQuarantine& quarantine = impl_->store_->quarantine();
  if (named_by_operator) quarantine.forgive(config.path);
  return quarantine.begin_load(config.path);
}

void Server::end_load(const ModelConfig& config) {
  impl_->store_->quarantine().end_load(config.path);
}

void Server::drain() {
  impl_->drain();
}

Stopped Server::stop(std::chrono::milliseconds grace) {
  return impl_->stop(grace);
}

}  // namespace skein
