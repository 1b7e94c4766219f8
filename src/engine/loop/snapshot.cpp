#include "engine/loop/snapshot.h"

namespace skein {
namespace {

constexpr uint64_t SchedulerStats::*kSchedulerCounts[] = {
    &SchedulerStats::steps,
    &SchedulerStats::submitted,
    &SchedulerStats::refused,
    &SchedulerStats::completed,
    &SchedulerStats::cancelled,
    &SchedulerStats::prompt_tokens,
    &SchedulerStats::generated_tokens,
    &SchedulerStats::computed_tokens,
    &SchedulerStats::wasted_tokens,
    &SchedulerStats::drafts,
    &SchedulerStats::drafted_tokens,
    &SchedulerStats::accepted_tokens,
    &SchedulerStats::prefix_query_tokens,
    &SchedulerStats::prefix_hit_tokens,
    &SchedulerStats::admission_hits,
    &SchedulerStats::prefill_hits,
    &SchedulerStats::full_hits,
    &SchedulerStats::preemptions,
    &SchedulerStats::class_preemptions,
    &SchedulerStats::evictions,
    &SchedulerStats::deadlines,
};

constexpr uint64_t EngineSnapshot::*kEngineCounts[] = {
    &EngineSnapshot::loop_time_us,    &EngineSnapshot::model_time_us,
    &EngineSnapshot::waited_us,       &EngineSnapshot::decode_steps,
    &EngineSnapshot::decode_us,       &EngineSnapshot::device_pauses,
    &EngineSnapshot::device_pause_ns, &EngineSnapshot::reruns,
    &EngineSnapshot::faults,          &EngineSnapshot::stalled_readers,
    &EngineSnapshot::put_off,
};

constexpr DoublingBuckets EngineSnapshot::*kHistograms[] = {
    &EngineSnapshot::step_us,
    &EngineSnapshot::step_tokens,
    &EngineSnapshot::step_segments,
};

void add_buckets(DoublingBuckets& to, const DoublingBuckets& gone) {
  for (size_t i = 0; i < DoublingBuckets::kCount; ++i) to.counts[i] += gone.counts[i];
  to.sum += gone.sum;
}

}  // namespace

void add_counts(EngineSnapshot& to, const EngineSnapshot& gone) {
  for (const auto count : kSchedulerCounts) to.scheduler.*count += gone.scheduler.*count;
  for (const auto count : kEngineCounts) to.*count += gone.*count;
  for (uint32_t i = 0; i < kFinishReasons; ++i) to.finished[i] += gone.finished[i];
  for (const auto histogram : kHistograms) add_buckets(to.*histogram, gone.*histogram);
  add_buckets(to.forms.mask_ns, gone.forms.mask_ns);
  add_buckets(to.forms.compile_us, gone.forms.compile_us);
  to.forms.hits += gone.forms.hits;
  to.forms.misses += gone.forms.misses;
  for (size_t i = 0; i < FormCounts::kCodes; ++i) to.forms.refused[i] += gone.forms.refused[i];
}

}  // namespace skein
