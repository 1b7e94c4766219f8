// ServerContext: the parts of a server that endpoints, answers and batches use.
//
// It owns nothing; all of it outlives the HTTP server, the workers and the delivery. Each part says
// itself which threads may use it, and all of them may be used by any worker.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "engine/manager/scheduler_manager.h"
#include "server/answer/delivery.h"
#include "server/answer/live_requests.h"
#include "server/api/errors.h"
#include "server/auth/key_ring.h"
#include "server/auth/rate_limiter.h"
#include "server/http/byte_budget.h"
#include "server/http/workers.h"
#include "server/live/live_feed.h"
#include "server/observe/metrics.h"
#include "server/observe/recent_requests.h"
#include "server/settings.h"
#include "server/store/store.h"

namespace skein {

struct ServerContext {
  const ServerSettings& settings;
  const Clock& clock;
  SchedulerManager& models;
  Store& store;
  KeyRing& keys;
  RateLimiter& limiter;
  Metrics& metrics;
  LiveRequests& live;
  RecentRequests& recent;
  LiveFeed& feed;
  Delivery& delivery;
  ByteBudget& memory;        // for what all requests hold
  http::Workers& workers;    // the threads that endpoints run on
  http::Workers& forms;      // threads for requests with forms, whose compilation keeps nobody else
  http::Workers& scrapes;    // one thread for pages of metrics, which wait for nobody's text work
  std::atomic<bool>& ready;  // the models named at the start are loaded
  std::atomic<bool>& draining;  // no new work is taken
  int64_t started_at_s = 0;     // in the calendar's time
  // It will drain in a moment, and takes work until then; null: it never says so.
  const std::atomic<bool>* leaving = nullptr;

  // Servers that share a store: it is away, and keys may have been revoked for so long that nobody
  // is let in.
  bool knows_keys_no_more() const {
    return store.is_shared() && store.away_s() > settings.store_grace_s;
  }

  // Why requests should go elsewhere; null when they should come.
  const char* why_not_ready() const {
    if (draining || (leaving != nullptr && *leaving)) return "draining";
    if (!ready) return "loading";
    for (const ModelStatus& model : models.models()) {
      if (!model.served) continue;
      const EngineState state = model.served->snapshot().state;
      if (state == EngineState::kHung || state == EngineState::kFailed) return name_of(state);
    }
    return nullptr;
  }

  // Why the workers did not take a task.
  api::Error no_worker() const { return draining ? api::draining(1) : api::overloaded(1); }
};

}  // namespace skein
