// The frames of a streamed chat or completion.
//
// What stays the same in all chunks of a request is written once; a token's frame is that, the
// escaped text and the end, appended to a buffer that the caller reuses. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "server/api/answers.h"
#include "server/api/errors.h"

namespace skein::api {

// What is asked for beyond the text.
struct StreamExtras {
  bool include_usage = false;     // "usage": null in all chunks but the last
  bool continuous_usage = false;  // the usage so far in all chunks
  bool token_ids = false;
};

// The new text of one choice.
struct Delta {
  uint32_t index = 0;
  std::string_view text;                               // whole characters
  const std::span<const Logprob>* logprobs = nullptr;  // null: not asked for
  std::span<const TokenId> token_ids = {};
  const Usage* usage = nullptr;      // with continuous_usage
  const Timings* timings = nullptr;  // with timings_per_token
};

class OpenAiStream {
 public:
  enum class Kind : uint8_t { kChat, kCompletion };
  OpenAiStream(Kind kind, const Identity& identity, StreamExtras extras);

  // Each appends one frame to `out`.
  void begin(std::string& out, uint32_t index) const;  // chat: the role, once for each choice
  void text(std::string& out, const Delta& delta) const;
  void finish(std::string& out, uint32_t index, FinishReason reason, const Usage* usage) const;
  void usage(std::string& out, const Usage& usage, const Timings* timings) const;
  // {"prompt_progress": ...} while a long prompt is computed; an extra that was asked for.
  void progress(std::string& out, uint64_t done_tokens, uint64_t all_tokens) const;
  static void done(std::string& out);
  static void error(std::string& out, const Error& error);  // nothing follows it, nor [DONE]

 private:
  void open_choice(std::string& out, uint32_t index) const;
  void close(std::string& out, const Usage* usage) const;

  const Kind kind_;
  const StreamExtras extras_;
  std::string head_;  // data: {"id":...,"model":...,
};

}  // namespace skein::api
