// OpenAI's chats and completions: the chunks of a stream, and whole.
#include <algorithm>
#include <cmath>
#include <utility>

#include "server/api/answer_writer.h"
#include "server/json.h"

namespace skein::api {
namespace {

using json::append_int;
using json::append_list;
using json::append_member;
using json::append_name;
using json::append_number;
using json::append_string;

std::string_view finish_reason(FinishReason reason) {
  if (reason == FinishReason::kToolCalls) return "tool_calls";
  return reason == FinishReason::kLength ? "length" : "stop";
}

// Microseconds are as fine as these figures are.
void append_figure(std::string& out, std::string_view name, double value) {
  append_name(out, name);
  append_number(out, std::round(value * 1000) / 1000);
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
  out.append("}}");
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

uint64_t characters_in(std::string_view bytes) {
  return static_cast<uint64_t>(std::count_if(bytes.begin(), bytes.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U;
  }));
}

// The logprobs of a run of tokens: for each of them an entry of itself, then as many of the
// likeliest ones.
struct LogprobRun {
  const Tokenizer& tokenizer;
  std::span<const TokenLogprob> entries;
  size_t tokens = 0;

  template <class Append>
  void append_each(std::string& out, const Append& append) const {
    const size_t per_token = tokens > 0 ? entries.size() / tokens : 0;
    out.push_back('[');
    for (size_t i = 0; per_token > 0 && i < tokens; ++i) {
      if (i > 0) out.push_back(',');
      append(entries.subspan(i * per_token, per_token));
    }
    out.push_back(']');
  }
  std::string_view bytes(const TokenLogprob& entry) const { return tokenizer.bytes(entry.token); }
};

// JSON has no infinity, and clients want a number for what cannot happen.
void append_logprob(std::string& out, const TokenLogprob& entry) {
  append_number(out, std::isfinite(entry.logprob) ? entry.logprob : -9999.0F);
}

void append_chat_logprobs(std::string& out, const LogprobRun& run) {
  const auto append_entry = [&](const TokenLogprob& entry) {
    append_member(out, "token", run.bytes(entry));
    append_name(out, "logprob");
    append_logprob(out, entry);
    append_name(out, "bytes");
    append_list(out, run.bytes(entry), [&](char c) { append_int(out, static_cast<uint8_t>(c)); });
  };
  out.append("{\"content\":");
  run.append_each(out, [&](std::span<const TokenLogprob> of_token) {
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
  out.append(",\"refusal\":null}");
}

// `offset`: where the first token begins, in characters; moves on to behind the last.
void append_completion_logprobs(std::string& out, const LogprobRun& run, uint64_t& offset) {
  using Entries = std::span<const TokenLogprob>;
  out.append("{\"tokens\":");
  run.append_each(out, [&](Entries of_token) { append_string(out, run.bytes(of_token[0])); });
  append_name(out, "token_logprobs");
  run.append_each(out, [&](Entries of_token) { append_logprob(out, of_token[0]); });
  append_name(out, "top_logprobs");
  run.append_each(out, [&](Entries of_token) {
    out.push_back('{');
    for (const TokenLogprob& top : of_token.subspan(1)) {
      if (out.back() != '{') out.push_back(',');
      append_string(out, run.bytes(top));
      out.push_back(':');
      append_logprob(out, top);
    }
    out.push_back('}');
  });
  append_name(out, "text_offset");
  run.append_each(out, [&](Entries of_token) {
    append_int(out, static_cast<int64_t>(offset));
    offset += characters_in(run.bytes(of_token[0]));
  });
  out.push_back('}');
}

// What stays the same in all chunks is written once; a token's chunk is that, the escaped text and
// the end.
class OpenAiStream final : public AnswerWriter {
 public:
  OpenAiStream(const AnswerStart& start, bool is_chat)
      : is_chat_(is_chat),
        include_usage_(start.wanted.include_usage),
        continuous_usage_(start.wanted.continuous_usage),
        with_logprobs_(start.wanted.sampling.logprobs),
        with_token_ids_(start.wanted.return_token_ids),
        tokenizer_(start.tokenizer),
        choices_(start.choices) {
    head_ = "data: {";
    append_member(head_, "id", start.identity.id);
    append_member(head_, "object", is_chat_ ? "chat.completion.chunk" : "text_completion");
    append_member(head_, "created", start.identity.created);
    append_member(head_, "model", start.identity.model);
  }

  void progress(std::string& out, uint64_t computed_tokens, uint64_t prompt_tokens) override {
    out.append(head_).append(",\"choices\":[],\"prompt_progress\":{");
    append_member(out, "total", prompt_tokens);
    append_member(out, "processed", computed_tokens);
    out.append("}");
    close(out, nullptr);
  }

  void write(std::string& out, uint32_t choice, const AnswerContent& content,
             const Figures& now) override {
    const bool has_ids = with_token_ids_ && !content.tokens.empty();
    if (content.text.empty() && content.logprobs.empty() && !has_ids) return;
    begin(out, choice);
    open_choice(out, choice);
    out.append(is_chat_ ? ",\"delta\":{\"content\":" : ",\"text\":");
    append_string(out, content.text);
    out.append(is_chat_ ? "},\"logprobs\":" : ",\"logprobs\":");
    if (!with_logprobs_) {
      out.append("null");
    } else {
      append_logprobs(out, choice, {tokenizer_, content.logprobs, content.tokens.size()});
    }
    out.append(",\"finish_reason\":null");
    if (with_token_ids_) append_token_ids(out, "token_ids", content.tokens);
    out.append("}]");
    append_timings(out, now.timings);
    close(out, &now.usage);
  }

  void write(std::string&, uint32_t, const AnswerReasoning&, const Figures&) override {}
  void write(std::string&, uint32_t, const AnswerCallBegin&, const Figures&) override {}
  void write(std::string&, uint32_t, const AnswerArguments&, const Figures&) override {}
  void write(std::string&, uint32_t, const AnswerCallEnd&, const Figures&) override {}
  void finish(std::string& out, uint32_t choice, const AnswerEnd& end,
              const Figures& now) override {
    begin(out, choice);
    open_choice(out, choice);
    out.append(is_chat_ ? ",\"delta\":{}" : ",\"text\":\"\"");
    out.append(",\"logprobs\":null");
    append_member(out, "finish_reason", finish_reason(end.how.reason));
    out.append("}]");
    close(out, &now.usage);
  }

  void end(std::string& out, const Figures& all) override {
    if (include_usage_) {
      out.append(head_).append(",\"choices\":[]");
      append_usage(out, all.usage);
      append_timings(out, all.timings);
      out.append("}\n\n");
    }
    out.append("data: [DONE]\n\n");
  }
  uint64_t held_bytes() const override { return 0; }

 private:
  struct ChoiceState {
    bool has_begun = false;
    uint64_t characters = 0;  // before the next token, for its text_offset
  };

  void append_logprobs(std::string& out, uint32_t choice, const LogprobRun& run) {
    if (is_chat_) return append_chat_logprobs(out, run);
    append_completion_logprobs(out, run, choices_[choice].characters);
  }
  // The role of a chat, once for each choice.
  void begin(std::string& out, uint32_t choice) {
    if (!is_chat_ || std::exchange(choices_[choice].has_begun, true)) return;
    open_choice(out, choice);
    out.append(
        ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
        "\"finish_reason\":null}]");
    close(out, nullptr);
  }
  void open_choice(std::string& out, uint32_t choice) const {
    out.append(head_).append(",\"choices\":[{\"index\":");
    append_int(out, choice);
  }
  void close(std::string& out, const Usage* usage) const {
    if (continuous_usage_ && usage != nullptr) {
      append_usage(out, *usage);
    } else if (include_usage_) {
      out.append(",\"usage\":null");
    }
    out.append("}\n\n");
  }

  const bool is_chat_;
  const bool include_usage_;     // "usage": null in all chunks but the last
  const bool continuous_usage_;  // the usage so far in all chunks
  const bool with_logprobs_;
  const bool with_token_ids_;
  const Tokenizer& tokenizer_;
  std::vector<ChoiceState> choices_;
  std::string head_;  // data: {"id":...,"model":...
};

class OpenAiAnswer final : public AnswerWriter {
 public:
  // A logprob's entry holds about so much, mostly as JSON: the token's text, its number, its bytes.
  static constexpr uint64_t kLogprobBytes = 96;

  OpenAiAnswer(const AnswerStart& start, bool is_chat)
      : is_chat_(is_chat),
        with_logprobs_(start.wanted.sampling.logprobs),
        with_token_ids_(start.wanted.return_token_ids),
        identity_(start.identity),
        tokenizer_(start.tokenizer),
        choices_(start.choices) {
    if (with_token_ids_) prompt_ids_.assign(start.prompt_ids.begin(), start.prompt_ids.end());
  }

  void progress(std::string&, uint64_t, uint64_t) override {}
  void write(std::string&, uint32_t choice, const AnswerContent& content, const Figures&) override {
    Choice& to = choices_[choice];
    to.text.append(content.text);
    to.logprobs.insert(to.logprobs.end(), content.logprobs.begin(), content.logprobs.end());
    to.tokens += content.tokens.size();
    held_bytes_ += 2 * content.text.size() + content.logprobs.size() * kLogprobBytes;
    if (!with_token_ids_) return;
    to.ids.insert(to.ids.end(), content.tokens.begin(), content.tokens.end());
    held_bytes_ += 2 * content.tokens.size_bytes();
  }
  void write(std::string&, uint32_t, const AnswerReasoning&, const Figures&) override {}
  void write(std::string&, uint32_t, const AnswerCallBegin&, const Figures&) override {}
  void write(std::string&, uint32_t, const AnswerArguments&, const Figures&) override {}
  void write(std::string&, uint32_t, const AnswerCallEnd&, const Figures&) override {}
  void finish(std::string&, uint32_t choice, const AnswerEnd& end, const Figures&) override {
    choices_[choice].reason = end.how.reason;
  }
  void end(std::string& out, const Figures& all) override {
    out.push_back('{');
    append_member(out, "id", identity_.id);
    append_member(out, "object", is_chat_ ? "chat.completion" : "text_completion");
    append_member(out, "created", identity_.created);
    append_member(out, "model", identity_.model);
    append_name(out, "choices");
    uint32_t index = 0;
    append_list(out, choices_, [&](const Choice& choice) { append_choice(out, index++, choice); });
    append_usage(out, all.usage);
    append_timings(out, all.timings);
    if (with_token_ids_) append_token_ids(out, "prompt_token_ids", prompt_ids_);
    out.push_back('}');
  }
  uint64_t held_bytes() const override { return held_bytes_; }

 private:
  struct Choice {
    std::string text;
    std::vector<TokenLogprob> logprobs;
    size_t tokens = 0;
    std::vector<TokenId> ids;
    FinishReason reason = FinishReason::kStop;
  };

  void append_choice(std::string& out, uint32_t index, const Choice& choice) const {
    out.push_back('{');
    append_member(out, "index", index);
    if (is_chat_) {
      append_name(out, "message");
      out.append("{\"role\":\"assistant\"");
      append_member(out, "content", choice.text);
      out.append(",\"refusal\":null}");
    } else {
      append_member(out, "text", choice.text);
    }
    append_name(out, "logprobs");
    const LogprobRun run{tokenizer_, choice.logprobs, choice.tokens};
    uint64_t offset = 0;
    if (!with_logprobs_) {
      out.append("null");
    } else if (is_chat_) {
      append_chat_logprobs(out, run);
    } else {
      append_completion_logprobs(out, run, offset);
    }
    append_member(out, "finish_reason", finish_reason(choice.reason));
    if (with_token_ids_) append_token_ids(out, "token_ids", choice.ids);
    out.push_back('}');
  }

  const bool is_chat_;
  const bool with_logprobs_;
  const bool with_token_ids_;
  const Identity identity_;
  const Tokenizer& tokenizer_;
  std::vector<Choice> choices_;
  std::vector<TokenId> prompt_ids_;
  uint64_t held_bytes_ = 0;
};

template <bool kIsChat>
std::unique_ptr<AnswerWriter> make_openai_writer(const AnswerStart& start) {
  if (start.wanted.stream) return std::make_unique<OpenAiStream>(start, kIsChat);
  return std::make_unique<OpenAiAnswer>(start, kIsChat);
}

constexpr std::string_view kKeepalive = ": keepalive\n\n";
constexpr std::string_view kData = "data: ";

}  // namespace

constinit const AnswerKind AnswerKind::kChat = {
    Dialect::kOpenAi, "chatcmpl-", "messages", kKeepalive, kData, make_openai_writer<true>};
constinit const AnswerKind AnswerKind::kCompletion = {
    Dialect::kOpenAi, "cmpl-", "prompt", kKeepalive, kData, make_openai_writer<false>};

}  // namespace skein::api
