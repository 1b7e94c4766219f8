// Answers with a thought, a text and two calls, in every format, cut at every token: what clients
// are told is the same whole and streamed, is a beginning of the whole answer, and has no marker in
// it. Stop texts are looked for in the text alone, logprobs are those of the text's tokens.
#include <algorithm>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "dialog/dialog_helpers.h"
#include "fuzz/small_tokenizers.h"
#include "server/api/answer_writer.h"
#include "server/json.h"
#include "text/utf8.h"

namespace skein::api {
namespace {

using Json = json::Value;
using dialog::CallShape;
using dialog::ChatFormat;
using dialog::ToolCall;

const std::string kThought = "I <b> wonder about END, {1}.";
const std::string kText = "Well, é [is] END it < so?";

const std::vector<ToolCall> kCalls = {
    {"abcdefgh1", "weather", R"({"city": "Pa\"ris END <x>", "days": 3})"},
    {"abcdefgh2", "now", "{}"}};

std::vector<dialog::Tool> cut_tools() {
  return {{.name = "weather",
           .description = "",
           .parameters = OrderedJson::parse(R"({"type": "object", "properties": {
               "city": {"type": "string"}, "days": {"type": "integer"}}})"),
           .strict = {}},
          {.name = "now", .description = "", .parameters = {}, .strict = {}}};
}

// Bytes, and the format's markers behind them as control tokens where they are to be tokens.
Tokenizer tokens_for(const ChatFormat& format, bool markers_are_tokens) {
  TokenizerSpec spec;
  spec.byte_level = true;
  spec.decoder = TokenizerSpec::Decoder::kByteLevel;
  char32_t next = 0x100;
  for (char32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
    std::string piece;
    append_utf8(printable ? b : next++, piece);
    fuzz::add(spec, piece);
  }
  if (markers_are_tokens) {
    const dialog::CallFormat& call = format.calls;
    std::string all = call.section_begin + call.call_begin + call.call_end + call.section_end +
                      format.reasoning.begin + format.reasoning.end + format.text_begin +
                      format.text_end;
    if (call.shape == CallShape::kHarmony) {
      all = "<|start|><|channel|><|message|><|constrain|><|end|><|call|>";
    }
    std::vector<std::string_view> markers = dialog::markers_in(all);
    std::sort(markers.begin(), markers.end());
    markers.erase(std::unique(markers.begin(), markers.end()), markers.end());
    for (const std::string_view marker : markers) fuzz::add_token(spec, marker, true);
  }
  return fuzz::must_create(std::move(spec));
}

struct Scene {
  ChatFormat format;
  std::string answer;
  std::string thought, text;  // that are in it
  std::vector<ToolCall> calls;
};

Scene scene_of(ChatFormat format) {
  Scene scene{std::move(format), "", "", "", kCalls};
  const ChatFormat& f = scene.format;
  if (f.calls.shape == CallShape::kHarmony) {
    scene.thought = kThought;
    scene.text = kText;
    const std::string next = "<|start|>assistant<|channel|>commentary";
    scene.answer = "<|channel|>analysis<|message|>" + kThought + "<|end|>" + next + "<|message|>" +
                   kText + "<|end|>";
    for (const ToolCall& call : kCalls) {
      scene.answer += next + " to=functions." + call.name + " <|constrain|>json<|message|>" +
                      call.arguments + "<|call|>";
    }
    return scene;
  }
  if (!f.calls.parallel) scene.calls.resize(1);
  if (!f.reasoning.begin.empty()) {
    scene.thought = kThought;
    scene.answer = f.reasoning.begin + "\n" + kThought + "\n" + f.reasoning.end + "\n\n";
  }
  const bool bare = (f.calls.section_begin + f.calls.call_begin).empty();  // a call stands first
  if (!bare) {
    scene.text = kText;
    scene.answer += f.text_begin + kText + f.text_end + "\n";
  }
  scene.answer += dialog::write_calls(f.calls, scene.calls);
  return scene;
}

// An answer as a client has it.
struct Message {
  std::string thought, text;
  std::vector<ToolCall> calls;  // without ids
  std::string end;
  std::string logprob_bytes;

