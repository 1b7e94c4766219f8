#include "server/api/answers.h"

#include <cmath>

#include "server/json/append.h"

namespace skein::api {
namespace {

using json::append_int;
using json::append_number;
using json::append_string;

// `,"name":` or, first in its object, `"name":`.
void append_name(std::string& out, std::string_view name) {
  if (out.back() != '{') out.push_back(',');
  out.append("\"").append(name).append("\":");
}

void append_count(std::string& out, std::string_view name, uint64_t count) {
  append_name(out, name);
  append_int(out, static_cast<int64_t>(count));
}

void append_text(std::string& out, std::string_view name, std::string_view text) {
  append_name(out, name);
  append_string(out, text);
}

// Microseconds are as fine as these figures are.
void append_figure(std::string& out, std::string_view name, double value) {
  append_name(out, name);
  append_number(out, std::round(value * 1000) / 1000);
}

template <class Items, class Append>
void append_list(std::string& out, const Items& items, Append append) {
  out.push_back('[');
  bool first = true;
  for (const auto& item : items) {
    if (!first) out.push_back(',');
    first = false;
    append(item);
  }
  out.push_back(']');
}

// JSON has no infinity, and clients want a number for what cannot happen.
float finite_logprob(float logprob) {
  return std::isfinite(logprob) ? logprob : -9999.0F;
}

void append_logprob(std::string& out, std::string_view token, float logprob) {
  append_text(out, "token", token);
  append_name(out, "logprob");
  append_number(out, finite_logprob(logprob));
  append_name(out, "bytes");
  append_list(out, token, [&](char c) { append_int(out, static_cast<uint8_t>(c)); });
}

void append_head(std::string& out, const Identity& identity, std::string_view object) {
  append_text(out, "id", identity.id);
  append_text(out, "object", object);
  append_name(out, "created");
  append_int(out, identity.created);
  append_text(out, "model", identity.model);
}

void append_tail(std::string& out, const Answer& answer) {
  append_name(out, "usage");
  append_usage(out, answer.usage);
  if (answer.timings) {
    append_name(out, "timings");
    append_timings(out, *answer.timings);
  }
  if (answer.with_token_ids) {
    append_name(out, "prompt_token_ids");
    append_token_ids(out, answer.prompt_token_ids);
  }
}

std::string openai_answer(const Answer& answer, bool chat) {
  std::string out = "{";
  append_head(out, answer.identity, chat ? "chat.completion" : "text_completion");
  append_name(out, "choices");
  append_list(out, answer.choices, [&](const Choice& choice) {
    out.push_back('{');
    append_count(out, "index", choice.index);
    if (chat) {
      append_name(out, "message");
      out.append("{\"role\":\"assistant\"");
      append_text(out, "content", choice.text);
      out.append(",\"refusal\":null}");
    } else {
      append_text(out, "text", choice.text);
    }
    append_name(out, "logprobs");
    if (!choice.logprobs) {
      out.append("null");
    } else if (chat) {
      append_chat_logprobs(out, *choice.logprobs);
    } else {
      append_completion_logprobs(out, *choice.logprobs);
    }
    append_text(out, "finish_reason", openai_finish(choice.finish));
    if (answer.with_token_ids) {
      append_name(out, "token_ids");
      append_token_ids(out, choice.token_ids);
    }
    out.push_back('}');
  });
  append_tail(out, answer);
  return out.append("}");
}

}  // namespace

std::string_view openai_finish(FinishReason reason) {
  if (reason == FinishReason::kToolCalls) return "tool_calls";
  return reason == FinishReason::kLength ? "length" : "stop";
}

std::string_view anthropic_finish(const Choice& choice) {
  if (choice.finish == FinishReason::kLength) return "max_tokens";
  if (choice.finish == FinishReason::kToolCalls) return "tool_use";
  return choice.stop_sequence.empty() ? "end_turn" : "stop_sequence";
}

void append_usage(std::string& out, const Usage& usage) {
  out.push_back('{');
  append_count(out, "prompt_tokens", usage.prompt_tokens);
  append_count(out, "completion_tokens", usage.completion_tokens);
  append_count(out, "total_tokens", usage.prompt_tokens + usage.completion_tokens);
  append_name(out, "prompt_tokens_details");
  out.push_back('{');
  append_count(out, "cached_tokens", usage.cached_tokens);
  out.append("}}");
}

void append_timings(std::string& out, const Timings& timings) {
  out.push_back('{');
  append_figure(out, "queue_ms", timings.queue_ms);
  append_figure(out, "prefill_ms", timings.prefill_ms);
  append_figure(out, "decode_ms", timings.decode_ms);
  append_figure(out, "prompt_per_second", timings.prompt_per_second);
  append_figure(out, "predicted_per_second", timings.predicted_per_second);
  out.push_back('}');
}

void append_token_ids(std::string& out, std::span<const TokenId> ids) {
  append_list(out, ids, [&](TokenId id) { append_int(out, id); });
}

void append_chat_logprobs(std::string& out, std::span<const Logprob> logprobs) {
  out.append("{\"content\":");
  append_list(out, logprobs, [&](const Logprob& logprob) {
    out.push_back('{');
    append_logprob(out, logprob.token, logprob.logprob);
    append_name(out, "top_logprobs");
    append_list(out, logprob.top, [&](const std::pair<std::string, float>& top) {
      out.push_back('{');
      append_logprob(out, top.first, top.second);
      out.push_back('}');
    });
    out.push_back('}');
  });
  out.append(",\"refusal\":null}");
}

void append_completion_logprobs(std::string& out, std::span<const Logprob> logprobs) {
  out.append("{\"tokens\":");
  append_list(out, logprobs, [&](const Logprob& l) { append_string(out, l.token); });
  append_name(out, "token_logprobs");
  append_list(out, logprobs,
              [&](const Logprob& l) { append_number(out, finite_logprob(l.logprob)); });
  append_name(out, "top_logprobs");
  append_list(out, logprobs, [&](const Logprob& l) {
    out.push_back('{');
    for (size_t i = 0; i < l.top.size(); ++i) {
      if (i > 0) out.push_back(',');
      append_string(out, l.top[i].first);
      out.push_back(':');
      append_number(out, finite_logprob(l.top[i].second));
    }
    out.push_back('}');
  });
  append_name(out, "text_offset");
  append_list(out, logprobs,
              [&](const Logprob& l) { append_int(out, static_cast<int64_t>(l.text_offset)); });
  out.push_back('}');
}

std::string chat_answer(const Answer& answer) {
  return openai_answer(answer, true);
}

std::string completion_answer(const Answer& answer) {
  return openai_answer(answer, false);
}

std::string message_answer(const Answer& answer) {
  const Choice& choice = answer.choices.front();
  std::string out = "{";
  append_text(out, "id", answer.identity.id);
  out.append(",\"type\":\"message\",\"role\":\"assistant\"");
  append_text(out, "model", answer.identity.model);
  out.append(",\"content\":[{\"type\":\"text\"");
  append_text(out, "text", choice.text);
  out.append("}]");
  append_text(out, "stop_reason", anthropic_finish(choice));
  append_name(out, "stop_sequence");
  if (choice.stop_sequence.empty()) {
    out.append("null");
  } else {
    append_string(out, choice.stop_sequence);
  }
  out.append(",\"usage\":{");
  append_count(out, "input_tokens", answer.usage.prompt_tokens - answer.usage.cached_tokens);
  append_count(out, "cache_creation_input_tokens", 0);
  append_count(out, "cache_read_input_tokens", answer.usage.cached_tokens);
  append_count(out, "output_tokens", answer.usage.completion_tokens);
  return out.append("}}");
}

std::string count_tokens_answer(uint64_t tokens) {
  std::string out = "{";
  append_count(out, "input_tokens", tokens);
  return out.append("}");
}

std::string model_answer(const ModelInfo& model) {
  std::string out = "{";
  append_text(out, "id", model.id);
  append_text(out, "object", "model");
  append_name(out, "created");
  append_int(out, model.created);
  append_text(out, "owned_by", "skein");
  if (model.max_context > 0) append_count(out, "max_model_len", model.max_context);
  return out.append("}");
}

std::string model_list_answer(std::span<const ModelInfo> models) {
  std::string out = "{\"object\":\"list\",\"data\":";
  append_list(out, models, [&](const ModelInfo& model) { out.append(model_answer(model)); });
  return out.append("}");
}

}  // namespace skein::api
