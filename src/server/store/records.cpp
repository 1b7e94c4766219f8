#include "server/store/records.h"

namespace skein {
namespace {

constexpr std::array<std::string_view, kBatchStatuses> kStatusNames = {
    "validating", "in_progress", "finalizing", "completed",
    "failed",     "expired",     "cancelling", "cancelled"};

}  // namespace

std::string_view name_of(BatchStatus status) {
  return kStatusNames[static_cast<size_t>(status)];
}

std::optional<BatchStatus> batch_status_named(std::string_view name) {
  for (size_t i = 0; i < kStatusNames.size(); ++i) {
    if (kStatusNames[i] == name) return static_cast<BatchStatus>(i);
  }
  return std::nullopt;
}

}  // namespace skein
