// An answer as it is generated: tokens from DirectInference, text to a stream.
#pragma once

#include <atomic>
#include <cstdio>
#include <string>

#include "base/status.h"
#include "engine/loading/loaded_model.h"
#include "engine/manager/direct_inference.h"
#include "generate/events.h"

namespace skein::apps {

struct Answer {
  std::string text;                          // what was written, without thoughts and calls
  OrderedJson calls = OrderedJson::array();  // of tools, as a message has them
  DirectOutcome outcome;
};

// Writes and flushes text to `out` as soon as it is certain. Thoughts and calls are dimmed there on
// a terminal, and go to stderr from a pipe. The model has a tokenizer.
Result<Answer> stream_answer(DirectInference& inference, const LoadedTokenizer& tokenizer,
                             const DirectRequest& request, ReadOptions options,
                             const std::atomic<bool>& interrupted, std::FILE* out);

// The speeds of one or more outcomes, added up, as two lines for people.
std::string describe_speed(const DirectOutcome& outcome);

}  // namespace skein::apps
