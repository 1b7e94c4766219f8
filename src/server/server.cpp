#include "server/server.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "base/log.h"
#include "server/batch/batch_executor.h"
#include "server/context.h"
#include "server/observe/traces.h"
#include "server/router.h"

namespace skein {
namespace {

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
  options.is_probe = true;
  if (settings.http.probe) options.hosts.push_back(settings.http.probe->host);
  return options;
}

// Every request that is logged has its spans, too.
Status add_traces(ServerSettings& settings) {
  if (settings.otlp_endpoint.empty()) return {};
  SKEIN_ASSIGN(TraceEndpoint endpoint, parse_trace_endpoint(settings.otlp_endpoint));
  const TraceSource source{settings.store.node, settings.version};
  settings.log_request = [log = std::move(settings.log_request),
                          traces = std::make_shared<Traces>(std::move(endpoint), source)](
                             const FinishedRequest& request) {
    if (log) log(request);
    traces->add(request);
  };
  return {};
}

constexpr std::chrono::milliseconds kLookAgain{5};
constexpr std::chrono::milliseconds kLastForm{500};  // twice what one can take
constexpr size_t kMaxScrapes = 64;                   // that wait; beyond: 503

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
        limiter_(clock, store_->is_shared() ? store_.get() : nullptr),
        memory_(settings_.request_memory_bytes),
        metrics_(clock),
        context_{.settings = settings_,
                 .clock = clock,
                 .models = models,
                 .store = *store_,
                 .keys = keys_,
                 .limiter = limiter_,
                 .metrics = metrics_,
                 .live = live_,
                 .recent = recent_,
                 .feed = feed_,
                 .delivery = delivery_,
                 .memory = memory_,
                 .workers = workers_,
                 .forms = forms_,
                 .scrapes = scrapes_,
                 .ready = ready_,
                 .draining = draining_,
                 .started_at_s = store_->unix_time_s(),
                 .leaving = &leaving_},
        workers_(settings_.workers, clock),
        forms_(settings_.workers, clock),
        scrapes_({.threads = 1, .queue_limit = kMaxScrapes}, clock),
        router_(context_, OriginGuard(guard_options(settings_)),
                OriginGuard(probe_guard_options(settings_))),
        http_(settings_.http, router_, workers_, memory_),
        executor_(context_, settings_.batch_lines) {
    metrics_.watch_kv_events([this] { return kv_publishers_.stats(); });
  }
  // Answers that the store is keeping tell the delivery.
  ~Impl() { store_->responses().close(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

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
    SKEIN_TRY(kv_publishers_.open(settings_.kv_events, store_->salt_key()));
    SKEIN_TRY(kv_publishers_.start());
    SKEIN_TRY(http_.start());
    if (!settings_.grpc.models.empty()) {
      SKEIN_ASSIGN(grpc_, GrpcFace::open(settings_.grpc, context_, kv_publishers_));
    }
    executor_.start();
    return {};
  }

  void drain() {
    draining_ = true;
    executor_.wake();
  }

  Stopped stop(std::chrono::milliseconds grace) {
    using std::chrono::steady_clock;
    drain();
    const auto until = steady_clock::now() + grace;
    store_->finish_by(until);
    executor_.stop();
    store_->end_epoch();
    store_->quarantine().end_all_loads();  // the process may end in the middle of one
    // The port stays open as long as anything runs, so that new work is refused aloud.
    while (live_.size() > 0 && steady_clock::now() < until) std::this_thread::sleep_for(kLookAgain);
    const bool whole = live_.size() == 0;
    feed_.close();  // streams that would never end
    const auto left = std::max(until - steady_clock::now(), steady_clock::duration::zero());
    // What still runs there has had its time; routers take it to another node.
    if (grpc_) grpc_->stop(std::chrono::milliseconds(0));
    forms_.drop();
    const bool cut = http_.stop(std::chrono::duration_cast<std::chrono::milliseconds>(left));
    if (!cut || !forms_.join(kLastForm)) return Stopped::kLeftBehind;
    return whole ? Stopped::kWhole : Stopped::kCutOff;
  }

  const ServerSettings settings_;
  std::unique_ptr<Store> store_;
  KeyRing keys_;
  RateLimiter limiter_;
  ByteBudget memory_;
  Metrics metrics_;
  KvPublishers kv_publishers_;
  LiveRequests live_;
  RecentRequests recent_;
  std::atomic<bool> ready_{false};
  std::atomic<bool> draining_{false};
  std::atomic<bool> leaving_{false};
  ServerContext context_;
  // Their threads use the context until they are joined.
  Delivery delivery_;
  http::Workers workers_;
  http::Workers forms_;
  http::Workers scrapes_;
  LiveFeed feed_;
  Router router_;
  http::HttpServer http_;
  std::unique_ptr<GrpcFace> grpc_;  // null: there is none
  BatchExecutor executor_;
};

Result<std::unique_ptr<Server>> Server::create(ServerSettings settings, SchedulerManager& models,
                                               const Clock& clock) {
  SKEIN_ASSIGN(std::unique_ptr<Store> store, Store::open(settings.store));
  SKEIN_TRY(add_traces(settings));
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

void Server::leave() {
  impl_->leaving_ = true;
}

ServingOptions::KvEvents Server::kv_events(const std::string& model) const {
  return impl_->kv_publishers_.of(model);
}

void Server::drain() {
  impl_->drain();
}

size_t Server::running() const {
  return impl_->live_.size();
}

Stopped Server::stop(std::chrono::milliseconds grace) {
  return impl_->stop(grace);
}

}  // namespace skein
