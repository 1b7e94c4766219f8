// What every endpoint may use. All of it outlives the HTTP server.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>

#include "base/clock.h"
#include "engine/manager/scheduler_manager.h"
#include "server/answer/delivery.h"
#include "server/answer/live_requests.h"
#include "server/api/errors.h"
#include "server/auth/key_ring.h"
#include "server/auth/rate_limiter.h"
#include "server/http/byte_budget.h"
#include "server/http/workers.h"
#include "server/observe/metrics.h"
#include "server/store/store.h"

namespace skein {

struct ServerContext {
  const Clock& clock;
  SchedulerManager& models;
  Store& store;
  KeyRing& keys;
  RateLimiter& limiter;
  Metrics& metrics;
  LiveRequests& live;
  Delivery& delivery;
  ByteBudget& memory;      // of all requests
  http::Workers& workers;  // the same that handlers run on

  std::string default_model;                                // what an absent or empty `model` means
  bool share_prefixes = false;                              // all tenants use one prefix cache
  std::chrono::milliseconds keepalive_interval;             // of a stream that says nothing
  std::function<void(const FinishedRequest&)> log_request;  // may be empty
  std::string version;
  std::atomic<bool>& ready;           // the models named at the start are loaded
  std::atomic<bool>& draining;        // no new work
  std::function<void()> start_drain;  // what SIGTERM does

  // Why the workers did not take a task.
  api::Error no_worker() const { return draining ? api::draining(1) : api::overloaded(1); }
};

}  // namespace skein
