// The values that a client of an engine gives and gets; they cross threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/time.h"
#include "engine/loop/pooling.h"
#include "engine/sampling/sampler.h"
#include "engine/sampling/sampling_params.h"
#include "engine/speculation/speculation.h"
#include "sched/types.h"

namespace skein {

struct GenerationRequest {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  std::optional<uint32_t> max_tokens;  // absent: to the end of the context
  Priority priority = Priority::NORMAL;
  Hash128 salt;                   // requests with different salts never share KV
  uint64_t tenant = 0;            // whose share of the queue it takes; salts may be shared
  bool follows = false;           // it comes after a choice of the same answer that has ended
  bool background = false;        // a line of a batch: nobody waits for it
  TimeUs timeout_us = kNever;     // from submission to the last token
  bool reports_progress = false;  // StreamChunk::computed_tokens moves during prefill
  // Other than kNone: no tokens. It is complete when its prompt is computed, and its end has the
  // hidden states in one vector.
  Pooling pooling = Pooling::kNone;
  // For an encoder: where the second of two texts begins; 0: there is one.
  uint32_t second_from = 0;
  std::shared_ptr<const Form> form = {};  // of the model that it goes to; none: nullptr
  // With a form that has thoughts: how many tokens they may have in all.
  std::optional<uint32_t> thought_budget = {};
  std::optional<Speculation> speculation = {};  // absent: the engine's; it changes no token
};

// The last thing that a stream says.
struct GenerationEnd {
  FinishReason reason = FinishReason::kError;
  Status status;  // not ok: why it failed; ok where the reason says it all
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;  // of the prompt, found computed when it started
  uint32_t generated_tokens = 0;
  uint32_t preemptions = 0;
  int64_t start_priority_milli = 0;  // effective priority when it first ran
  uint32_t prefill_chunks = 0;       // steps that computed its prompt
  TimeUs queue_us = 0;               // until it first ran
  TimeUs prefill_us = 0;             // from there to the first token
  TimeUs decode_us = 0;              // from there to the end
  std::vector<float> hidden = {};    // with pooling: the vector; all of it finite
};

}  // namespace skein
