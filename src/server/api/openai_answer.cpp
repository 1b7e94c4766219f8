// OpenAI's chats and completions: the chunks of a stream, and whole.
#include <utility>

#include "server/api/answer_writer.h"
#include "server/api/openai_words.h"

namespace skein::api {
namespace {

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
        with_reasoning_(start.wanted.include_reasoning),
        old_words_(start.wanted.as_function_call),
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

  void write(std::string& out, uint32_t choice, const AnswerReasoning& part,
             const Figures& now) override {
    if (part.text.empty() || !with_reasoning_) return pass(out, choice, {part.tokens}, now);
    open_delta(out, choice);
    append_member(out, "reasoning_content", part.text);
    close_delta(out, part.tokens, now);
  }
  void write(std::string& out, uint32_t choice, const AnswerCallBegin& part,
             const Figures& now) override {
    choices_[choice].custom = part.custom;
    open_delta(out, choice);
    if (old_words_) {
      append_call(out, "function_call", "arguments", part.name, "");
    } else {
      open_call(out, part.call);
      append_member(out, "id", part.id);
      append_member(out, "type", part.custom ? "custom" : "function");
      append_call(out, part.custom ? "custom" : "function", part.custom ? "input" : "arguments",
                  part.name, "");
      out.append("}]");
    }
    close_delta(out, part.tokens, now);
  }
  void write(std::string& out, uint32_t choice, const AnswerArguments& part,
             const Figures& now) override {
    if (part.text.empty()) return pass(out, choice, {part.tokens}, now);
    const bool custom = choices_[choice].custom;
    open_delta(out, choice);
    if (old_words_) {
      append_call(out, "function_call", "arguments", "", part.text);
    } else {
      open_call(out, part.call);
      append_call(out, custom ? "custom" : "function", custom ? "input" : "arguments", "",
                  part.text);
      out.append("}]");
    }
    close_delta(out, part.tokens, now);
  }
  void write(std::string& out, uint32_t choice, const AnswerCallEnd& part,
             const Figures& now) override {
    pass(out, choice, {part.tokens}, now);
  }
  void pass(std::string& out, uint32_t choice, const AnswerHidden& part,
            const Figures& now) override {
    if (!with_token_ids_ || part.tokens.empty()) return;
    open_delta(out, choice);
    close_delta(out, part.tokens, now);
  }
  void finish(std::string& out, uint32_t choice, const AnswerEnd& end,
              const Figures& now) override {
    begin(out, choice);
    open_choice(out, choice);
    out.append(is_chat_ ? ",\"delta\":{}" : ",\"text\":\"\"");
    out.append(",\"logprobs\":null");
    append_member(out, "finish_reason", finish_reason(end.how.reason, old_words_));
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
    bool custom = false;      // the call that is being written takes a text
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
  // A chunk of a chat that has no content.
  void open_delta(std::string& out, uint32_t choice) {
    begin(out, choice);
    open_choice(out, choice);
    out.append(",\"delta\":{");
  }
  void close_delta(std::string& out, std::span<const TokenId> tokens, const Figures& now) const {
    out.append("},\"logprobs\":null,\"finish_reason\":null");
    if (with_token_ids_) append_token_ids(out, "token_ids", tokens);
    out.append("}]");
    append_timings(out, now.timings);
    close(out, &now.usage);
  }
  static void open_call(std::string& out, uint32_t call) {
    append_name(out, "tool_calls");
    out.append("[{");
    append_member(out, "index", call);
  }
  // {"name", "arguments"}; without the name in all chunks but the first.
  static void append_call(std::string& out, std::string_view kind, std::string_view field,
                          std::string_view name, std::string_view arguments) {
    append_name(out, kind);
    out.push_back('{');
    if (!name.empty()) append_member(out, "name", name);
    append_member(out, field, arguments);
    out.push_back('}');
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
  const bool with_reasoning_;
  const bool old_words_;  // function_call instead of tool_calls
  const Tokenizer& tokenizer_;
  std::vector<ChoiceState> choices_;
  std::string head_;  // data: {"id":...,"model":...
};

class OpenAiAnswer final : public AnswerWriter {
 public:
  OpenAiAnswer(const AnswerStart& start, bool is_chat)
      : is_chat_(is_chat),
        with_logprobs_(start.wanted.sampling.logprobs),
        with_token_ids_(start.wanted.return_token_ids),
        with_reasoning_(start.wanted.include_reasoning),
        old_words_(start.wanted.as_function_call),
        identity_(start.identity),
        tokenizer_(start.tokenizer),
        choices_(start.choices) {
    if (with_token_ids_) prompt_ids_.assign(start.prompt_ids.begin(), start.prompt_ids.end());
  }

  void progress(std::string&, uint64_t, uint64_t) override {}
  void write(std::string&, uint32_t choice, const AnswerContent& content, const Figures&) override {
    Choice& to = choices_[choice];
    append(to.text, content.text);
    to.logprobs.insert(to.logprobs.end(), content.logprobs.begin(), content.logprobs.end());
    to.tokens += content.tokens.size();
    held_bytes_ += content.logprobs.size() * kLogprobBytes;
    keep_ids(to, content.tokens);
  }
  void write(std::string&, uint32_t choice, const AnswerReasoning& part, const Figures&) override {
    if (with_reasoning_) append(choices_[choice].reasoning, part.text);
    keep_ids(choices_[choice], part.tokens);
  }
  void write(std::string&, uint32_t choice, const AnswerCallBegin& part, const Figures&) override {
    std::string& calls = choices_[choice].calls;
    const size_t before = calls.size();
    if (!calls.empty()) calls.append("\"}},");
    calls.push_back('{');
    append_member(calls, "id", part.id);
    append_member(calls, "type", part.custom ? "custom" : "function");
    append_name(calls, part.custom ? "custom" : "function");
    calls.push_back('{');
    append_member(calls, "name", part.name);
    append_name(calls, part.custom ? "input" : "arguments");
    calls.push_back('"');
    held_bytes_ += 2 * (calls.size() - before);
    keep_ids(choices_[choice], part.tokens);
  }
  void write(std::string&, uint32_t choice, const AnswerArguments& part, const Figures&) override {
    // A string's inside, so that the pieces join.
    std::string& calls = choices_[choice].calls;
    const size_t before = calls.size();
    append_string(calls, part.text);
    calls.erase(before, 1);
    calls.pop_back();
    held_bytes_ += 2 * (calls.size() - before);
    keep_ids(choices_[choice], part.tokens);
  }
  void write(std::string&, uint32_t choice, const AnswerCallEnd& part, const Figures&) override {
    keep_ids(choices_[choice], part.tokens);
  }
  void pass(std::string&, uint32_t choice, const AnswerHidden& part, const Figures&) override {
    keep_ids(choices_[choice], part.tokens);
  }
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
    std::string reasoning;
    std::string calls;  // as JSON, without the end of the last one
    std::vector<TokenLogprob> logprobs;
    size_t tokens = 0;  // of the text
    std::vector<TokenId> ids;
    FinishReason reason = FinishReason::kStop;
  };

  void append(std::string& to, std::string_view text) {
    to.append(text);
    held_bytes_ += 2 * text.size();
  }
  void keep_ids(Choice& to, std::span<const TokenId> tokens) {
    if (!with_token_ids_) return;
    to.ids.insert(to.ids.end(), tokens.begin(), tokens.end());
    held_bytes_ += 2 * tokens.size_bytes();
  }

  void append_message(std::string& out, const Choice& choice) const {
    append_name(out, "message");
    out.append("{\"role\":\"assistant\"");
    if (choice.text.empty() && !choice.calls.empty()) {
      out.append(",\"content\":null");
    } else {
      append_member(out, "content", choice.text);
    }
    if (!choice.reasoning.empty()) append_member(out, "reasoning_content", choice.reasoning);
    out.append(",\"refusal\":null");
    if (!choice.calls.empty() && old_words_) {
      const std::string_view function = "\"function\":";
      append_name(out, "function_call");
      out.append(choice.calls, choice.calls.find(function) + function.size()).append("\"}");
    } else if (!choice.calls.empty()) {
      append_name(out, "tool_calls");
      out.append("[").append(choice.calls).append("\"}}]");
    }
    out.push_back('}');
  }

  void append_choice(std::string& out, uint32_t index, const Choice& choice) const {
    out.push_back('{');
    append_member(out, "index", index);
    if (is_chat_) {
      append_message(out, choice);
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
    append_member(out, "finish_reason", finish_reason(choice.reason, old_words_));
    if (with_token_ids_) append_token_ids(out, "token_ids", choice.ids);
    out.push_back('}');
  }

  const bool is_chat_;
  const bool with_logprobs_;
  const bool with_token_ids_;
  const bool with_reasoning_;
  const bool old_words_;
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

std::string openai_error_frame(const Error& error) {
  return "data: " + error_body(Dialect::kOpenAi, error) + "\n\n";
}

}  // namespace

constinit const AnswerKind AnswerKind::kChat = {"chatcmpl-", "messages", kKeepalive,
                                                openai_error_frame, make_openai_writer<true>};
constinit const AnswerKind AnswerKind::kCompletion = {
    "cmpl-", "prompt", kKeepalive, openai_error_frame, make_openai_writer<false>};

}  // namespace skein::api
