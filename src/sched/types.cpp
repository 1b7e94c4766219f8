#include "sched/types.h"

#include <fmt/core.h>

namespace skein {

namespace {

// `names` has one for each value up to `kLast`, in their order.
template <auto kLast, size_t kNames>
std::string_view name_in(const std::string_view (&names)[kNames], decltype(kLast) value) {
  static_assert(kNames == static_cast<size_t>(kLast) + 1);
  const auto i = static_cast<size_t>(value);
  return i < kNames ? names[i] : "unknown";
}

}  // namespace

std::string_view name_of(Priority priority) {
  return name_in<Priority::LOW>({"high", "normal", "low"}, priority);
}

std::string_view name_of(RequestStatus status) {
  return name_in<RequestStatus::CANCELLED>(
      {"waiting", "prefilling", "running", "completed", "cancelled"}, status);
}

std::string_view name_of(FinishReason reason) {
  return name_in<FinishReason::kDrained>(
      {"stop", "length", "tool_calls", "cancelled", "timed_out", "error", "drained"}, reason);
}

std::string_view name_of(WaitReason reason) {
  return name_in<WaitReason::kDrawUnderWay>(
      {"none", "behind_others", "batch_full", "no_blocks", "step_budget", "prefix_under_way",
       "held_back", "draw_under_way"},
      reason);
}

std::string Explanation::describe() const {
  switch (wait) {
    case WaitReason::kNone:
      return fmt::format("{}: nothing holds it up", name_of(status));
    case WaitReason::kBehindOthers:
      return fmt::format("waits: number {} in the queue", queue_position);
    case WaitReason::kBatchFull:
      return "waits: first in the queue, but the batch is full";
    case WaitReason::kNoBlocks:
      return fmt::format("waits: needs {} KV blocks, {} are available", blocks_needed,
                         blocks_available);
    case WaitReason::kStepBudget:
      return "waits: the step's token budget went to others";
    case WaitReason::kPrefixUnderWay:
      return "waits: another request computes the block it needs next";
    case WaitReason::kHeldBack:
      return "waits: it gives way when its step in flight is done";
    case WaitReason::kDrawUnderWay:
      return "waits: what its form allows next takes long to find";
  }
  return "unknown";
}

}  // namespace skein