  std::string summary() const {
    std::string out = "[" + thought + "][" + text + "]";
    for (const ToolCall& call : calls) out += " " + call.name + call.arguments;
    return out + " " + end + " " + logprob_bytes;
  }
};

void add_logprob_bytes(const Json& logprobs, std::string& out) {
  if (logprobs.is_null()) return;
  for (const Json& entry : logprobs["content"]) {
    for (const Json& byte : entry["bytes"]) out.push_back(static_cast<char>(byte.get<int>()));
  }
}

std::vector<Json> data_of(const std::string& stream) {
  std::vector<Json> frames;
  for (size_t at = stream.find("data: {"); at != std::string::npos;
       at = stream.find("data: {", at + 1)) {
    if (at > 0 && stream[at - 1] != '\n') continue;
    const size_t begin = at + 6;
    frames.push_back(Json::parse(stream.substr(begin, stream.find("\n\n", at) - begin)));
  }
  return frames;
}

Message of_chat(const std::string& body) {
  const Json choice = Json::parse(body)["choices"][0];
  const Json& from = choice["message"];
  Message out{from.value("reasoning_content", ""), "", {}, choice["finish_reason"], ""};
  if (!from["content"].is_null()) out.text = from["content"];
  for (const Json& call : from.value("tool_calls", Json::array())) {
    out.calls.push_back({"", call["function"]["name"], call["function"]["arguments"]});
  }
  add_logprob_bytes(choice["logprobs"], out.logprob_bytes);
  return out;
}

Message of_chat_stream(const std::string& stream) {
  Message out;
  for (const Json& frame : data_of(stream)) {
    const Json& choice = frame["choices"][0];
    const Json& delta = choice["delta"];
    out.thought += delta.value("reasoning_content", "");
    if (delta.contains("content")) out.text += delta["content"];
    for (const Json& call : delta.value("tool_calls", Json::array())) {
      if (call.contains("id")) {
        EXPECT_EQ(call["index"], out.calls.size());
        EXPECT_EQ(call["function"]["arguments"], "");
        out.calls.push_back({"", call["function"]["name"], ""});
      } else {
        out.calls.at(call["index"]).arguments += call["function"]["arguments"];
      }
    }
    add_logprob_bytes(choice["logprobs"], out.logprob_bytes);
    if (!choice["finish_reason"].is_null()) out.end = choice["finish_reason"];
  }
  return out;
}

Message of_message(const std::string& body) {
  const Json from = Json::parse(body);
  Message out;
  out.end = from["stop_reason"];
  for (const Json& block : from["content"]) {
    if (block["type"] == "thinking") out.thought += block["thinking"];
    if (block["type"] == "text") out.text += block["text"];
    if (block["type"] == "tool_use")
      out.calls.push_back({"", block["name"], block["input"].dump()});
  }
  return out;
}

Message of_message_stream(const std::string& stream) {
  Message out;
  for (const Json& frame : data_of(stream)) {
    if (frame["type"] == "content_block_start" && frame["content_block"]["type"] == "tool_use") {
      out.calls.push_back({"", frame["content_block"]["name"], ""});
    }
    if (frame["type"] == "message_delta") out.end = frame["delta"]["stop_reason"];
    if (frame["type"] != "content_block_delta") continue;
    const Json& delta = frame["delta"];
    out.thought += delta.value("thinking", "");
    out.text += delta.value("text", "");
    if (delta["type"] == "input_json_delta") out.calls.back().arguments += delta["partial_json"];
  }
  return out;
}

