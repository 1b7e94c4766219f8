#include "bench/schedule_sim.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "base/rng.h"

namespace skein::bench {
namespace {

// One request's times on the virtual clock.
struct SimTimes {
  TimeUs started = kNever, first_token = kNever, ended = kNever;
  bool refused = false;
};

class VirtualRun {
 public:
  VirtualRun(std::span<const WorkItem> items, const SimLoad& load,
             ContinuousBatchingScheduler& scheduler)
      : items_(items), load_(load), scheduler_(scheduler), times_(items.size()) {}

  Status run() {
    while (next_ < items_.size() || !scheduler_.idle()) {
      SKEIN_TRY(submit_arrived());
      scheduler_.plan(now_, plan_);
      for (const RequestId id : plan_.admitted) {
        SimTimes& times = times_[id.value];
        times.started = std::min(times.started, now_);
      }
      if (!plan_.empty()) {
        step();
      } else if (next_ < items_.size()) {
        now_ = std::max(now_, items_[next_].arrival_us);
      } else if (!scheduler_.idle()) {
        return internal_error("{} requests wait and none can run", items_.size() - ended_);
      }
    }
    return {};
  }

  SimOutcome outcome() const {
    SimOutcome out;
    std::array<std::array<std::vector<double>, 3>, kPriorities> waits;
    std::array<ClassWaits, kPriorities> classes;
    for (size_t i = 0; i < items_.size(); ++i) {
      const auto at = static_cast<size_t>(items_[i].priority);
      if (times_[i].refused) {
        ++classes[at].refused;
        continue;
      }
      const auto since = [&](TimeUs t) {
        return static_cast<double>(t - items_[i].arrival_us) / kUsPerMs;
      };
      waits[at][0].push_back(since(times_[i].started));
      waits[at][1].push_back(since(times_[i].first_token));
      waits[at][2].push_back(since(times_[i].ended));
    }
    for (size_t at = 0; at < kPriorities; ++at) {
      classes[at].priority = static_cast<Priority>(at);
      classes[at].requests = waits[at][0].size();
      classes[at].queue_ms = spread_of(waits[at][0]);
      classes[at].first_token_ms = spread_of(waits[at][1]);
      classes[at].latency_ms = spread_of(waits[at][2]);
      if (classes[at].requests + classes[at].refused > 0) out.classes.push_back(classes[at]);
    }
    const SchedulerStats stats = scheduler_.stats();
    out.seconds = static_cast<double>(now_) / kUsPerSecond;
    out.steps = stats.steps;
    out.generated_tokens = stats.generated_tokens;
    out.preemptions = stats.preemptions;
    out.prefix_hit_tokens = stats.prefix_hit_tokens;
    out.mean_batch = steps_ > 0 ? static_cast<double>(rows_) / static_cast<double>(steps_) : 0;
    return out;
  }

 private:
  Status submit_arrived() {
    for (; next_ < items_.size() && items_[next_].arrival_us <= now_; ++next_) {
      const WorkItem& item = items_[next_];
      RequestSpec spec;
      spec.id = RequestId{next_};
      spec.priority = item.priority;
      spec.prompt = made_up_tokens(item, load_.scheduler.vocab_size);
      spec.max_new_tokens = item.max_tokens;
      // An engine hears of it between two steps, as here.
      const Status status = scheduler_.submit(std::move(spec), now_);
      times_[next_].refused = status.code() == Code::kResourceExhausted;
      if (!status.ok() && !times_[next_].refused) {
        return Status(status.code(), fmt::format("request {}: {}", next_ + 1, status.message()));
      }
    }
    return {};
  }

  void step() {
    const TimeUs elapsed = load_.step_us + load_.token_us * static_cast<TimeUs>(plan_.tokens);
    now_ += elapsed;
    ++steps_;
    rows_ += plan_.segments.size();
    result_.reset(plan_.step);
    result_.elapsed_us = elapsed;
    for (const Segment& segment : plan_.segments) {
      const auto token =
          static_cast<TokenId>(random_at(segment.request.value, segment.start + segment.count) %
                               load_.scheduler.vocab_size);
      result_.add(SegmentOutcome::kOk, std::span(&token, segment.samples));
    }
    scheduler_.commit(result_, now_, effects_);
    for (const TokenEvent& token : effects_.tokens) {
      SimTimes& times = times_[token.request.value];
      times.first_token = std::min(times.first_token, now_);
    }
    for (const EndEvent& end : effects_.ended) {
      times_[end.request.value].ended = now_;
      ++ended_;
    }
  }

  const std::span<const WorkItem> items_;
  const SimLoad& load_;
  ContinuousBatchingScheduler& scheduler_;
  std::vector<SimTimes> times_;
  StepPlan plan_;
  StepResult result_;
  StepEffects effects_;
  TimeUs now_ = 0;
  size_t next_ = 0;
  size_t ended_ = 0;
  uint64_t steps_ = 0, rows_ = 0;
};

}  // namespace

Result<SimOutcome> simulate_schedule(std::span<const WorkItem> items, const SimLoad& load) {
  SKEIN_ASSIGN(const std::unique_ptr<ContinuousBatchingScheduler> scheduler,
               ContinuousBatchingScheduler::create(load.scheduler));
  VirtualRun run(items, load, *scheduler);
  SKEIN_TRY(run.run());
  return run.outcome();
}

std::vector<WorkItem> synthetic_items(const SyntheticLoad& load) {
  std::vector<WorkItem> items(load.requests);
  Rng rng(load.seed);
  for (WorkItem& item : items) {
    item.prompt_tokens = static_cast<uint32_t>(rng.between(16, 512));
    item.max_tokens = static_cast<uint32_t>(rng.between(16, 256));
    const uint64_t dice = rng.below(100);
    item.priority = dice < load.high_percent                      ? Priority::HIGH
                    : dice < load.high_percent + load.low_percent ? Priority::LOW
                                                                  : Priority::NORMAL;
  }
  set_poisson_arrivals(items, load.rate, load.seed);
  return items;
}

}  // namespace skein::bench
