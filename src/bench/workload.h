// The requests of a run: built-in prompts, short to long, as many different ones as wanted; made-up
// ids of one length; or a trace.
//
// No two built-in prompts begin alike, so a prefix cache finds nothing, however many there are,
// unless a shared prefix is asked for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/time.h"
#include "sched/types.h"

namespace skein::bench {

inline constexpr uint32_t kBuiltInPrompts = 20;
inline constexpr uint32_t kPieceTokens = 512;

// One request of a workload. A trace may give ids or a mere count instead of a text.
struct WorkItem {
  std::string text;
  std::vector<TokenId> tokens;
  uint32_t prompt_tokens = 0;  // without text and ids: that many made-up ones
  // With it: what its stretches of kPieceTokens are. Equal ones have equal ids, so that a prefix
  // cache finds what the trace's own would have found.
  std::vector<uint64_t> pieces;
  uint64_t number = 0;  // made-up ids differ where this does
  uint32_t max_tokens = 0;
  // In a chat: how the answer begins, which goes on from there.
  std::string beginning;
  float temperature = 0;
  bool ends_by_itself = false;  // at a stop token; false: it runs past them to max_tokens
  TimeUs arrival_us = 0;        // since the trace began
  Priority priority = Priority::NORMAL;
};

// The first `count` prompts. Lengths are mixed in any stretch of them. With `shared_prefix` all
// begin with the same instructions of some 200 tokens.
std::vector<WorkItem> built_in_workload(uint32_t count, uint32_t max_tokens, bool shared_prefix);

// The items `first` to `first + count` of an endless list of prompts of exactly so many made-up
// ids.
std::vector<WorkItem> made_up_workload(uint32_t first, uint32_t count, uint32_t prompt_tokens,
                                       uint32_t max_tokens);

// A trace: a JSON object a line with
//   prompt (text), or prompt_tokens (ids, or their number);
//   max_tokens (or output_tokens; `max_tokens` of the call if absent), class (high, normal, low),
//   arrival_ms (since the start).
// Mooncake's traces are taken as they are: timestamp, input_length, output_length, hash_ids.
// Lines of a server's log are taken too: those of requests, with the time they arrived. Errors name
// the line. Sorted by arrival.
Result<std::vector<WorkItem>> parse_trace(std::string_view text, uint32_t max_tokens);

// Requests at `rate` per second with exponential gaps, `count` of them; the same for a seed.
void set_poisson_arrivals(std::vector<WorkItem>& items, double rate, uint64_t seed);

// The ids of an item, all below `vocab`: its own; or, where there is no tokenizer, one for every
// four bytes of its text; or as many as it wants.
std::vector<TokenId> made_up_tokens(const WorkItem& item, uint32_t vocab);

// `class` as traces and keys name it; kInvalidArgument lists the names.
Result<Priority> priority_of_name(std::string_view name);

}  // namespace skein::bench
