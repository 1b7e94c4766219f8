#include "server/observe/metrics.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/log.h"
#include "server/observe/device_metrics.h"
#include "server/observe/drain_rate.h"
#include "server/observe/engine_metrics.h"
#include "server/observe/kv_event_metrics.h"
#include "server/router.h"

namespace skein {
namespace {

using Bounds = prometheus::Histogram::BucketBoundaries;
using CounterFamily = prometheus::Family<prometheus::Counter>;
using GaugeFamily = prometheus::Family<prometheus::Gauge>;
using HistogramFamily = prometheus::Family<prometheus::Histogram>;

// vLLM's bounds, and finer ones below for small models.
const Bounds kFirstTokenBounds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                  1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
const Bounds kTokenGapBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
                                0.4,   0.5,    0.75,  1,    2.5,   5,    7.5,   10,  20,   40,  80};
const Bounds kPhaseBounds = {0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5,
                             0.8,   1,     1.5,  2,     2.5,  5,   10,  15,  20,
                             30,    40,    50,   60,    120,  240, 480, 960, 1920};
const Bounds kTokenBounds = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                             1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};

// Names beyond this many count as one, so that no input can make the page grow without end.
constexpr size_t kMaxModels = 256;
constexpr std::string_view kOtherModels = "other";

constexpr size_t kRejections = 6;
constexpr const char* name_of(Rejection why) {
  constexpr std::array<const char*, kRejections> kNames = {
      "queue_full", "tenant_share", "rate_limit", "too_large", "draining", "unavailable"};
  return kNames[static_cast<size_t>(why)];
}

double seconds(TimeUs us) {
  return static_cast<double>(us) / kUsPerSecond;
}

// How many HTTP answers there were, by route and status. Any thread.
class AnswerCounts {
 public:
  AnswerCounts();
  // `route` null: to what no route serves.
  void add(const Route* route, int status);
  // One sample for each pair that occurred.
  prometheus::MetricFamily family() const;

 private:
  static constexpr int kFirstStatus = 100, kStatuses = 500;
  using Row = std::array<std::atomic<uint64_t>, kStatuses>;
  const std::unique_ptr<Row[]> rows_;  // as routes(), and one for no route
};

AnswerCounts::AnswerCounts() : rows_(std::make_unique<Row[]>(routes().size() + 1)) {}

void AnswerCounts::add(const Route* route, int status) {
  const size_t row =
      route == nullptr ? routes().size() : static_cast<size_t>(route - routes().data());
  const int column = std::clamp(status - kFirstStatus, 0, kStatuses - 1);
  rows_[row][static_cast<size_t>(column)].fetch_add(1, std::memory_order_relaxed);
}

prometheus::MetricFamily AnswerCounts::family() const {
  prometheus::MetricFamily family{"skein:http_requests_total",
                                  "HTTP requests that were answered, by route and status.",
                                  prometheus::MetricType::Counter,
                                  {}};
  for (size_t row = 0; row <= routes().size(); ++row) {
    const bool known = row < routes().size();
    for (int column = 0; column < kStatuses; ++column) {
      const uint64_t count =
          rows_[row][static_cast<size_t>(column)].load(std::memory_order_relaxed);
      if (count == 0) continue;
      prometheus::ClientMetric metric;
      metric.label = {{"route", std::string(known ? routes()[row].pattern : "other")},
                      {"method", std::string(known ? routes()[row].method : "other")},
                      {"status", std::to_string(kFirstStatus + column)}};
      metric.counter.value = static_cast<double>(count);
      family.metric.push_back(std::move(metric));
    }
  }
  return family;
}

}  // namespace

struct Metrics::Parts {
  explicit Parts(const Clock& c) : clock(c) {}

  // The metrics of one model.
  struct Model {
    std::array<prometheus::Counter*, kFinishReasons> ended;
    std::array<prometheus::Counter*, kRejections> rejected;
    std::array<prometheus::Counter*, kFinishReasons> succeeded;  // null: not one of vLLM's
    prometheus::Counter* prompt_tokens;
    prometheus::Counter* cached_tokens;
    prometheus::Counter* generation_tokens;
    prometheus::Histogram* first_token;
    prometheus::Histogram* token_gap;
    prometheus::Histogram* whole;
    prometheus::Histogram* queue;
    prometheus::Histogram* prefill;
    prometheus::Histogram* decode;
    prometheus::Histogram* prompt;
    prometheus::Histogram* generation;
    DrainRate drain_rate;
  };

  CounterFamily& counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  GaugeFamily& gauges(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
  }
  HistogramFamily& histograms(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
  }
  Model& model(std::string_view name);
  void fill(Model& model, const std::string& name);

