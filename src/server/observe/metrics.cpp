#include "server/observe/metrics.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
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
#include "server/router.h"

namespace skein {
namespace {

// The models' own gauges and counts at this moment, as Prometheus families.

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

using Labels = std::vector<ClientMetric::Label>;

// One model as the page shows it.
struct Shown {
  std::string id;
  EngineSnapshot snapshot;  // with the counts of its earlier times
  bool loaded = false;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;

  const SchedulerStats& stats() const { return snapshot.scheduler; }
};

Shown shown(const ModelStatus& model) {
  Shown out;
  out.id = model.config.id;
  out.snapshot = model.past;
  if (!model.served) return out;
  out.loaded = true;
  out.snapshot = model.served->snapshot();
  add_counts(out.snapshot, model.past);
  out.weight_bytes = model.served->weight_bytes();
  out.kv_bytes = model.served->kv_bytes();
  return out;
}

// Builds families from one row per model.
class MetricsPage {
 public:
  explicit MetricsPage(std::vector<Shown> models) : models_(std::move(models)) {}

  template <class Value>
  void gauge(const char* name, const char* help, const Value& value) {
    add(name, help, MetricType::Gauge, [&](MetricFamily& family, const Shown& model) {
      if (model.loaded) family.metric.push_back(number(model, {}, value(model)));
    });
  }

  template <class Value>
  void counter(const char* name, const char* help, const Value& value) {
    add(name, help, MetricType::Counter, [&](MetricFamily& family, const Shown& model) {
      family.metric.push_back(number(model, {}, static_cast<double>(value(model))));
    });
  }

  // One gauge per class.
  template <class Value>
  void class_gauge(const char* name, const char* help, const Value& value) {
    add(name, help, MetricType::Gauge, [&](MetricFamily& family, const Shown& model) {
      if (!model.loaded) return;
      for (uint32_t p = 0; p < kPriorities; ++p) {
        const Labels labels = {{"class", std::string(name_of(static_cast<Priority>(p)))}};
        family.metric.push_back(number(model, labels, value(model, p)));
      }
    });
  }

  // `unit`: what one of the buckets' units is in the metric's.
  void histogram(const char* name, const char* help, DoublingBuckets EngineSnapshot::*buckets,
                 double unit = 1) {
    add(name, help, MetricType::Histogram, [&](MetricFamily& family, const Shown& model) {
      family.metric.push_back(distribution(model, model.snapshot.*buckets, unit));
    });
  }

  void form_histogram(const char* name, const char* help, DoublingBuckets FormCounts::*buckets,
                      double unit) {
    add(name, help, MetricType::Histogram, [&](MetricFamily& family, const Shown& model) {
      family.metric.push_back(distribution(model, model.snapshot.forms.*buckets, unit));
    });
  }

  void refused_forms();
  void configuration();
  void kv_blocks();
  void memory();
  void total(const char* name, const char* help, uint64_t value);

  std::vector<MetricFamily> take() { return std::move(families_); }

 private:
  template <class Fill>
  void add(const char* name, const char* help, MetricType type, const Fill& fill) {
    MetricFamily family{name, help, type, {}};
    for (const Shown& model : models_) fill(family, model);
    if (!family.metric.empty()) families_.push_back(std::move(family));
  }

  // Both, since only the one that the family's type asks for is read.
  static ClientMetric number(const Shown& model, const Labels& more, double value) {
    ClientMetric metric;
    metric.label = {{"model_name", model.id}};
    metric.label.insert(metric.label.end(), more.begin(), more.end());
    metric.gauge.value = value;
    metric.counter.value = value;
    return metric;
  }

  static ClientMetric distribution(const Shown& model, const DoublingBuckets& buckets,
                                   double unit) {
    ClientMetric metric = number(model, {}, 0);
    uint64_t count = 0;
    for (size_t i = 0; i < DoublingBuckets::kCount; ++i) {
      count += buckets.counts[i];
      const bool last = i + 1 == DoublingBuckets::kCount;
      const double bound = static_cast<double>(uint64_t{1} << (buckets.first + i)) * unit;
      metric.histogram.bucket.push_back(
          {count, last ? std::numeric_limits<double>::infinity() : bound});
    }
    metric.histogram.sample_count = count;
    metric.histogram.sample_sum = static_cast<double>(buckets.sum) * unit;
    return metric;
  }

