// The one table of everything that is served. What is not in it does not exist: deny by default.
//
// A pattern is matched against the path as it was sent, whole and exactly: /v1/batchx is not under
// /v1/batch/, and %63hat is not chat. {id} is one segment; {path} is the rest, slashes and all
// (names of models have them). Both are percent-decoded and never empty.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sched/types.h"
#include "server/api/errors.h"

namespace skein {

enum class Endpoint : uint8_t {
  kHealth,
  kLive,
  kVersion,
  kMetrics,
  kChatCompletions,
  kCompletions,
  kMessages,
  kCountTokens,
  kEmbeddings,
  kModels,
  kModel,
  kFileUpload,
  kFiles,
  kFile,
  kFileContent,
  kFileDelete,
  kBatchCreate,
  kBatches,
  kBatch,
  kBatchCancel,
  kTokenize,
  kDetokenize,
  kApplyTemplate,
  kRequest,
  kRequestCancel,
  kAdminLoad,
  kAdminUnload,
  kAdminKeys,
  kAdminKeyAdd,
  kAdminKeyRevoke,
  kAdminKeyRotate,
  kAdminDrain,
  kAdminStats,
  kCount,
};

enum class Auth : uint8_t {
  kNone,   // never needs a key
  kKey,    // needs one where keys are configured
  kAdmin,  // needs the admin right; never open
};

// Where the class of a request's work comes from. Never from the client.
enum class ClassRule : uint8_t { kKeyTier, kLow };

struct Route {
  Endpoint endpoint;
  std::string_view method;
  std::string_view pattern;
  Auth auth;
  ClassRule class_rule;
  api::Dialect dialect;
  uint64_t body_limit_bytes;
  bool upload;            // the body goes to a sink, not into memory
  bool is_page = false;   // a page or its parts: may be opened from anywhere, but not in a frame
  bool is_probe = false;  // also on the probe port, without a key
};

inline constexpr uint64_t kJsonBodyBytes = 8 << 20;
inline constexpr uint64_t kUploadBytes = (512ULL << 20) + (1 << 20);  // the file and its wrapping

std::span<const Route> routes();

struct RouteMatch {
  const Route* route = nullptr;  // null: nothing serves that
  std::string id;                // of {id} or {path}
  std::string allow;  // with no route: the methods that the path has; empty: it is unknown
};

// HEAD is served by the route of GET.
RouteMatch match_route(std::string_view method, std::string_view path);

// Whose errors a path gets, also where nothing is.
api::Dialect dialect_of(std::string_view path);

// The class that a route gives to its requests: LOW for batches, else the key's tier.
Priority class_of(const Route& route, Priority key_tier);

}  // namespace skein
