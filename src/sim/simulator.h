// Runs the real scheduler against the oracle model on a virtual clock, with faults, and checks
// after every step what must always hold. Everything is a function of the configuration: a failing
// seed fails again.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "sched/queue_door.h"
#include "sched/scheduler.h"
#include "sim/oracle_model.h"
#include "sim/workload.h"

namespace skein::sim {

// Rare paths: a proof that never takes them proves nothing.
enum class Path : uint32_t {
#define SKEIN_PATH(name) k_##name,
#include "sim/paths.def"
  kCount,
};
std::string_view name_of(Path path);
inline constexpr size_t kPaths = static_cast<size_t>(Path::kCount);

struct SimReport {
  std::string violation;  // empty: everything held
  std::array<uint64_t, kPaths> paths{};
  uint64_t steps = 0;
  uint64_t requests = 0;
  uint64_t tokens = 0;
  // How much later than the one it overtook a request ever arrived, in 1/1000 of class gap / rate.
  uint64_t worst_overtake_permille = 0;
  std::string plan_log;  // with keep_plan_log: every plan, byte for byte
  // With keep_transcripts: what each request received, and why it ended.
  std::map<uint64_t, std::pair<std::vector<TokenId>, FinishReason>> transcripts;
};

class Simulator {
 public:
  explicit Simulator(SimConfig config);
  SimReport run();

 private:
  // The life of one scheduler
  bool start_scheduler();
  void run_to_rest(const char* after);
  void end_life();
  void lose_runner();
  void collect_stats();

  // clients.cpp
  void arrivals();
  void submit_one();
  void submit_bad(uint64_t kind);
  void misbehave();
  void check_explanation(const SimRequest& request);
  void cancel(SimRequest& request, FinishReason reason);

  // door_checks.cpp
  void open_door();
  bool enter_door(const SimRequest& request);
  void check_answer(const SimRequest& request, const DoorAnswer& answer, uint32_t waiting,
                    uint32_t held);
  bool in_background(uint32_t tenant) const;
  bool others_ask(uint32_t tenant) const;
  uint32_t share_of_ends(TimeUs window_us) const;
  uint32_t count_waiting(const uint32_t* tenant) const;  // nullptr: of all tenants
  void leave_door(SimRequest& request);
  void note_end_at_door();
  void check_door();

  // One turn of the engine's loop
  void turn();
  void finish_oldest();
  void run_segment(const Segment& segment);
  SegmentResult sample_segment(const Segment& segment, const SimRequest& request);
  void report_fault(const Segment& segment, const SimRequest& request);
  bool puts_off(const Segment& segment, const SimRequest& request);
  void resume_put_off();
  void check_effects(const StepPlan& plan);
  void check_tokens(const Segment& segment, SimRequest& request, const SegmentResult& truth,
                    size_t& at);

  // cache_checks.cpp
  void check_kv_events();
  void copy_stored(const KvEvent& event);
  void copy_removed(const KvEvent& event);

  // plan_checks.cpp
  void check_plan(const StepPlan& plan);
  void check_moves(const StepPlan& plan);
  void check_gave_way(const SimRequest& preempted, const StepPlan& plan);
  bool is_prompt(const Segment& segment);
  void check_segment(const Segment& segment);
  void check_drafts(const Segment& segment, const SimRequest& request);
  void check_writes(const StepPlan& plan);
  void check_pace(const StepPlan& plan);
  void check_overtaking(const SimRequest& admitted);
  void check_starvation();
  void check_deadlines();
  void log_plan(const StepPlan& plan);

  // Keeps the first violation; the run ends at the next opportunity.
  template <class... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) {
    if (failed()) return;
    report_.violation =
        fmt::format("step {}: {}", planned_, fmt::format(format, std::forward<Args>(args)...));
  }
  bool failed() const { return !report_.violation.empty(); }
  void saw(Path path) { ++report_.paths[static_cast<size_t>(path)]; }
  TimeUs clock();
  SimRequest* find(RequestId id);
  void mark_ended(SimRequest& request, FinishReason reason);
  void forget_if_done(SimRequest& request);
  uint64_t room_tokens() const;

  const SimConfig config_;
  Rng rng_;
  Workload workload_;
  std::unique_ptr<ContinuousBatchingScheduler> scheduler_;
  OracleModel oracle_;
  SimReport report_;

  TimeUs now_ = 1'000'000;
  TimeUs seen_now_ = 0;  // the latest time that the scheduler was told
  std::vector<std::unique_ptr<SimRequest>> requests_;  // live, or ended with segments in flight
  std::unordered_map<uint64_t, SimRequest*> by_id_;
  uint32_t live_ = 0;
  uint64_t last_ended_ = 0;

  std::optional<QueueDoor> door_;
  uint32_t door_open_ = 0;            // slots of the batch, as the door was told
  std::map<uint32_t, TimeUs> asked_;  // by tenant: when it last did
  std::deque<TimeUs> door_ends_;      // when requests that had started ended, within a class gap

  // By hash: what the prefix cache holds, as its events tell.
  struct CopiedBlock {
    BlockId block;
    uint64_t parent_hash = 0;
    uint32_t children = 0;
  };
  std::unordered_map<uint64_t, CopiedBlock> cache_copy_;

  std::array<StepPlan, 2> plans_;
  uint64_t turns_ = 0;
  uint64_t planned_ = 0;  // plans with segments
  uint64_t finished_ = 0;
  StepResult result_;
  std::vector<SegmentResult> truth_;  // by segment; the result that is told may hide it
  StepEffects effects_;

  RequestId top_;  // who has been first in the queue, for how long, and how long it may be
  uint64_t top_turns_ = 0;
  uint64_t top_bound_ = 0;
  std::vector<uint32_t> named_;  // by block: requests whose segments name it
  std::vector<EndEvent> ends_;
};

inline SimReport simulate(const SimConfig& config) {
  return Simulator(config).run();
}

}  // namespace skein::sim