  const std::vector<Shown> models_;
  std::vector<MetricFamily> families_;
};

void MetricsPage::configuration() {
  add("vllm:cache_config_info", "The paged KV cache.", MetricType::Gauge,
      [](MetricFamily& family, const Shown& model) {
        if (!model.loaded) return;
        const Labels labels = {{"block_size", std::to_string(kBlockTokens)},
                               {"num_gpu_blocks", std::to_string(model.stats().pool_blocks)}};
        family.metric.push_back(number(model, labels, 1));
      });
}

void MetricsPage::refused_forms() {
  add("skein:schema_refused_total", "Forms that were refused, by the error's code.",
      MetricType::Counter, [](MetricFamily& family, const Shown& model) {
        for (size_t i = 0; i < FormCounts::kCodes; ++i) {
          const auto code = grammar::form_code_name(static_cast<grammar::FormCode>(i));
          family.metric.push_back(number(model, {{"code", std::string(code)}},
                                         static_cast<double>(model.snapshot.forms.refused[i])));
        }
      });
}

void MetricsPage::kv_blocks() {
  add("skein:kv_blocks", "KV blocks by what they are: held, cached or free.", MetricType::Gauge,
      [](MetricFamily& family, const Shown& model) {
        if (!model.loaded) return;
        const SchedulerStats& stats = model.stats();
        const uint32_t free = stats.pool_blocks - stats.held_blocks - stats.cached_blocks;
        const std::pair<const char*, uint32_t> states[] = {
            {"held", stats.held_blocks}, {"cached", stats.cached_blocks}, {"free", free}};
        for (const auto& [state, blocks] : states) {
          family.metric.push_back(number(model, {{"state", state}}, blocks));
        }
      });
}

void MetricsPage::memory() {
  add("skein:model_memory_bytes", "Memory of loaded models.", MetricType::Gauge,
      [](MetricFamily& family, const Shown& model) {
        if (!model.loaded) return;
        const auto bytes = [](uint64_t n) { return static_cast<double>(n); };
        family.metric.push_back(number(model, {{"kind", "weights"}}, bytes(model.weight_bytes)));
        family.metric.push_back(number(model, {{"kind", "kv"}}, bytes(model.kv_bytes)));
      });
}

void MetricsPage::total(const char* name, const char* help, uint64_t value) {
  ClientMetric metric;
  metric.counter.value = static_cast<double>(value);
  families_.push_back({name, help, MetricType::Counter, {metric}});
}

uint32_t waiting(const SchedulerStats& stats) {
  uint32_t all = 0;
  for (const uint32_t of_class : stats.waiting) all += of_class;
  return all;
}

void add_gauges(MetricsPage& page, TimeUs now) {
  page.gauge("vllm:num_requests_running", "Requests in the batch.",
             [](const Shown& m) { return m.stats().running + m.stats().prefilling; });
  page.gauge("vllm:num_requests_waiting", "Requests in the queue.",
             [](const Shown& m) { return waiting(m.stats()); });
  page.gauge("vllm:kv_cache_usage_perc", "KV blocks in use, 1 being all; cached ones are free.",
             [](const Shown& m) {
               const SchedulerStats& stats = m.stats();
               return stats.pool_blocks == 0
                          ? 0.0
                          : static_cast<double>(stats.held_blocks) / stats.pool_blocks;
             });
  page.configuration();
  page.class_gauge("skein:queue_requests", "Requests in the queue, by class.",
                   [](const Shown& m, uint32_t p) { return m.stats().waiting[p]; });
  page.class_gauge("skein:queue_age_seconds", "Age of the oldest request in the queue, by class.",
                   [now](const Shown& m, uint32_t p) {
                     const TimeUs oldest = m.stats().oldest_arrival[p];
                     if (oldest == kNever || oldest > now) return 0.0;
                     return static_cast<double>(now - oldest) / kUsPerSecond;
                   });
  page.kv_blocks();
  page.memory();
  page.gauge("skein:engine_up", "1 while the engine answers, 0 while it hangs or has failed.",
             [](const Shown& m) {
               const EngineState state = m.snapshot.state;
               return state == EngineState::kHung || state == EngineState::kFailed ? 0 : 1;
             });
}

void add_counters(MetricsPage& page) {
  page.counter("vllm:prefix_cache_queries_total", "Tokens looked up in the prefix cache.",
               [](const Shown& m) { return m.stats().prefix_query_tokens; });
  page.counter("vllm:prefix_cache_hits_total", "Tokens found in the prefix cache.",
               [](const Shown& m) { return m.stats().prefix_hit_tokens; });
  page.counter("vllm:num_preemptions_total", "Requests that gave way and went on later.",
               [](const Shown& m) { return m.stats().preemptions; });
  page.counter("skein:computed_tokens_total", "Tokens that went through the model.",
               [](const Shown& m) { return m.stats().computed_tokens; });
  page.counter("skein:wasted_tokens_total", "Tokens sampled for requests that had ended by then.",
               [](const Shown& m) { return m.stats().wasted_tokens; });
  page.counter("skein:kv_evictions_total", "Cached KV blocks that were taken for something else.",
               [](const Shown& m) { return m.stats().evictions; });
  page.counter("skein:row_faults_total", "Rows of a step that failed; each ends one request.",
               [](const Shown& m) { return m.snapshot.faults; });
  page.counter("skein:step_reruns_total", "Steps that threw and were run again row by row.",
               [](const Shown& m) { return m.snapshot.reruns; });
  page.counter("skein:stalled_readers_total", "Requests cut because nobody read the answer.",
               [](const Shown& m) { return m.snapshot.stalled_readers; });
  page.counter("skein:grammar_cache_hits_total", "Forms that were compiled before.",
               [](const Shown& m) { return m.snapshot.forms.hits; });
  page.counter("skein:grammar_cache_misses_total", "Forms that had to be compiled.",
               [](const Shown& m) { return m.snapshot.forms.misses; });
  page.refused_forms();
  page.form_histogram("skein:grammar_compile_seconds", "Time to compile a form.",
                      &FormCounts::compile_us, 1e-6);
  page.form_histogram("skein:mask_seconds", "Time to find the tokens that a form allows next.",
                      &FormCounts::mask_ns, 1e-9);
  page.histogram("vllm:iteration_tokens_total", "Tokens per step.", &EngineSnapshot::step_tokens);
  page.histogram("skein:step_rows", "Requests per step.", &EngineSnapshot::step_segments);
  page.histogram("skein:step_time_seconds", "Time of a step in the model and the sampler.",
                 &EngineSnapshot::step_us, 1e-6);
}

// The families cover every model that is or ever was in memory. `now` is the engines' time.
std::vector<MetricFamily> engine_families(const SchedulerManager& models, TimeUs now) {
  std::vector<Shown> rows;
  for (const ModelStatus& model : models.models()) {
    Shown row = shown(model);
    if (row.loaded || row.stats().submitted > 0) rows.push_back(std::move(row));
  }
  MetricsPage page(std::move(rows));
  add_gauges(page, now);
  add_counters(page);
  const ManagerStats stats = models.stats();
  page.total("skein:model_loads_total", "Models loaded.", stats.loads);
  page.total("skein:model_load_failures_total", "Loads that failed.", stats.failed_loads);
  page.total("skein:model_evictions_total", "Models that went to make room.", stats.evictions);
  page.total("skein:direct_inference_requests_total",
             "Requests that ran alone because batching was off or its engine had failed.",
             stats.direct_requests);
  return page.take();
}

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

// How fast requests end: the latest ones, with the time each was worked on.
class DrainRate {
 public:
  void note(TimeUs now, TimeUs served_us) {
    const std::lock_guard lock(mutex_);
    ends_.push_back({now, served_us});
    if (ends_.size() > kKept) ends_.pop_front();
  }

