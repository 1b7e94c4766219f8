// Anthropic's messages: the events of a stream, and whole.
#include <utility>

#include "base/hash.h"
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

// The signature beneath a thought: clients send it back with the thought, and nobody looks at it.
// It is the same for the same text, however that came; so its key is no secret.
class Signature {
 public:
  void add(std::string_view text) {
    length_ += text.size();
    block_.append(text);
    size_t begin = 0;
    for (; block_.size() - begin >= kBlockBytes; begin += kBlockBytes) {
      mix(std::string_view(block_).substr(begin, kBlockBytes));
    }
    block_.erase(0, begin);
  }
  // The next text begins anew.
  std::string take() {
    mix(block_);
    mix(fmt::format("{}", length_));
    std::string text = fmt::format("{:016x}{:016x}", state_.high, state_.low);
    *this = Signature();
    return text;
  }

 private:
  static constexpr size_t kBlockBytes = 64;

  void mix(std::string_view bytes) { state_ = keyed_hash(state_, std::as_bytes(std::span(bytes))); }

  Hash128 state_ = {0x736b65696e, 0x7468696e6b};
  uint64_t length_ = 0;
  std::string block_;  // less than a whole one
};

// message_start; for each block content_block_start, content_block_delta*, content_block_stop;
// message_delta, message_stop. A block is opened by what is in it, so none is empty.
class MessageStream final : public AnswerWriter {
 public:
  explicit MessageStream(const AnswerStart& start)
      : identity_(start.identity), shows_thoughts_(start.wanted.include_reasoning) {}

  void progress(std::string&, uint64_t, uint64_t) override {}
  void write(std::string& out, uint32_t, const AnswerContent& content,
             const Figures& now) override {
    if (content.text.empty()) return;
    open(out, Block::kText, R"("type":"text","text":"")", now);
    append_delta(out, "text_delta", "text", content.text);
  }
  void write(std::string& out, uint32_t, const AnswerReasoning& thought,
             const Figures& now) override {
    if (thought.text.empty()) return;
    open(out, Block::kThinking, R"("type":"thinking","thinking":"","signature":"")", now);
    signature_.add(thought.text);
    if (shows_thoughts_) append_delta(out, "thinking_delta", "thinking", thought.text);
  }
  void write(std::string& out, uint32_t, const AnswerCallBegin& call, const Figures& now) override {
    close(out);
    std::string start = R"("type":"tool_use")";
    append_member(start, "id", call.id);
    append_member(start, "name", call.name);
    open(out, Block::kTool, start.append(R"(,"input":{})"), now);
  }
  void write(std::string& out, uint32_t, const AnswerArguments& piece, const Figures&) override {
    if (!piece.text.empty()) append_delta(out, "input_json_delta", "partial_json", piece.text);
  }
  void write(std::string& out, uint32_t, const AnswerCallEnd&, const Figures&) override {
    close(out);
  }
  void finish(std::string& out, uint32_t, const AnswerEnd& end, const Figures& now) override {
    begin(out, now.usage);
    close(out);
    out.append("event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{");
    append_stop(out, stop_reason(end), end.stop);
    out.append("},\"usage\":{");
    append_input_usage(out, now.usage);
    append_member(out, "output_tokens", now.usage.completion_tokens);
    out.append("}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
  }
  void end(std::string&, const Figures&) override {}
  uint64_t held_bytes() const override { return 0; }

 private:
  enum class Block : uint8_t { kNone, kText, kThinking, kTool };

  void begin(std::string& out, const Usage& usage) {
    if (std::exchange(has_begun_, true)) return;
    out.append("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{");
    append_member(out, "id", identity_.id);
    out.append(",\"type\":\"message\",\"role\":\"assistant\"");
    append_member(out, "model", identity_.model);
    out.append(",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{");
    append_input_usage(out, usage);
    out.append(",\"output_tokens\":0}}}\n\n");
  }
  // Goes on in the block that is open, if it is one of these.
  void open(std::string& out, Block block, std::string_view start, const Figures& now) {
    begin(out, now.usage);
    if (open_ == block) return;
    close(out);
    open_ = block;
    append_event(out, "content_block_start");
    out.append(",\"content_block\":{").append(start).append("}}\n\n");
  }
  void close(std::string& out) {
    if (open_ == Block::kNone) return;
    if (open_ == Block::kThinking) {
      append_delta(out, "signature_delta", "signature", signature_.take());
    }
    append_event(out, "content_block_stop");
    out.append("}\n\n");
    open_ = Block::kNone;
    ++index_;
  }
  void append_event(std::string& out, std::string_view type) const {
    out.append("event: ").append(type).append("\ndata: {");
    append_member(out, "type", type);
    append_member(out, "index", index_);
  }
  void append_delta(std::string& out, std::string_view type, std::string_view name,
                    std::string_view text) const {
    append_event(out, "content_block_delta");
    out.append(",\"delta\":{");
    append_member(out, "type", type);
    append_member(out, name, text);
    out.append("}}\n\n");
  }

  const Identity identity_;
  const bool shows_thoughts_;
  bool has_begun_ = false;
  Block open_ = Block::kNone;
  uint32_t index_ = 0;   // of the block that is open, or of the next one
  Signature signature_;  // of the thought that is open
};

class WholeMessage final : public AnswerWriter {
 public:
  explicit WholeMessage(const AnswerStart& start)
      : identity_(start.identity), shows_thoughts_(start.wanted.include_reasoning) {}

