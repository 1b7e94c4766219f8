// What an answer is made of, and whole answers as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "generate/events.h"
#include "sched/types.h"

namespace skein::api {

// One for all chunks of a request.
struct Identity {
  std::string id;  // "chatcmpl-...", "cmpl-...", "msg_..."
  int64_t created = 0;
  std::string model;
};

struct Timings {
  double queue_ms = 0;
  double prefill_ms = 0;
  double decode_ms = 0;
  double prompt_per_second = 0;
  double predicted_per_second = 0;
};

struct Logprob {
  std::string token;  // its bytes: not always UTF-8 by itself
  float logprob = 0;
  std::vector<std::pair<std::string, float>> top = {};
  uint64_t text_offset = 0;  // of completions: where the token begins, in characters
};

struct Choice {
  uint32_t index = 0;
  std::string text;
  FinishReason finish = FinishReason::kStop;  // one that is_completed()
  std::optional<std::vector<Logprob>> logprobs = {};
  std::vector<TokenId> token_ids = {};
  std::string stop_sequence = {};  // Anthropic: the one that was met
};

struct Answer {
  Identity identity;
  std::vector<Choice> choices;
  Usage usage;
  std::optional<Timings> timings = {};
  bool with_token_ids = false;
  std::vector<TokenId> prompt_token_ids = {};
};

std::string chat_answer(const Answer& answer);
std::string completion_answer(const Answer& answer);
std::string message_answer(const Answer& answer);
std::string count_tokens_answer(uint64_t tokens);

struct ModelInfo {
  std::string id;
  int64_t created = 0;
  uint64_t max_context = 0;  // 0: not known before it is loaded
};
std::string model_answer(const ModelInfo& model);
std::string model_list_answer(std::span<const ModelInfo> models);

// Parts that streams use, too.
void append_usage(std::string& out, const Usage& usage);
void append_timings(std::string& out, const Timings& timings);
void append_chat_logprobs(std::string& out, std::span<const Logprob> logprobs);
void append_completion_logprobs(std::string& out, std::span<const Logprob> logprobs);
void append_token_ids(std::string& out, std::span<const TokenId> ids);
std::string_view openai_finish(FinishReason reason);      // "stop", "length", "tool_calls"
std::string_view anthropic_finish(const Choice& choice);  // "end_turn", "stop_sequence", ...

}  // namespace skein::api