  uint64_t seconds_for(uint32_t waiting, TimeUs now) const {
    const std::lock_guard lock(mutex_);
    const auto first = std::find_if(ends_.begin(), ends_.end(),
                                    [now](const End& end) { return now - end.at < kWindowUs; });
    if (first == ends_.end()) return kUnmeasuredS;
    // From when the first of them began: a single end says how long one takes.
    const TimeUs span = std::max<TimeUs>(now - first->at + first->served_us, 1);
    const auto ended = static_cast<double>(ends_.end() - first);
    const double wait_s = static_cast<double>(waiting) * seconds(span) / ended;
    return static_cast<uint64_t>(std::clamp(std::ceil(wait_s), 1.0, 60.0));
  }

 private:
  static constexpr size_t kKept = 128;
  static constexpr TimeUs kWindowUs = 60 * kUsPerSecond;
  static constexpr uint64_t kUnmeasuredS = 5;
  struct End {
    TimeUs at;
    TimeUs served_us;
  };
  mutable std::mutex mutex_;
  std::deque<End> ends_;
};

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

  // What is told about one model.
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

void Metrics::set_budget(const char* budget, uint64_t used_bytes, uint64_t limit_bytes) {
  const prometheus::Labels labels = {{"budget", budget}};
  parts_->budget_used.Add(labels).Set(static_cast<double>(used_bytes));
  if (limit_bytes > 0) parts_->budget_limit.Add(labels).Set(static_cast<double>(limit_bytes));
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