  const Clock& clock;
  AnswerCounts answers;
  std::function<KvEventRows()> kv_events;  // may be empty
  prometheus::Registry registry;
  CounterFamily& prompt_tokens =
      counters("vllm:prompt_tokens_total", "Prompt tokens of requests that gave an answer.");
  CounterFamily& cached_tokens =
      counters("skein:cached_prompt_tokens_total", "Of these, found in the prefix cache.");
  CounterFamily& generation_tokens =
      counters("vllm:generation_tokens_total", "Generated tokens, counted when a request ends.");
  CounterFamily& succeeded = counters("vllm:request_success_total", "Requests that ended.");
  CounterFamily& ended =
      counters("skein:requests_ended_total", "Requests that ended, by the true reason.");
  CounterFamily& rejected =
      counters("skein:rejected_requests_total", "Requests that were turned away, by reason.");
  CounterFamily& tool_calls =
      counters("skein:tool_calls_total", "Calls of tools that models have made, by their format.");
  HistogramFamily& first_token =
      histograms("vllm:time_to_first_token_seconds", "From arrival to the first token.");
  HistogramFamily& token_gap =
      histograms("vllm:inter_token_latency_seconds", "Between two tokens of an answer.");
  HistogramFamily& whole =
      histograms("vllm:e2e_request_latency_seconds", "From arrival to the end.");
  HistogramFamily& queue = histograms("vllm:request_queue_time_seconds", "In the queue.");
  HistogramFamily& prefill =
      histograms("vllm:request_prefill_time_seconds", "From the queue to the first token.");
  HistogramFamily& decode =
      histograms("vllm:request_decode_time_seconds", "From the first token to the end.");
  HistogramFamily& prompt = histograms("vllm:request_prompt_tokens", "Prompt tokens a request.");
  HistogramFamily& generation =
      histograms("vllm:request_generation_tokens", "Generated tokens a request.");

  prometheus::Gauge& state_free_bytes =
      gauges("skein:state_free_bytes", "Bytes that are free on the disk of the state folder.")
          .Add({});

  GaugeFamily& store_away =
      gauges("skein:store_away_seconds", "Seconds since a shared store last answered; 0: it does.");
  GaugeFamily& store_nodes = gauges("skein:store_nodes", "Servers that share the store.");

  GaugeFamily& budget_used =
      gauges("skein:budget_used_bytes", "Bytes that a budget has given out.");
  GaugeFamily& budget_limit = gauges("skein:budget_limit_bytes", "Bytes that a budget has in all.");

  std::shared_mutex mutex;
  std::map<std::string, Model, std::less<>> models;  // mutex; entries stay for ever
};

namespace {

// vLLM's word for an end; null for what it does not count there.
const char* success_label(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kToolCalls:
      return "tool_calls";
    case FinishReason::kClient:
      return "abort";
    default:
      return nullptr;
  }
}

}  // namespace

Metrics::Parts::Model& Metrics::Parts::model(std::string_view name) {
  {
    const std::shared_lock lock(mutex);
    if (const auto it = models.find(name); it != models.end()) return it->second;
  }
  const std::unique_lock lock(mutex);
  if (models.size() >= kMaxModels && models.find(name) == models.end()) name = kOtherModels;
  const auto [it, is_new] = models.try_emplace(std::string(name));
  if (is_new) fill(it->second, it->first);
  return it->second;
}

void Metrics::Parts::fill(Model& model, const std::string& name) {
  const prometheus::Labels labels = {{"model_name", name}};
  for (size_t i = 0; i < kFinishReasons; ++i) {
    const auto reason = static_cast<FinishReason>(i);
    model.ended[i] =
        &ended.Add({{"model_name", name}, {"reason", std::string(skein::name_of(reason))}});
    const char* label = success_label(reason);
    model.succeeded[i] = label == nullptr
                             ? nullptr
                             : &succeeded.Add({{"model_name", name}, {"finished_reason", label}});
  }
  for (size_t i = 0; i < kRejections; ++i) {
    model.rejected[i] =
        &rejected.Add({{"model_name", name}, {"reason", name_of(static_cast<Rejection>(i))}});
  }
  model.prompt_tokens = &prompt_tokens.Add(labels);
  model.cached_tokens = &cached_tokens.Add(labels);
  model.generation_tokens = &generation_tokens.Add(labels);
  model.first_token = &first_token.Add(labels, kFirstTokenBounds);
  model.token_gap = &token_gap.Add(labels, kTokenGapBounds);
  model.whole = &whole.Add(labels, kPhaseBounds);
  model.queue = &queue.Add(labels, kPhaseBounds);
  model.prefill = &prefill.Add(labels, kPhaseBounds);
  model.decode = &decode.Add(labels, kPhaseBounds);
  model.prompt = &prompt.Add(labels, kTokenBounds);
  model.generation = &generation.Add(labels, kTokenBounds);
}

