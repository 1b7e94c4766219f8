// OpenAI's Responses: the events of a stream, and whole.
#include <cmath>
#include <utility>

#include "server/api/answer_writer.h"
#include "server/api/openai_words.h"
#include "server/api/responses_request.h"
#include "server/json.h"

namespace skein::api {
namespace {

using json::append_list;
using json::append_member;
using json::append_name;

// One of what an answer is made of.
struct Item {
  enum class Kind : uint8_t { kMessage, kThought, kFunction, kCustom };
  Kind kind;
  std::string id;
  std::string call_id = {};
  std::string name = {};
  std::string text = {};  // or the arguments
  std::vector<TokenLogprob> logprobs = {};
  size_t tokens = 0;  // that have logprobs
  std::string_view status = "in_progress";

  bool is_call() const { return kind == Kind::kFunction || kind == Kind::kCustom; }
};

// How the pieces of an item are called.
struct ItemWords {
  std::string_view type;
  std::string_view id_prefix;
  std::string_view delta;  // event
  std::string_view done;   // event
  std::string_view whole;  // the member of `done`
};

const ItemWords& words_of(Item::Kind kind) {
  static constexpr ItemWords kWords[] = {
      {"message", "msg_", "response.output_text.delta", "response.output_text.done", "text"},
      {"reasoning", "rs_", "response.reasoning_text.delta", "response.reasoning_text.done", "text"},
      {"function_call", "fc_", "response.function_call_arguments.delta",
       "response.function_call_arguments.done", "arguments"},
      {"custom_tool_call", "ctc_", "response.custom_tool_call_input.delta",
       "response.custom_tool_call_input.done", "input"},
  };
  return kWords[static_cast<size_t>(kind)];
}

void append_response_usage(std::string& out, const Usage& usage) {
  append_name(out, "usage");
  out.push_back('{');
  append_member(out, "input_tokens", usage.prompt_tokens);
  out.append(",\"input_tokens_details\":{");
  append_member(out, "cached_tokens", usage.cached_tokens);
  append_member(out, "cache_write_tokens", 0);
  out.push_back('}');
  append_member(out, "output_tokens", usage.completion_tokens);
  out.append(",\"output_tokens_details\":{");
  append_member(out, "reasoning_tokens", usage.reasoning_tokens);
  out.push_back('}');
  append_member(out, "total_tokens", usage.prompt_tokens + usage.completion_tokens);
  out.push_back('}');
}

// As it was written: a float has no more digits than that.
void append_setting(std::string& out, std::string_view name, float value) {
  append_member(out, name, std::round(static_cast<double>(value) * 1e6) / 1e6);
}

// {"code","message"}, for the codes that a response can fail with.
void append_response_error(std::string& out, const Error& error) {
  append_name(out, "error");
  out.push_back('{');
  const std::string_view otherwise = error.status >= 500 ? "server_error" : "invalid_prompt";
  append_member(out, "code", error.code.empty() ? otherwise : std::string_view(error.code));
  append_member(out, "message", error.message);
  out.push_back('}');
}

// response.created, response.in_progress; for each item output_item.added, its deltas and
// output_item.done; response.completed or response.incomplete. An item begins with what is in it,
// so none is empty. The last event has all items again, so a stream keeps them, too.
class ResponseWriter final : public AnswerWriter {
 public:
  explicit ResponseWriter(const AnswerStart& start)
      : stream_(start.wanted.stream),
        with_logprobs_(start.wanted.sampling.logprobs),
        seals_thoughts_(start.wanted.seal_reasoning),
        identity_(start.identity),
        echo_(start.wanted.echo),
        kept_(start.wanted.kept),
        temperature_(start.sampling.temperature),
        top_p_(start.sampling.top_p),
        tokenizer_(start.tokenizer),
        waiting_{Kind::kMessage, {}},
        is_kept_(kept_ != nullptr),
        copies_(2 + (is_kept_ ? 1 : 0)) {
    held_bytes_ = echo_ != nullptr ? echo_->size() : 0;
    if (is_kept_) held_bytes_ += held_bytes_ + 2 * kept_->input.size();
  }

