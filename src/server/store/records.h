// The records that the store keeps, as plain values. Times are seconds since 1970; 0 stands for
// "never".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sched/types.h"

namespace skein {

// Whose rows a query sees. Every query has one, so that another tenant's id is simply not found.
struct Scope {
  std::string owner;  // a key's id; empty: the anonymous owner
  bool all = false;   // an admin's
};

struct KeyRecord {
  std::string id;  // 16 hex digits
  std::string name;
  Priority tier = Priority::NORMAL;
  std::vector<std::string> models;   // empty: all
  uint32_t requests_per_minute = 0;  // 0: no limit
  uint64_t tokens_per_minute = 0;    // 0: no limit
  bool admin = false;
  std::array<std::byte, 16> salt{};
  std::array<std::byte, 32> digest{};  // SHA-256 of salt and secret
  int64_t created_at_s = 0;
  int64_t rotated_at_s = 0;
  int64_t revoked_at_s = 0;
};

struct UsageCounts {
  uint64_t requests = 0;
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;  // of the prompt tokens, those that the prefix cache saved
  uint64_t output_tokens = 0;
};

struct OwnerUsage {
  std::string owner;
  UsageCounts counts;
};

struct FileRecord {
  std::string id;  // "file-" and 24 hex digits; also its name on disk
  std::string owner;
  std::string purpose;
  std::string name;  // as the client called it; never part of a path
  uint64_t bytes = 0;
  int64_t created_at_s = 0;
};

enum class BatchStatus : uint8_t {
  kValidating,
  kInProgress,
  kFinalizing,
  kCompleted,
  kFailed,
  kExpired,
  kCancelling,
  kCancelled,
};
inline constexpr size_t kBatchStatuses = 8;

inline constexpr std::array<std::string_view, kBatchStatuses> kBatchStatusNames = {
    "validating", "in_progress", "finalizing", "completed",
    "failed",     "expired",     "cancelling", "cancelled"};

// As the API spells it.
constexpr std::string_view name_of(BatchStatus status) {
  return kBatchStatusNames[static_cast<size_t>(status)];
}

// Whether the batch still has work to do or files to write.
constexpr bool is_live(BatchStatus status) {
  return status <= BatchStatus::kFinalizing || status == BatchStatus::kCancelling;
}

// Why a batch failed as a whole.
struct BatchError {
  std::string code;
  std::string message;
  int64_t line = 0;  // of the input file, from 1; 0: the file as a whole
};

struct BatchRecord {
  std::string id;  // "batch_" and 32 hex digits
  std::string owner;
  std::string endpoint;  // "/v1/chat/completions"
  std::string input_file;
  std::string output_file;  // empty: none
  std::string error_file;   // empty: none
  std::string metadata;     // JSON text, as given
  BatchStatus status = BatchStatus::kValidating;
  std::array<int64_t, kBatchStatuses> began_at_s{};  // by status; kValidating: when it was created
  int64_t expires_at_s = 0;
  uint64_t total_lines = 0;
  uint64_t completed_lines = 0;
  uint64_t failed_lines = 0;
  std::vector<BatchError> errors;

  int64_t at_s(BatchStatus when) const { return began_at_s[static_cast<size_t>(when)]; }
};

struct LineResult {
  int32_t status_code = 0;  // as HTTP would have answered; 2xx counts as completed
  std::string request_id;
  std::string body;          // JSON text
  std::string headers = {};  // that the answer would have had: a JSON object; empty: none
};

struct ListOptions {
  std::string after{};  // an id; empty: from the start
  uint32_t limit = 20;
  bool oldest_first = false;
  std::string purpose{};  // files only; empty: all
};

template <class T>
struct Page {
  std::vector<T> items;
  bool has_more = false;
};

}  // namespace skein
