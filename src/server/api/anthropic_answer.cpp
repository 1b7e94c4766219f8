// Anthropic's messages: the events of a stream, and whole.
#include <utility>

#include "server/api/answer_writer.h"
#include "server/json.h"

namespace skein::api {
namespace {

using json::append_member;

std::string_view stop_reason(const AnswerEnd& end) {
  if (end.how.reason == FinishReason::kLength) return "max_tokens";
  if (end.how.reason == FinishReason::kToolCalls) return "tool_use";
  return end.stop.empty() ? "end_turn" : "stop_sequence";
}

void append_stop(std::string& out, std::string_view reason, std::string_view stop) {
  append_member(out, "stop_reason", reason);
  json::append_member_or_null(out, "stop_sequence", stop);
}

void append_input_usage(std::string& out, const Usage& usage) {
  append_member(out, "input_tokens", usage.prompt_tokens - usage.cached_tokens);
  append_member(out, "cache_creation_input_tokens", 0);
  append_member(out, "cache_read_input_tokens", usage.cached_tokens);
}

// message_start, content_block_start; content_block_delta*; content_block_stop, message_delta,
// message_stop.
class MessageStream final : public AnswerWriter {
 public:
  explicit MessageStream(const AnswerStart& start) : identity_(start.identity) {}

  void progress(std::string&, uint64_t, uint64_t) override {}
  void write(std::string& out, uint32_t, const AnswerContent& content,
             const Figures& now) override {
    if (content.text.empty()) return;
    begin(out, now.usage);
    out.append(
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,"
        "\"delta\":{\"type\":\"text_delta\",\"text\":");
    json::append_string(out, content.text);
    out.append("}}\n\n");
  }
  void write(std::string&, uint32_t, const AnswerReasoning&, const Figures&) override {}
  void write(std::string&, uint32_t, const AnswerCallBegin&, const Figures&) override {}
  void write(std::string&, uint32_t, const AnswerArguments&, const Figures&) override {}
  void write(std::string&, uint32_t, const AnswerCallEnd&, const Figures&) override {}
  void finish(std::string& out, uint32_t, const AnswerEnd& end, const Figures& now) override {
    begin(out, now.usage);
    out.append(
        "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{");
    append_stop(out, stop_reason(end), end.stop);
    out.append("},\"usage\":{");
    append_member(out, "output_tokens", now.usage.completion_tokens);
    out.append("}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
  }
  void end(std::string&, const Figures&) override {}
  uint64_t held_bytes() const override { return 0; }

 private:
  void begin(std::string& out, const Usage& usage) {
    if (std::exchange(has_begun_, true)) return;
    out.append("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{");
    append_member(out, "id", identity_.id);
    out.append(",\"type\":\"message\",\"role\":\"assistant\"");
    append_member(out, "model", identity_.model);
    out.append(",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{");
    append_input_usage(out, usage);
    out.append(
        ",\"output_tokens\":0}}}\n\n"
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,"
        "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n");
  }

  const Identity identity_;
  bool has_begun_ = false;
};

class WholeMessage final : public AnswerWriter {
 public:
  explicit WholeMessage(const AnswerStart& start) : identity_(start.identity) {}

  void progress(std::string&, uint64_t, uint64_t) override {}
  void write(std::string&, uint32_t, const AnswerContent& content, const Figures&) override {
    text_.append(content.text);
  }
  void write(std::string&, uint32_t, const AnswerReasoning&, const Figures&) override {}
  void write(std::string&, uint32_t, const AnswerCallBegin&, const Figures&) override {}
  void write(std::string&, uint32_t, const AnswerArguments&, const Figures&) override {}
  void write(std::string&, uint32_t, const AnswerCallEnd&, const Figures&) override {}
  void finish(std::string&, uint32_t, const AnswerEnd& end, const Figures&) override {
    stop_reason_ = stop_reason(end);
    stop_ = end.stop;
  }
  void end(std::string& out, const Figures& all) override {
    out.push_back('{');
    append_member(out, "id", identity_.id);
    out.append(",\"type\":\"message\",\"role\":\"assistant\"");
    append_member(out, "model", identity_.model);
    out.append(",\"content\":[{\"type\":\"text\"");
    append_member(out, "text", text_);
    out.append("}]");
    append_stop(out, stop_reason_, stop_);
    out.append(",\"usage\":{");
    append_input_usage(out, all.usage);
    append_member(out, "output_tokens", all.usage.completion_tokens);
    out.append("}}");
  }
  uint64_t held_bytes() const override { return 2 * text_.size(); }

 private:
  const Identity identity_;
  std::string text_;
  std::string_view stop_reason_;
  std::string stop_;
};

std::unique_ptr<AnswerWriter> make_message_writer(const AnswerStart& start) {
  if (start.wanted.stream) return std::make_unique<MessageStream>(start);
  return std::make_unique<WholeMessage>(start);
}

}  // namespace

constinit const AnswerKind AnswerKind::kMessage = {Dialect::kAnthropic,
                                                   "msg_",
                                                   "messages",
                                                   "event: ping\ndata: {\"type\":\"ping\"}\n\n",
                                                   "event: error\ndata: ",
                                                   make_message_writer};

}  // namespace skein::api