  void progress(std::string&, uint64_t, uint64_t) override {}
  void write(std::string& out, uint32_t, const AnswerContent& content,
             const Figures& now) override {
    usage_ = now.usage;
    if (with_logprobs_) add_logprobs(waiting_, content.logprobs, content.tokens.size());
    const bool says_nothing = content.text.empty() && waiting_.tokens == 0;
    if (says_nothing || (content.text.empty() && !is_open(Kind::kMessage))) return;
    if (!is_open(Kind::kMessage)) open(out, {Kind::kMessage, {}});
    add_text(out, content.text);
  }
  void write(std::string& out, uint32_t, const AnswerReasoning& thought,
             const Figures& now) override {
    usage_ = now.usage;
    if (thought.text.empty()) return;
    if (!is_open(Kind::kThought)) open(out, {Kind::kThought, {}});
    add_text(out, thought.text);
  }
  void write(std::string& out, uint32_t, const AnswerCallBegin& call, const Figures& now) override {
    usage_ = now.usage;
    held_bytes_ += copies_ * (call.id.size() + call.name.size());
    open(out, {call.custom ? Kind::kCustom : Kind::kFunction,
               {},
               std::string(call.id),
               std::string(call.name)});
  }
  void write(std::string& out, uint32_t, const AnswerArguments& piece,
             const Figures& now) override {
    usage_ = now.usage;
    if (!piece.text.empty()) add_text(out, piece.text);
  }
  void write(std::string& out, uint32_t, const AnswerCallEnd&, const Figures& now) override {
    usage_ = now.usage;
    close(out, "completed");
  }
  void finish(std::string& out, uint32_t, const AnswerEnd& end, const Figures&) override {
    is_cut_ = end.how.reason == FinishReason::kLength;
    begin(out);
    if (is_open_) close(out, is_cut_ || items_.back().is_call() ? "incomplete" : "completed");
  }
  KeptAnswer kept(const Figures& all) override {
    std::string text;
    append_head(text, status(), nullptr);
    const size_t output = text.size();
    append_output(text);
    const size_t tail = text.size();
    append_tail(text, &all.usage);
    return {text.substr(0, output), text.substr(output, tail - output), text.substr(tail)};
  }
  void set_kept(bool was_kept) override { is_kept_ = was_kept; }
  void end(std::string& out, const Figures& all) override {
    if (!stream_) return append_response(out, status(), nullptr, &all.usage);
    begin_event(out, is_cut_ ? "response.incomplete" : "response.completed");
    append_name(out, "response");
    append_response(out, status(), nullptr, &all.usage);
    end_event(out);
  }
  // Without the items: the client has them, and they may be why there is no room for more. What
  // fails is not kept.
  std::string failure(const Error& error) override {
    std::string out;
    begin(out);
    is_kept_ = false;
    items_.clear();
    begin_event(out, "response.failed");
    append_name(out, "response");
    append_response(out, "failed", &error, &usage_);
    end_event(out);
    return out;
  }
  uint64_t held_bytes() const override { return held_bytes_; }

 private:
  using Kind = Item::Kind;

  std::string_view status() const { return is_cut_ ? "incomplete" : "completed"; }
  bool is_open(Kind kind) const { return is_open_ && items_.back().kind == kind; }

