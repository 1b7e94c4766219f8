#include "server/observe/engine_metrics.h"

#include <limits>
#include <string>
#include <utility>

#include "base/ids.h"

namespace skein {
namespace {

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
  page.counter("vllm:spec_decode_num_drafts_total", "Decode rows with guesses behind them.",
               [](const Shown& m) { return m.stats().drafts; });
  page.counter("vllm:spec_decode_num_draft_tokens_total", "Guessed tokens that were computed.",
               [](const Shown& m) { return m.stats().drafted_tokens; });
  page.counter("vllm:spec_decode_num_accepted_tokens_total", "Guessed tokens that came true.",
               [](const Shown& m) { return m.stats().accepted_tokens; });
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
  page.counter("skein:draws_put_off_total",
               "Tokens drawn beside the steps: what their forms allow took long to find.",
               [](const Shown& m) { return m.snapshot.put_off; });
  page.form_histogram("skein:grammar_compile_seconds", "Time to compile a form.",
                      &FormCounts::compile_us, 1e-6);
  page.form_histogram("skein:mask_seconds", "Time to find the tokens that a form allows next.",
                      &FormCounts::mask_ns, 1e-9);
  page.histogram("vllm:iteration_tokens_total", "Tokens per step.", &EngineSnapshot::step_tokens);
  page.histogram("skein:step_rows", "Requests per step.", &EngineSnapshot::step_segments);
  page.histogram("skein:step_time_seconds", "Time of a step in the model and the sampler.",
                 &EngineSnapshot::step_us, 1e-6);
}

}  // namespace

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

}  // namespace skein
