#include "sched/types.h"

#include <fmt/core.h>

namespace skein {

std::string_view name_of(Priority priority) {
  switch (priority) {
    case Priority::HIGH:
      return "high";
    case Priority::NORMAL:
      return "normal";
    case Priority::LOW:
      return "low";
  }
  return "unknown";
}

std::string_view name_of(RequestStatus status) {
  switch (status) {
    case RequestStatus::WAITING:
      return "waiting";
    case RequestStatus::PREFILLING:
      return "prefilling";
    case RequestStatus::RUNNING:
      return "running";
    case RequestStatus::COMPLETED:
      return "completed";
    case RequestStatus::CANCELLED:
      return "cancelled";
  }
  return "unknown";
}

std::string_view name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kToolCalls:
      return "tool_calls";
    case FinishReason::kClient:
      return "cancelled";
    case FinishReason::kTimedOut:
      return "timed_out";
    case FinishReason::kError:
      return "error";
    case FinishReason::kDrained:
      return "drained";
  }
  return "unknown";
}

std::string_view name_of(WaitReason reason) {
  switch (reason) {
    case WaitReason::kNone:
      return "none";
    case WaitReason::kBehindOthers:
      return "behind_others";
    case WaitReason::kBatchFull:
      return "batch_full";
    case WaitReason::kNoBlocks:
      return "no_blocks";
    case WaitReason::kStepBudget:
      return "step_budget";
    case WaitReason::kPrefixUnderWay:
      return "prefix_under_way";
    case WaitReason::kHeldBack:
      return "held_back";
  }
  return "unknown";
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
  }
  return "unknown";
}

}  // namespace skein