  void begin(std::string& out) {
    if (!stream_ || std::exchange(has_begun_, true)) return;
    for (const std::string_view event : {"response.created", "response.in_progress"}) {
      begin_event(out, event);
      append_name(out, "response");
      append_response(out, "in_progress", nullptr, nullptr);
      end_event(out);
    }
  }
  void open(std::string& out, Item item) {
    begin(out);
    // A call that something else follows has no end of its own.
    if (is_open_) close(out, items_.back().is_call() ? "incomplete" : "completed");
    const ItemWords& words = words_of(item.kind);
    item.id = fmt::format("{}{}{}", words.id_prefix,
                          std::string_view(identity_.id).substr(identity_.id.find('_') + 1),
                          items_.size());
    is_open_ = true;
    items_.push_back(std::move(item));
    if (!stream_) return;
    begin_event(out, "response.output_item.added");
    append_place(out);
    append_name(out, "item");
    append_item(out, items_.back());
    end_event(out);
    if (items_.back().kind == Kind::kMessage) append_part_event(out, "response.content_part.added");
  }
  void add_text(std::string& out, std::string_view text) {
    Item& item = items_.back();
    item.text.append(text);
    held_bytes_ += (copies_ + (seals_thoughts_ ? 1 : 0)) * text.size();
    if (stream_) {
      begin_item_event(out, words_of(item.kind).delta);
      append_member(out, "delta", text);
      if (item.kind == Kind::kMessage) append_logprobs(out, waiting_);
      end_event(out);
    }
    if (item.kind != Kind::kMessage) return;
    add_logprobs(item, waiting_.logprobs, waiting_.tokens);
    waiting_.logprobs.clear();
    waiting_.tokens = 0;
  }
  void close(std::string& out, std::string_view status) {
    is_open_ = false;
    Item& item = items_.back();
    item.status = status;
    if (!stream_) return;
    // The arguments of a call that was cut are not done.
    if (!item.is_call() || status == "completed") {
      const ItemWords& words = words_of(item.kind);
      begin_item_event(out, words.done);
      append_member(out, words.whole, item.text);
      if (item.kind == Kind::kMessage) append_logprobs(out, item);
      if (item.kind == Kind::kFunction) append_member(out, "name", item.name);
      end_event(out);
    }
    if (item.kind == Kind::kMessage) append_part_event(out, "response.content_part.done");
    begin_event(out, "response.output_item.done");
    append_place(out);
    append_name(out, "item");
    append_item(out, item);
    end_event(out);
  }
  void add_logprobs(Item& to, std::span<const TokenLogprob> logprobs, size_t tokens) {
    to.logprobs.insert(to.logprobs.end(), logprobs.begin(), logprobs.end());
    to.tokens += tokens;
    if (&to != &waiting_) held_bytes_ += logprobs.size() * kLogprobBytes;
  }

  void begin_event(std::string& out, std::string_view type) {
    out.append("event: ").append(type).append("\ndata: {");
    append_member(out, "type", type);
    append_member(out, "sequence_number", sequence_++);
  }
  // An event about the item that is last.
  void begin_item_event(std::string& out, std::string_view type) {
    begin_event(out, type);
    append_member(out, "item_id", items_.back().id);
    append_place(out);
    if (!items_.back().is_call()) append_member(out, "content_index", 0);
  }
  void append_part_event(std::string& out, std::string_view type) {
    begin_item_event(out, type);
    append_name(out, "part");
    append_part(out, items_.back());
    end_event(out);
  }
  static void end_event(std::string& out) { out.append("}\n\n"); }
  void append_place(std::string& out) const {
    append_member(out, "output_index", items_.size() - 1);
  }