  void progress(std::string&, uint64_t, uint64_t) override {}
  void write(std::string&, uint32_t, const AnswerContent& content, const Figures&) override {
    add_text("text", content.text);
  }
  void write(std::string&, uint32_t, const AnswerReasoning& thought, const Figures&) override {
    add_text("thinking", thought.text);
  }
  void write(std::string&, uint32_t, const AnswerCallBegin& call, const Figures&) override {
    blocks_.push_back({"tool_use", {}, std::string(call.id), std::string(call.name), false});
    held_bytes_ += 2 * (call.id.size() + call.name.size());
  }
  void write(std::string&, uint32_t, const AnswerArguments& piece, const Figures&) override {
    blocks_.back().text.append(piece.text);
    held_bytes_ += 2 * piece.text.size();
  }
  void write(std::string&, uint32_t, const AnswerCallEnd&, const Figures&) override {
    blocks_.back().is_whole = true;
  }
  void finish(std::string&, uint32_t, const AnswerEnd& end, const Figures&) override {
    stop_reason_ = stop_reason(end);
    stop_ = end.stop;
  }
  void end(std::string& out, const Figures& all) override {
    // A call that was cut is none.
    std::erase_if(blocks_, [](const Block& block) { return !block.is_whole; });
    out.push_back('{');
    append_member(out, "id", identity_.id);
    out.append(",\"type\":\"message\",\"role\":\"assistant\"");
    append_member(out, "model", identity_.model);
    json::append_name(out, "content");
    json::append_list(out, blocks_, [&](const Block& block) { append_block(out, block); });
    append_stop(out, stop_reason_, stop_);
    out.append(",\"usage\":{");
    append_input_usage(out, all.usage);
    append_member(out, "output_tokens", all.usage.completion_tokens);
    out.append("}}");
  }
  uint64_t held_bytes() const override { return held_bytes_; }

 private:
  struct Block {
    std::string_view type;
    std::string text;  // of a call: its arguments
    std::string id = {};
    std::string name = {};
    bool is_whole = true;
  };

  void add_text(std::string_view type, std::string_view text) {
    if (text.empty()) return;
    if (blocks_.empty() || blocks_.back().type != type) blocks_.push_back({type, {}});
    blocks_.back().text.append(text);
    held_bytes_ += 2 * text.size();
  }
  void append_block(std::string& out, const Block& block) const {
    out.push_back('{');
    append_member(out, "type", block.type);
    if (block.type == "text") {
      append_member(out, "text", block.text);
    } else if (block.type == "thinking") {
      Signature signature;
      signature.add(block.text);
      append_member(out, "thinking", shows_thoughts_ ? block.text : std::string());
      append_member(out, "signature", signature.take());
    } else {
      append_member(out, "id", block.id);
      append_member(out, "name", block.name);
      append_input(out, block.text);
    }
    out.push_back('}');
  }
  // The arguments are JSON already, and stay as they were written. What is none, which only a model
  // that nothing binds can write, is handed on as a text.
  static void append_input(std::string& out, const std::string& arguments) {
    const auto parsed = json::parse(arguments);
    const auto* input = std::get_if<json::Value>(&parsed);
    json::append_name(out, "input");
    if (input != nullptr && input->is_object()) {
      out.append(arguments);
      return;
    }
    out.push_back('{');
    append_member(out, "arguments", arguments);
    out.push_back('}');
  }

  const Identity identity_;
  const bool shows_thoughts_;
  std::vector<Block> blocks_;
  uint64_t held_bytes_ = 0;
  std::string_view stop_reason_;
  std::string stop_;
};

std::unique_ptr<AnswerWriter> make_message_writer(const AnswerStart& start) {
  if (start.wanted.stream) return std::make_unique<MessageStream>(start);
  return std::make_unique<WholeMessage>(start);
}

std::string message_error_frame(const Error& error) {
  return "event: error\ndata: " + error_body(Dialect::kAnthropic, error) + "\n\n";
}

}  // namespace

constinit const AnswerKind AnswerKind::kMessage = {"msg_", "messages",
                                                   "event: ping\ndata: {\"type\":\"ping\"}\n\n",
                                                   message_error_frame, make_message_writer};

}  // namespace skein::api