class CutAnswers : public ::testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  void SetUp() override {
    const auto& [path, markers_are_tokens] = GetParam();
    scene_ = scene_of(dialog::testing::must_find(dialog::testing::template_source(path)));
    tokenizer_.emplace(tokens_for(scene_.format, markers_are_tokens));
    syntax_ = std::make_shared<const dialog::AnswerSyntax>(
        std::make_shared<const ChatFormat>(scene_.format), markers_of(scene_.format, *tokenizer_),
        cut_tools());
    ids_ = tokenizer_->encode(scene_.answer, {.parse_special = true}).value();
  }

  // The first `count` tokens and then an end, in chunks of up to `longest`.
  std::string written(const AnswerKind& kind, bool stream, size_t count, FinishReason reason,
                      size_t longest) {
    AnswerOptions wanted;
    wanted.stream = stream;
    wanted.sampling.logprobs = true;
    auto writer = kind.make_writer(
        {.identity = {"id", 17, "model"}, .wanted = wanted, .tokenizer = *tokenizer_});
    ReadOptions options{.stops = stops_};
    options.syntax = syntax_;
    auto reader = EventReader::create(*tokenizer_, options).value();
    std::string out;
    std::vector<AnswerEvent> events;
    const auto tell = [&](StreamChunk& chunk) {
      reader.read(chunk, events);
      for (const AnswerEvent& event : events) {
        std::visit([&](const auto& part) { tell_part(*writer, out, part); }, event);
      }
    };
    for (size_t at = 0; at < count && !reader.stopped();) {
      const size_t end = std::min(count, at + 1 + rng_.below(longest));
      StreamChunk chunk;
      for (; at < end; ++at) {
        chunk.tokens.push_back(ids_[at]);
        chunk.logprobs.push_back({ids_[at], -1});
      }
      tell(chunk);
    }
    StreamChunk last;
    last.end = GenerationEnd{.reason = reason, .status = {}};
    tell(last);
    writer->end(out, {});
    return out;
  }
  template <class Part>
  static void tell_part(AnswerWriter& writer, std::string& out, const Part& part) {
    if constexpr (std::is_same_v<Part, AnswerEnd>) {
      writer.finish(out, 0, part, {});
    } else if constexpr (requires { writer.write(out, 0, part, {}); }) {
      writer.write(out, 0, part, {});
    }
  }

  // What every cut must keep to; the message is a beginning of the whole answer.
  void check(const Message& got, size_t cut) {
    SCOPED_TRACE("cut at " + std::to_string(cut) + ": " + got.summary());
    const auto begins = [](const std::string& whole, std::string part) {
      part.erase(part.find_last_not_of(" \n") + 1);  // white space before a marker is nobody's
      return whole.starts_with(part);
    };
    EXPECT_TRUE(begins(scene_.thought, got.thought));
    EXPECT_TRUE(begins(scene_.text, got.text));
    if (!std::get<1>(GetParam())) {
      EXPECT_TRUE(got.logprob_bytes.starts_with(got.text));
      // A character that is cut has tokens, and so has a stop text; neither is shown.
      const std::string rest = got.logprob_bytes.substr(got.text.size());
      EXPECT_TRUE(rest.empty() || utf8_next(rest).kind == Utf8Kind::kIncomplete ||
                  (got.end == "stop" && rest == "END"))
          << rest;
    }
    ASSERT_LE(got.calls.size(), scene_.calls.size());
    for (size_t i = 0; i < got.calls.size(); ++i) {
      EXPECT_EQ(got.calls[i].name, scene_.calls[i].name);
      const OrderedJson whole = dialog::parse_arguments(scene_.calls[i].arguments);
      if (i + 1 < got.calls.size()) {
        EXPECT_EQ(dialog::parse_arguments(got.calls[i].arguments), whole);
      } else {
        EXPECT_TRUE(dialog::spaced_json(whole, false).starts_with(got.calls[i].arguments));
      }
    }
    if (!got.calls.empty()) {  // what stands before them is all there
      EXPECT_EQ(got.thought, scene_.thought);
      EXPECT_EQ(got.text, scene_.text);
    }
  }

  // The first `cut` tokens as a chat has them, whole and streamed.
  Message read_chat(size_t cut, FinishReason reason) {
    const Message chat = of_chat(written(AnswerKind::kChat, false, cut, reason, 1));
    const Message streamed = of_chat_stream(written(AnswerKind::kChat, true, cut, reason, 4));
    EXPECT_EQ(streamed.summary(), chat.summary()) << "cut at " << cut;
    return chat;
  }

  // Likewise, and the other dialects agree.
  Message read(size_t cut, FinishReason reason) {
    const Message chat = read_chat(cut, reason);
    const Message blocks = of_message_stream(written(AnswerKind::kMessage, true, cut, reason, 40));
    EXPECT_EQ(blocks.thought, chat.thought);
    EXPECT_EQ(blocks.text, chat.text);
    EXPECT_EQ(blocks.calls.size(), chat.calls.size());
    // Whole, it has no call that was cut.
    const Message message = of_message(written(AnswerKind::kMessage, false, cut, reason, 40));
    EXPECT_EQ(message.text, chat.text);
    EXPECT_EQ(message.end, blocks.end);
    EXPECT_GE(message.calls.size() + 1, chat.calls.size());
    EXPECT_LE(message.calls.size(), chat.calls.size());
    for (size_t i = 0; i < message.calls.size(); ++i) {
      EXPECT_EQ(Json::parse(message.calls[i].arguments), Json::parse(scene_.calls[i].arguments));
    }
    // The last frame has the response that is sent whole.
    const Json whole = Json::parse(written(AnswerKind::kResponse, false, cut, reason, 40));
    const std::string stream = written(AnswerKind::kResponse, true, cut, reason, 40);
    const Json last = data_of(stream.substr(stream.rfind("\ndata: ") + 1)).back()["response"];
    EXPECT_EQ(last["output"].size(), whole["output"].size());
    EXPECT_EQ(last["status"], whole["status"]);
    EXPECT_EQ(whole["status"], chat.end == "length" ? "incomplete" : "completed");
    std::string said;
    for (const Json& item : whole["output"]) {
      if (item["type"] == "message") said += item["content"][0]["text"];
    }
    EXPECT_EQ(said, chat.text);
    return chat;
  }

  Scene scene_;
  std::optional<Tokenizer> tokenizer_;
  std::shared_ptr<const dialog::AnswerSyntax> syntax_;
  std::vector<TokenId> ids_;
  std::vector<std::string> stops_;
  Rng rng_{11};
};

