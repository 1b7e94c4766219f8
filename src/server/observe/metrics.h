// Metrics: what Prometheus reads, under vLLM's names and skein's own.
//
// Counts of requests and their times are told as they happen; gauges and the engine's own counters
// are read from the models when the page is asked for. Any thread may call any member.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/time.h"
#include "engine/manager/scheduler_manager.h"
#include "server/kv_events/kv_event_stats.h"
#include "server/observe/finished_request.h"

namespace skein {

struct Route;

enum class Rejection : uint8_t {
  kQueueFull,
  kTenantShare,
  kRateLimit,
  kTooLarge,
  kDraining,
  kUnavailable
};

class Metrics {
 public:
  explicit Metrics(const Clock& clock);
  ~Metrics();

  // Ended, one way or another: counters by reason, tokens, and the histograms of its times.
  void on_finished(const FinishedRequest& request);
  // `tokens` came together, `us` after the ones before them.
  void on_tokens(std::string_view model, TimeUs us, uint32_t tokens);
  void on_rejected(std::string_view model, Rejection why);
  // A call of a tool is whole; `format` is how the model writes it.
  void on_tool_call(std::string_view model, std::string_view format);

  // On the disk of the state folder.
  void set_state_free_bytes(uint64_t bytes);

  // Of a store that servers share: for how long it has not answered, and how many share it.
  void set_store(int64_t away_s, int64_t nodes);

  // A budget that all callers share. `limit_bytes` 0: it has no limit.
  void set_budget(const char* budget, uint64_t used_bytes, uint64_t limit_bytes);

  // Where models' KV events are told; asked for by page(). Before there are threads.
  using KvEventRows = std::vector<std::pair<std::string, KvEventStats>>;
  void watch_kv_events(std::function<KvEventRows()> rows);

  // An HTTP answer is on its way; `route` null: to what no route serves.
  void on_answer(const Route* route, int status);

  // The exposition format. `shows` says of which models; null: of all.
  using ShowsModel = std::function<bool(std::string_view model)>;
  std::string page(const SchedulerManager& models, const ShowsModel& shows = nullptr);

  // Seconds until `waiting` requests have likely been served, from how fast they end lately: what a
  // 429 tells the client. 1 to 60.
  uint64_t retry_after_s(std::string_view model, uint32_t waiting) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace skein
