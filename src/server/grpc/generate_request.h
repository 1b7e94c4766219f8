// A GenerateRequest in skein's own words, or what of it cannot be had.
#pragma once

#include <string>

#include "sched/types.h"
#include "server/api/completion_request.h"
#include "server/auth/key_ring.h"
#include "server/grpc/vllm.pb.h"

namespace skein::rpc {

// What of a request is not about its answer.
struct GenerateTerms {
  std::string cache_salt;  // empty: of nobody in particular
  bool bypasses_cache = false;
  Priority priority = Priority::NORMAL;
};

struct Generate {
  api::CompletionRequest request;
  GenerateTerms terms;
};

// Takes the texts and ids out of `message`. Errors name the field as vLLM does.
api::Parsed<Generate> read_generate(::vllm::GenerateRequest& message, bool stream);

// Below 0 is HIGH, above LOW: as vLLM counts, whose lowest number comes first. Dynamo counts the
// other way round, and its sidecar turns its numbers over.
constexpr Priority class_of(int32_t priority) {
  if (priority == 0) return Priority::NORMAL;
  return priority < 0 ? Priority::HIGH : Priority::LOW;
}

// Whoever sends it is trusted to name the tenant: one that is a key of ours (Dynamo's x-tenant-id
// as /v1/auth/check gives it) has that key's models, tokens a minute and usage, and was counted as
// a request when it was checked. The salt is of the name alone, so that tenants share nothing.
std::shared_ptr<const Principal> principal_of(const GenerateTerms& terms, const KeyRing& keys,
                                              const HashKey& salt_key);

}  // namespace skein::rpc
