// A request that has ended: what the log and the metrics say about it. Never its text.
#pragma once

#include <cstdint>
#include <string>

#include "base/time.h"
#include "sched/types.h"

namespace skein {

struct FinishedRequest {
  std::string id = {};          // ours: chatcmpl-..., cmpl-..., msg_...
  std::string request_id = {};  // X-Request-Id
  std::string route = {};       // the pattern: /v1/chat/completions
  std::string key_name = {};    // "anonymous" without a key
  std::string model = {};
  std::string trace_parent = {};  // the client's `traceparent`, as it came
  Priority priority = Priority::NORMAL;
  int64_t start_priority_milli = 0;  // effective priority when it first ran
  FinishReason reason = FinishReason::kStop;
  int status = 200;  // of the answer; 200 also where a stream failed in its middle
  uint32_t choices = 1;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t output_tokens = 0;  // of all choices
  uint32_t preemptions = 0;
  uint32_t prefill_chunks = 0;  // steps that computed the prompt; of several choices, the most
  TimeUs queue_us = 0;
  TimeUs prefill_us = 0;
  TimeUs decode_us = 0;
  TimeUs first_token_us = 0;  // since it arrived; 0: none came
  TimeUs total_us = 0;
  bool streamed = false;
  bool has_vectors = false;  // it asked for vectors, and never for a token
};

// How it ended and what it took, as members of JSON, each with a comma before it.
void append_outcome(std::string& out, const FinishedRequest& request);
// One line of JSON for the request log, without a newline.
std::string log_line(const FinishedRequest& request);

}  // namespace skein