  void append_logprobs(std::string& out, const Item& of) const {
    append_name(out, "logprobs");
    append_token_logprobs(out, {tokenizer_, of.logprobs, of.tokens});
  }
  void append_part(std::string& out, const Item& item) const {
    out.append(R"({"type":"output_text","annotations":[])");
    append_logprobs(out, item);
    append_member(out, "text", item.text);
    out.push_back('}');
  }
  void append_item(std::string& out, const Item& item) const {
    const ItemWords& words = words_of(item.kind);
    const bool has_begun = item.status != "in_progress";
    out.push_back('{');
    append_member(out, "id", item.id);
    append_member(out, "type", words.type);
    append_member(out, "status", item.status);
    if (item.is_call()) {
      append_member(out, "call_id", item.call_id);
      append_member(out, "name", item.name);
      append_member(out, words.whole, item.text);
    } else if (item.kind == Kind::kMessage) {
      out.append(R"(,"role":"assistant","content":[)");
      if (has_begun) append_part(out, item);
      out.push_back(']');
    } else {
      out.append(R"(,"summary":[],"content":[)");
      if (has_begun) {
        out.append(R"({"type":"reasoning_text")");
        append_member(out, "text", item.text);
        out.push_back('}');
      }
      out.push_back(']');
      const bool sealed = seals_thoughts_ && has_begun;
      json::append_member_or_null(
          out, "encrypted_content",
          sealed ? std::string(kSealedThought).append(item.text) : std::string());
    }
    out.push_back('}');
  }
  void append_response(std::string& out, std::string_view status, const Error* error,
                       const Usage* usage) const {
    append_head(out, status, error);
    append_output(out);
    append_tail(out, usage);
  }
  void append_head(std::string& out, std::string_view status, const Error* error) const {
    out.push_back('{');
    append_member(out, "id", identity_.id);
    append_member(out, "object", "response");
    append_member(out, "created_at", identity_.created);
    append_member(out, "status", status);
    append_member(out, "background", false);
    if (error != nullptr) {
      append_response_error(out, *error);
    } else {
      out.append(",\"error\":null");
    }
    append_name(out, "incomplete_details");
    out.append(status == "incomplete" ? R"({"reason":"max_output_tokens"})" : "null");
    if (echo_ != nullptr) out.append(",").append(*echo_);
    append_member(out, "store", is_kept_);
    append_member(out, "model", identity_.model);
    append_name(out, "output");
  }
  void append_output(std::string& out) const {
    append_list(out, items_, [&](const Item& item) { append_item(out, item); });
  }
  void append_tail(std::string& out, const Usage* usage) const {
    append_setting(out, "temperature", temperature_);
    append_setting(out, "top_p", top_p_);
    if (usage != nullptr) {
      append_response_usage(out, *usage);
    } else {
      out.append(",\"usage\":null");
    }
    out.push_back('}');
  }

  const bool stream_;
  const bool with_logprobs_;
  const bool seals_thoughts_;
  const Identity identity_;
  const std::shared_ptr<const std::string> echo_;
  const std::shared_ptr<const KeptTurn> kept_;
  const float temperature_;
  const float top_p_;
  const Tokenizer& tokenizer_;
  std::vector<Item> items_;
  bool is_open_ = false;   // the last of them goes on
  Item waiting_;           // logprobs of tokens whose text is still to come
  bool is_kept_;           // or is going to be
  const uint64_t copies_;  // of a text that are held: as it is, as JSON, and that for the store
  Usage usage_;
  uint64_t held_bytes_ = 0;
  uint64_t sequence_ = 0;
  bool has_begun_ = false;
  bool is_cut_ = false;
};

std::unique_ptr<AnswerWriter> make_response_writer(const AnswerStart& start) {
  return std::make_unique<ResponseWriter>(start);
}

// Before anything of the answer is known. The members are twice in it: as the event has them, and
// where OpenAI's clients look for what they raise.
std::string response_error_frame(const Error& error) {
  std::string out = "event: error\ndata: {\"type\":\"error\",\"sequence_number\":0";
  json::append_member_or_null(out, "code", error.code);
  append_member(out, "message", error.message);
  json::append_member_or_null(out, "param", error.param);
  append_name(out, "error");
  return out.append(error_object(Dialect::kOpenAi, error)).append("}\n\n");
}

}  // namespace

constinit const AnswerKind AnswerKind::kResponse = {"resp_", "input", ": keepalive\n\n",
                                                    response_error_frame, make_response_writer};

}  // namespace skein::api
