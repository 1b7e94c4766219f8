#include "server/routes.h"

#include <array>

#include "engine/loop/request_class.h"
#include "server/http/message.h"

namespace skein {
namespace {

using enum Endpoint;
constexpr auto kOpenAi = api::Dialect::kOpenAi;
constexpr auto kAnthropic = api::Dialect::kAnthropic;
constexpr auto kTier = ClassRule::kKeyTier;
constexpr auto kLow = ClassRule::kLow;
constexpr uint64_t kJson = kJsonBodyBytes;

// Of two patterns that match, the earlier one serves.
constexpr Route kRoutes[] = {
    {kHealth, "GET", "/health", Auth::kNone, kTier, kOpenAi, 0, false, false, true},
    {kLive, "GET", "/livez", Auth::kNone, kTier, kOpenAi, 0, false, false, true},
    {kVersion, "GET", "/version", Auth::kNone, kTier, kOpenAi, 0, false},
    {kMetrics, "GET", "/metrics", Auth::kKey, kTier, kOpenAi, 0, false, false, true},
    {kChatCompletions, "POST", "/v1/chat/completions", Auth::kKey, kTier, kOpenAi, kJson, false},
    {kCompletions, "POST", "/v1/completions", Auth::kKey, kTier, kOpenAi, kJson, false},
    {kChatCompletions, "POST", "/v1/batch/chat/completions", Auth::kKey, kLow, kOpenAi, kJson,
     false},
    {kCompletions, "POST", "/v1/batch/completions", Auth::kKey, kLow, kOpenAi, kJson, false},
    {kMessages, "POST", "/v1/messages", Auth::kKey, kTier, kAnthropic, kJson, false},
    {kCountTokens, "POST", "/v1/messages/count_tokens", Auth::kKey, kTier, kAnthropic, kJson,
     false},
    {kEmbeddings, "POST", "/v1/embeddings", Auth::kKey, kTier, kOpenAi, kJson, false},
    {kModels, "GET", "/v1/models", Auth::kKey, kTier, kOpenAi, 0, false},
    {kModel, "GET", "/v1/models/{path}", Auth::kKey, kTier, kOpenAi, 0, false},
    {kFileUpload, "POST", "/v1/files", Auth::kKey, kTier, kOpenAi, kUploadBytes, true},
    {kFiles, "GET", "/v1/files", Auth::kKey, kTier, kOpenAi, 0, false},
    {kFile, "GET", "/v1/files/{id}", Auth::kKey, kTier, kOpenAi, 0, false},
    {kFileContent, "GET", "/v1/files/{id}/content", Auth::kKey, kTier, kOpenAi, 0, false},
    {kFileDelete, "DELETE", "/v1/files/{id}", Auth::kKey, kTier, kOpenAi, kJson, false},
    {kBatchCreate, "POST", "/v1/batches", Auth::kKey, kLow, kOpenAi, kJson, false},
    {kBatches, "GET", "/v1/batches", Auth::kKey, kLow, kOpenAi, 0, false},
    {kBatch, "GET", "/v1/batches/{id}", Auth::kKey, kLow, kOpenAi, 0, false},
    {kBatchCancel, "POST", "/v1/batches/{id}/cancel", Auth::kKey, kLow, kOpenAi, kJson, false},
    {kTokenize, "POST", "/tokenize", Auth::kKey, kTier, kOpenAi, kJson, false},
    {kDetokenize, "POST", "/detokenize", Auth::kKey, kTier, kOpenAi, kJson, false},
    {kApplyTemplate, "POST", "/apply-template", Auth::kKey, kTier, kOpenAi, kJson, false},
    {kRequest, "GET", "/v1/requests/{id}", Auth::kKey, kTier, kOpenAi, 0, false},
    {kRequestCancel, "DELETE", "/v1/requests/{id}", Auth::kKey, kTier, kOpenAi, kJson, false},
    {kAdminLoad, "POST", "/admin/models/load", Auth::kAdmin, kTier, kOpenAi, kJson, false},
    {kAdminUnload, "POST", "/admin/models/unload", Auth::kAdmin, kTier, kOpenAi, kJson, false},
    {kAdminKeys, "GET", "/admin/keys", Auth::kAdmin, kTier, kOpenAi, 0, false},
    {kAdminKeyAdd, "POST", "/admin/keys", Auth::kAdmin, kTier, kOpenAi, kJson, false},
    {kAdminKeyRevoke, "DELETE", "/admin/keys/{id}", Auth::kAdmin, kTier, kOpenAi, kJson, false},
    {kAdminKeyRotate, "POST", "/admin/keys/{id}/rotate", Auth::kAdmin, kTier, kOpenAi, kJson,
     false},
    {kAdminDrain, "POST", "/admin/drain", Auth::kAdmin, kTier, kOpenAi, kJson, false},
    {kAdminStats, "GET", "/admin/stats", Auth::kAdmin, kTier, kOpenAi, 0, false},
};

// Whether the path is the pattern; `id` gets what stands for its placeholder.
bool matches(std::string_view pattern, std::string_view path, std::string& id) {
  const size_t open = pattern.find('{');
  if (open == std::string_view::npos) return pattern == path;
  const size_t close = pattern.find('}', open);
  const std::string_view prefix = pattern.substr(0, open);
  const std::string_view suffix = pattern.substr(close + 1);
  if (path.size() <= prefix.size() + suffix.size()) return false;
  if (!path.starts_with(prefix) || !path.ends_with(suffix)) return false;
  const std::string_view raw =
      path.substr(prefix.size(), path.size() - prefix.size() - suffix.size());
  const bool one_segment = pattern.substr(open, close + 1 - open) == "{id}";
  if (one_segment && raw.find('/') != std::string_view::npos) return false;
  auto decoded = http::percent_decoded(raw);
  if (!decoded) return false;
  id = std::move(*decoded);
  return true;
}

}  // namespace

std::span<const Route> routes() {
  return kRoutes;
}

RouteMatch match_route(std::string_view method, std::string_view path) {
  RouteMatch match;
  for (const Route& route : kRoutes) {
    std::string id;
    if (!matches(route.pattern, path, id)) continue;
    if (route.method == method || (method == "HEAD" && route.method == "GET")) {
      return {&route, std::move(id), {}};
    }
    if (!match.allow.empty()) match.allow.append(", ");
    match.allow.append(route.method);
    if (route.method == "GET") match.allow.append(", HEAD");
  }
  if (!match.allow.empty()) match.allow.append(", OPTIONS");
  return match;
}

api::Dialect dialect_of(std::string_view path) {
  constexpr std::string_view kMessages = "/v1/messages";
  const bool messages = path == kMessages || (path.starts_with(kMessages) &&
                                              path.substr(kMessages.size()).starts_with('/'));
  return messages ? kAnthropic : kOpenAi;
}

Priority class_of(const Route& route, Priority key_tier) {
  return request_class(route.class_rule == ClassRule::kLow, key_tier);
}

}  // namespace skein
