#include "server/api/openai_words.h"

#include <algorithm>
#include <cmath>

namespace skein::api {
namespace {

// Microseconds are as fine as these figures are.
void append_figure(std::string& out, std::string_view name, double value) {
  append_name(out, name);
  append_number(out, std::round(value * 1000) / 1000);
}

uint64_t characters_in(std::string_view bytes) {
  return static_cast<uint64_t>(std::count_if(bytes.begin(), bytes.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U;
  }));
}

template <class Append>
void append_each(std::string& out, const LogprobRun& run, const Append& append) {
  const size_t per_token = run.tokens > 0 ? run.entries.size() / run.tokens : 0;
  out.push_back('[');
  for (size_t i = 0; per_token > 0 && i < run.tokens; ++i) {
    if (i > 0) out.push_back(',');
    append(run.entries.subspan(i * per_token, per_token));
  }
  out.push_back(']');
}

std::string_view bytes_of(const LogprobRun& run, const TokenLogprob& entry) {
  return run.tokenizer.bytes(entry.token);
}

// JSON has no infinity, and clients want a number for what cannot happen.
void append_logprob(std::string& out, const TokenLogprob& entry) {
  append_number(out, std::isfinite(entry.logprob) ? entry.logprob : -9999.0F);
}

}  // namespace

std::string_view finish_reason(FinishReason reason, bool old_words) {
  if (reason == FinishReason::kToolCalls) return old_words ? "function_call" : "tool_calls";
  return reason == FinishReason::kLength ? "length" : "stop";
}

void append_usage(std::string& out, const Usage& usage) {
  append_name(out, "usage");
  out.push_back('{');
  append_member(out, "prompt_tokens", usage.prompt_tokens);
  append_member(out, "completion_tokens", usage.completion_tokens);
  append_member(out, "total_tokens", usage.prompt_tokens + usage.completion_tokens);
  append_name(out, "prompt_tokens_details");
  out.push_back('{');
  append_member(out, "cached_tokens", usage.cached_tokens);
  out.push_back('}');
  if (usage.reasoning_tokens > 0) {
    append_name(out, "completion_tokens_details");
    out.push_back('{');
    append_member(out, "reasoning_tokens", usage.reasoning_tokens);
    out.push_back('}');
  }
  out.push_back('}');
}

void append_timings(std::string& out, const std::optional<Timings>& timings) {
  if (!timings) return;
  append_name(out, "timings");
  out.push_back('{');
  append_figure(out, "queue_ms", timings->queue_ms);
  append_figure(out, "prefill_ms", timings->prefill_ms);
  append_figure(out, "decode_ms", timings->decode_ms);
  append_figure(out, "prompt_per_second", timings->prompt_per_second);
  append_figure(out, "predicted_per_second", timings->predicted_per_second);
  out.push_back('}');
}

void append_token_ids(std::string& out, std::string_view name, std::span<const TokenId> ids) {
  append_name(out, name);
  append_list(out, ids, [&](TokenId id) { append_int(out, id); });
}

void append_token_logprobs(std::string& out, const LogprobRun& run) {
  const auto append_entry = [&](const TokenLogprob& entry) {
    append_member(out, "token", bytes_of(run, entry));
    append_name(out, "logprob");
    append_logprob(out, entry);
    append_name(out, "bytes");
    append_list(out, bytes_of(run, entry),
                [&](char c) { append_int(out, static_cast<uint8_t>(c)); });
  };
  append_each(out, run, [&](std::span<const TokenLogprob> of_token) {
    out.push_back('{');
    append_entry(of_token[0]);
    append_name(out, "top_logprobs");
    append_list(out, of_token.subspan(1), [&](const TokenLogprob& top) {
      out.push_back('{');
      append_entry(top);
      out.push_back('}');
    });
    out.push_back('}');
  });
}

void append_chat_logprobs(std::string& out, const LogprobRun& run) {
  out.append("{\"content\":");
  append_token_logprobs(out, run);
  out.append(",\"refusal\":null}");
}

void append_completion_logprobs(std::string& out, const LogprobRun& run, uint64_t& offset) {
  using Entries = std::span<const TokenLogprob>;
  out.append("{\"tokens\":");
  append_each(out, run, [&](Entries of_token) { append_string(out, bytes_of(run, of_token[0])); });
  append_name(out, "token_logprobs");
  append_each(out, run, [&](Entries of_token) { append_logprob(out, of_token[0]); });
  append_name(out, "top_logprobs");
  append_each(out, run, [&](Entries of_token) {
    out.push_back('{');
    for (const TokenLogprob& top : of_token.subspan(1)) {
      if (out.back() != '{') out.push_back(',');
      append_string(out, bytes_of(run, top));
      out.push_back(':');
      append_logprob(out, top);
    }
    out.push_back('}');
  });
  append_name(out, "text_offset");
  append_each(out, run, [&](Entries of_token) {
    append_int(out, static_cast<int64_t>(offset));
    offset += characters_in(bytes_of(run, of_token[0]));
  });
  out.push_back('}');
}

}  // namespace skein::api