namespace {

// Leaves out the series of models that are not shown; those of no model stay.
void keep_shown(std::vector<prometheus::MetricFamily>& families, const Metrics::ShowsModel& shows) {
  const auto is_hidden = [&](const prometheus::ClientMetric& metric) {
    return std::any_of(metric.label.begin(), metric.label.end(), [&](const auto& label) {
      return label.name == "model_name" && !label.value.empty() && !shows(label.value);
    });
  };
  for (prometheus::MetricFamily& family : families) std::erase_if(family.metric, is_hidden);
  std::erase_if(families, [](const auto& family) { return family.metric.empty(); });
}

prometheus::MetricFamily dropped_lines() {
  prometheus::ClientMetric metric;
  metric.counter.value = static_cast<double>(dropped_log_lines());
  return {"skein:log_dropped_total",
          "Lines of the log that were lost because stderr was not read.",
          prometheus::MetricType::Counter,
          {metric}};
}

}  // namespace

Metrics::Metrics(const Clock& clock) : parts_(std::make_unique<Parts>(clock)) {}

Metrics::~Metrics() = default;

void Metrics::on_finished(const FinishedRequest& request) {
  Parts::Model& model = parts_->model(request.model);
  const auto reason = static_cast<size_t>(request.reason);
  model.ended[reason]->Increment();
  if (request.choices == 0) return;  // refused before any engine had it
  if (model.succeeded[reason] != nullptr) model.succeeded[reason]->Increment();
  model.whole->Observe(seconds(request.total_us));
  model.queue->Observe(seconds(request.queue_us));
  // What never gave a token has no prompt that was computed, and no times to speak of; but one
  // whose vectors came has.
  const bool has_vectors = request.has_vectors && request.reason == FinishReason::kStop;
  if (request.first_token_us == 0 && !has_vectors) return;
  model.prompt_tokens->Increment(request.prompt_tokens);
  model.cached_tokens->Increment(request.cached_tokens);
  if (has_vectors) {
    model.prefill->Observe(seconds(request.prefill_us));
    model.drain_rate.note(parts_->clock.now(), request.prefill_us);
    return;
  }
  model.generation_tokens->Increment(request.output_tokens);
  model.first_token->Observe(seconds(request.first_token_us));
  model.prefill->Observe(seconds(request.prefill_us));
  model.decode->Observe(seconds(request.decode_us));
  model.prompt->Observe(request.prompt_tokens);
  model.generation->Observe(request.output_tokens);
  model.drain_rate.note(parts_->clock.now(), request.prefill_us + request.decode_us);
}

void Metrics::on_tokens(std::string_view model, TimeUs us, uint32_t tokens) {
  if (tokens == 0) return;
  prometheus::Histogram& gap = *parts_->model(model).token_gap;
  const double each = seconds(us) / tokens;
  for (uint32_t i = 0; i < tokens; ++i) gap.Observe(each);
}

void Metrics::on_tool_call(std::string_view model, std::string_view format) {
  parts_->tool_calls.Add({{"model_name", std::string(model)}, {"format", std::string(format)}})
      .Increment();
}

void Metrics::on_rejected(std::string_view model, Rejection why) {
  parts_->model(model).rejected[static_cast<size_t>(why)]->Increment();
}

void Metrics::set_state_free_bytes(uint64_t bytes) {
  parts_->state_free_bytes.Set(static_cast<double>(bytes));
}

void Metrics::set_store(int64_t away_s, int64_t nodes) {
  parts_->store_away.Add({}).Set(static_cast<double>(away_s));
  parts_->store_nodes.Add({}).Set(static_cast<double>(nodes));
}

void Metrics::set_budget(const char* budget, uint64_t used_bytes, uint64_t limit_bytes) {
  const prometheus::Labels labels = {{"budget", budget}};
  parts_->budget_used.Add(labels).Set(static_cast<double>(used_bytes));
  if (limit_bytes > 0) parts_->budget_limit.Add(labels).Set(static_cast<double>(limit_bytes));
}

void Metrics::watch_kv_events(std::function<KvEventRows()> rows) {
  parts_->kv_events = std::move(rows);
}

void Metrics::on_answer(const Route* route, int status) {
  parts_->answers.add(route, status);
}

std::string Metrics::page(const SchedulerManager& models, const ShowsModel& shows) {
  // Loaded models show their zeros before the first request.
  for (const ModelStatus& model : models.models()) {
    if (model.served) parts_->model(model.config.id);
  }
  std::vector<prometheus::MetricFamily> families = engine_families(models, parts_->clock.now());
  for (prometheus::MetricFamily& family : parts_->registry.Collect()) {
    families.push_back(std::move(family));
  }
  if (parts_->kv_events) add_kv_event_families(parts_->kv_events(), families);
  if (shows) keep_shown(families, shows);
  add_device_families(models, families);
  families.push_back(parts_->answers.family());
  families.push_back(dropped_lines());
  // A stream that cannot grow goes silent, which would make half a page; this one throws.
  std::ostringstream page;
  page.exceptions(std::ios::badbit);
  prometheus::TextSerializer().Serialize(page, families);
  return page.str();
}

uint64_t Metrics::retry_after_s(std::string_view model, uint32_t waiting) const {
  return parts_->model(model).drain_rate.seconds_for(waiting, parts_->clock.now());
}

}  // namespace skein
