// The parts that OpenAI's answers are made of, in streams and whole.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "generate/events.h"
#include "server/api/answer_writer.h"
#include "server/json.h"
#include "text/tokenizer.h"

namespace skein::api {

// Every line of a writer is made of these.
using json::append_int;
using json::append_list;
using json::append_member;
using json::append_name;
using json::append_number;
using json::append_string;

// `old_words`: of those who asked with functions instead of tools.
std::string_view finish_reason(FinishReason reason, bool old_words);

// These append a member to the object at the end of `out`.
void append_usage(std::string& out, const Usage& usage);
void append_timings(std::string& out, const std::optional<Timings>& timings);
void append_token_ids(std::string& out, std::string_view name, std::span<const TokenId> ids);

// A logprob's entry holds about so much, mostly as JSON: the token's text, its number, its bytes.
inline constexpr uint64_t kLogprobBytes = 96;

// The logprobs of a run of tokens: for each of them an entry of itself, then as many of the
// likeliest ones.
struct LogprobRun {
  const Tokenizer& tokenizer;
  std::span<const TokenLogprob> entries;
  size_t tokens = 0;
};
// [{"token","logprob","bytes","top_logprobs":[{"token","logprob","bytes"},...]},...]
void append_token_logprobs(std::string& out, const LogprobRun& run);
void append_chat_logprobs(std::string& out, const LogprobRun& run);
// `offset`: where the first token begins, in characters; moves on to behind the last.
void append_completion_logprobs(std::string& out, const LogprobRun& run, uint64_t& offset);

}  // namespace skein::api