TEST_P(CutAnswers, AtEveryToken) {
  for (size_t cut = 0; cut <= ids_.size(); ++cut) {
    const Message got = read(cut, FinishReason::kLength);
    EXPECT_EQ(got.end, "length");
    check(got, cut);
    if (HasFailure()) return;
  }
  const Message whole = read(ids_.size(), FinishReason::kStop);
  EXPECT_EQ(whole.end, "tool_calls");
  check(whole, ids_.size());
  EXPECT_EQ(whole.calls.size(), scene_.calls.size());
}

TEST_P(CutAnswers, WithStopTexts) {
  stops_ = {"END", "weather", "<tool_call>", "city"};
  const size_t end = scene_.text.find("END");
  for (size_t cut = 0; cut <= ids_.size(); cut += 3) {
    const Message got = read_chat(cut, FinishReason::kLength);
    check(got, cut);
    EXPECT_TRUE(got.end == "length" || (got.end == "stop" && end != std::string::npos)) << cut;
    if (got.end == "stop") {
      EXPECT_EQ(got.text, scene_.text.substr(0, end));
      EXPECT_TRUE(got.calls.empty());
    }
    if (HasFailure()) return;
  }
  const Message whole = read(ids_.size(), FinishReason::kStop);
  EXPECT_EQ(whole.end, end == std::string::npos ? "tool_calls" : "stop");
}

// Our own, with markers that are letters and ones that are tokens; those of real models, where they
// stand beside the clone, as letters alone.
std::vector<std::tuple<std::string, bool>> templates_to_cut() {
  namespace fs = std::filesystem;
  std::vector<std::tuple<std::string, bool>> found;
  for (const auto& entry : fs::directory_iterator(SKEIN_SOURCE_DIR "/tests/dialog/templates")) {
    found.emplace_back(entry.path().string(), false);
    found.emplace_back(entry.path().string(), true);
  }
  const fs::path real(SKEIN_SOURCE_DIR "/../shared/vectors/templates");
  if (fs::exists(real)) {
    for (const auto& entry : fs::directory_iterator(real)) {
      found.emplace_back(entry.path().string(), false);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

INSTANTIATE_TEST_SUITE_P(Templates, CutAnswers, ::testing::ValuesIn(templates_to_cut()),
                         [](const auto& info) {
                           std::string name =
                               std::filesystem::path(std::get<0>(info.param)).stem().string();
                           for (char& c : name) {
                             c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           }
                           return name + (std::get<1>(info.param) ? "_tokens" : "_bytes");
                         });

}  // namespace
}  // namespace skein::api
