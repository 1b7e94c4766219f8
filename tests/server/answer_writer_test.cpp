// What clients get, byte for byte, in both dialects.
#include "server/api/answer_writer.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/models.h"
#include "engine/tiny_model.h"
#include "server/json.h"

namespace skein::api {
namespace {

using ::testing::HasSubstr;

const Tokenizer& tokenizer() {  // its first 256 ids are the bytes
  static const testing::TestFolder folder;
  static const LoadedTokenizer loaded = testing::load(testing::write_tiny_model(folder));
  return loaded.tokenizer;
}

const Identity kIdentity{"id-1", 17, "org/\"model\""};
const Figures kFigures{{10, 4, 8}, {}};

// Writes an answer event by event.
class Written {
 public:
  Written(const AnswerKind& kind, const AnswerOptions& wanted, uint32_t choices = 1) {
    const std::vector<TokenId> prompt = {1, 2};
    writer_ = kind.make_writer({kIdentity, wanted, tokenizer(), choices, prompt});
  }

  Written& content(std::string_view text, std::vector<TokenId> tokens = {'a'},
                   std::vector<TokenLogprob> logprobs = {}, uint32_t choice = 0,
                   Figures now = kFigures) {
    writer_->write(out, choice, AnswerContent{text, tokens, logprobs}, now);
    return *this;
  }
  template <class Part>
  Written& part(const Part& what, uint32_t choice = 0) {
    writer_->write(out, choice, what, kFigures);
    return *this;
  }
  Written& hidden(std::vector<TokenId> tokens) {
    writer_->pass(out, 0, {tokens}, kFigures);
    return *this;
  }
  Written& finish(FinishReason reason, std::string_view stop = {}, uint32_t choice = 0) {
    AnswerEnd end{{}, stop};
    end.how.reason = reason;
    writer_->finish(out, choice, end, kFigures);
    return *this;
  }
  std::string end(std::optional<Timings> timings = {}) {
    writer_->end(out, {kFigures.usage, timings});
    return std::move(out);
  }
  AnswerWriter& writer() { return *writer_; }

  std::string out;

 private:
  std::unique_ptr<AnswerWriter> writer_;
};

AnswerOptions streamed() {
  AnswerOptions wanted;
  wanted.stream = true;
  return wanted;
}

const std::string kChunk =
    R"(data: {"id":"id-1","object":"chat.completion.chunk","created":17,"model":"org/\"model\"",)";
const std::string kRole =
    kChunk +
    R"("choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})"
    "\n\n";
const std::string kUsage =
    R"("usage":{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14,"prompt_tokens_details":{"cached_tokens":8}})";

TEST(OpenAiAnswer, AStreamedChat) {
  Written chat(AnswerKind::kChat, streamed());
  EXPECT_EQ(chat.content("h\"i\xff").finish(FinishReason::kLength).end(),
            kRole + kChunk +
                R"("choices":[{"index":0,"delta":{"content":"h\"i)"
                "\xef\xbf\xbd"
                R"("},"logprobs":null,"finish_reason":null}]})"
                "\n\n" +
                kChunk +
                R"("choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]})"
                "\n\ndata: [DONE]\n\n");
}

TEST(OpenAiAnswer, TokensThatShowNothingAreNoChunk) {
  Written chat(AnswerKind::kChat, streamed());
  EXPECT_EQ(chat.content("").out, "");
  AnswerOptions ids = streamed();
  ids.return_token_ids = true;
  EXPECT_THAT(Written(AnswerKind::kChat, ids).content("", {5, 6}).out,
              HasSubstr(R"("finish_reason":null,"token_ids":[5,6]}]})"));
  EXPECT_EQ(Written(AnswerKind::kChat, streamed()).finish(FinishReason::kStop).out.find(kRole), 0U)
      << "an answer without text has a role";
}

TEST(OpenAiAnswer, TheUsageOfAStream) {
  AnswerOptions wanted = streamed();
  wanted.include_usage = true;
  Written last(AnswerKind::kChat, wanted);
  last.writer().progress(last.out, 3, 10);
  EXPECT_EQ(last.out,
            kChunk + R"("choices":[],"prompt_progress":{"total":10,"processed":3},"usage":null})"
                     "\n\n");
  last.content("x");
  EXPECT_THAT(last.out, HasSubstr(R"("finish_reason":null}],"usage":null})"));
  EXPECT_THAT(last.end(Timings{1, 2.0004, 3, 4, 5}),
              HasSubstr(kChunk + R"("choices":[],)" + kUsage +
                        R"(,"timings":{"queue_ms":1,"prefill_ms":2,"decode_ms":3,)"
                        R"("prompt_per_second":4,"predicted_per_second":5}})"
                        "\n\ndata: [DONE]\n\n"));
  wanted.continuous_usage = true;
  Written all(AnswerKind::kChat, wanted);
  all.content("x", {'x'}, {}, 0, {kFigures.usage, Timings{}});
  EXPECT_THAT(all.out, HasSubstr(R"(,"timings":{"queue_ms":0,)"));
  EXPECT_THAT(all.out, HasSubstr(kUsage + "}\n\n"));
}

const std::vector<TokenLogprob> kLogprobs = {{0xc3, -1.5F}, {'a', -0.5F}, {'b', -INFINITY},
                                             {'c', -2},     {'c', -2},    {'"', -3}};

TEST(OpenAiAnswer, LogprobsOfAChat) {
  AnswerOptions wanted = streamed();
  wanted.sampling.logprobs = true;
  wanted.sampling.top_logprobs = 2;
  EXPECT_THAT(
      Written(AnswerKind::kChat, wanted).content("x", {0xc3, 'c'}, kLogprobs).out,
      HasSubstr(
          R"("logprobs":{"content":[{"token":")"
          "\xef\xbf\xbd"
          R"(","logprob":-1.5,"bytes":[195],"top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]},)"
          R"({"token":"b","logprob":-9999,"bytes":[98]}]},{"token":"c","logprob":-2,"bytes":[99],)"
          R"("top_logprobs":[{"token":"c","logprob":-2,"bytes":[99]},{"token":"\"","logprob":-3,"bytes":[34]}]}],)"
          R"("refusal":null},"finish_reason")"));
}

TEST(OpenAiAnswer, LogprobsOfACompletionCountCharactersThroughTheStream) {
  AnswerOptions wanted = streamed();
  wanted.sampling.logprobs = true;
  wanted.sampling.top_logprobs = 2;
  Written stream(AnswerKind::kCompletion, wanted, 2);
  stream.content("x", {0xc3, 'c'}, kLogprobs);
  EXPECT_THAT(stream.out,
              HasSubstr(R"("token_logprobs":[-1.5,-2],"top_logprobs":[{"a":-0.5,"b":-9999},)"
                        R"({"c":-2,"\"":-3}],"text_offset":[0,1]})"));
  stream.content("x", {0xc3, 'c'}, kLogprobs);
  EXPECT_THAT(stream.out, HasSubstr(R"("text_offset":[2,3]})"));
  stream.content("x", {0xc3, 'c'}, kLogprobs, 1);
  EXPECT_EQ(stream.out.rfind(R"("text_offset":[0,1]})"), stream.out.rfind(R"("text_offset")"))
      << "each choice has its own";
  wanted.stream = false;
  Written whole(AnswerKind::kCompletion, wanted);
  whole.content("x", {0xc3, 'c'}, kLogprobs).content("x", {0xc3, 'c'}, kLogprobs);
  EXPECT_THAT(whole.end(), HasSubstr(R"("text_offset":[0,1,2,3]})"));
}

TEST(OpenAiAnswer, Whole) {
  AnswerOptions wanted;
  wanted.return_token_ids = true;
  Written chat(AnswerKind::kChat, wanted);
  EXPECT_EQ(
      chat.content("h", {7}).content("i\n", {8}).finish(FinishReason::kStop).end(),
      R"({"id":"id-1","object":"chat.completion","created":17,"model":"org/\"model\"","choices":[{"index":0,)"
      R"("message":{"role":"assistant","content":"hi\n","refusal":null},"logprobs":null,"finish_reason":"stop",)"
      R"("token_ids":[7,8]}],)" +
          kUsage + R"(,"prompt_token_ids":[1,2]})");
  Written completion(AnswerKind::kCompletion, {}, 2);
  completion.content("b", {'b'}, {}, 1).content("a").finish(FinishReason::kLength, {}, 1);
  EXPECT_THAT(
      completion.finish(FinishReason::kStop).end(),
      HasSubstr(R"("object":"text_completion","created":17,"model":"org/\"model\"","choices":[)"
                R"({"index":0,"text":"a","logprobs":null,"finish_reason":"stop"},)"
                R"({"index":1,"text":"b","logprobs":null,"finish_reason":"length"}],"usage")"));
}

TEST(OpenAiAnswer, AWholeAnswerSaysWhatItHolds) {
  AnswerOptions wanted;
  wanted.sampling.logprobs = true;
  Written whole(AnswerKind::kChat, wanted);
  EXPECT_EQ(whole.writer().held_bytes(), 0U);
  whole.content(std::string(1000, 'x'), {'x'}, {{'x', -1}});
  EXPECT_GE(whole.writer().held_bytes(), 2000U);
  const uint64_t held = whole.writer().held_bytes();
  EXPECT_GE(held, whole.end().size() / 2) << "it is bounded before it becomes JSON";
  Written stream(AnswerKind::kChat, streamed());
  EXPECT_EQ(stream.content(std::string(1000, 'x')).writer().held_bytes(), 0U);
}

TEST(AnthropicAnswer, AStreamedMessage) {
  Written message(AnswerKind::kMessage, streamed());
  EXPECT_EQ(message.content("").out, "");
  EXPECT_EQ(message.content("hi").finish(FinishReason::kStop, "END").end(),
            R"(event: message_start
data: {"type":"message_start","message":{"id":"id-1","type":"message","role":"assistant","model":"org/\"model\"","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":2,"cache_creation_input_tokens":0,"cache_read_input_tokens":8,"output_tokens":0}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"stop_sequence","stop_sequence":"END"},"usage":{"input_tokens":2,"cache_creation_input_tokens":0,"cache_read_input_tokens":8,"output_tokens":4}}

event: message_stop
data: {"type":"message_stop"}

)");
}

TEST(AnthropicAnswer, Whole) {
  Written message(AnswerKind::kMessage, {});
  EXPECT_EQ(
      message.content("h").content("i").finish(FinishReason::kLength).end(Timings{}),
      R"({"id":"id-1","type":"message","role":"assistant","model":"org/\"model\"","content":[{"type":"text","text":"hi"}],)"
      R"("stop_reason":"max_tokens","stop_sequence":null,"usage":{"input_tokens":2,"cache_creation_input_tokens":0,)"
      R"("cache_read_input_tokens":8,"output_tokens":4}})");
  EXPECT_EQ(message.writer().held_bytes(), 4U);
  Written stopped(AnswerKind::kMessage, {});
  EXPECT_THAT(stopped.finish(FinishReason::kStop, "END").end(),
              HasSubstr(R"("stop_reason":"stop_sequence","stop_sequence":"END")"));
  Written ended(AnswerKind::kMessage, {});
  EXPECT_THAT(ended.finish(FinishReason::kStop).end(), HasSubstr(R"("stop_reason":"end_turn")"));
}

TEST(AnswerErrors, AreFramesOfTheirDialect) {
  EXPECT_THAT(AnswerKind::kChat.error_frame(deadline_exceeded()),
              ::testing::StartsWith(R"(data: {"error":{)"));
  EXPECT_THAT(AnswerKind::kMessage.error_frame(queue_full(2)),
              ::testing::StartsWith("event: error\ndata: {\"type\":\"error\""));
  EXPECT_EQ(AnswerKind::kCompletion.keepalive, ": keepalive\n\n");
  EXPECT_EQ(AnswerKind::kMessage.keepalive, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
}

TEST(AnswerErrors, OfBothDialects) {
  const Error error{.status = 429, .message = "m", .param = "p", .code = "c"};
  EXPECT_EQ(error_body(Dialect::kOpenAi, error),
            R"({"error":{"message":"m","type":"rate_limit_error","param":"p","code":"c"}})");
  EXPECT_EQ(error_body(Dialect::kAnthropic, error),
            R"({"type":"error","error":{"type":"rate_limit_error","message":"p: m"}})");
  const std::pair<int, std::string_view> types[] = {{400, "invalid_request_error"},
                                                    {401, "authentication_error"},
                                                    {403, "permission_error"},
                                                    {404, "not_found_error"},
                                                    {413, "request_too_large"},
                                                    {429, "rate_limit_error"},
                                                    {500, "api_error"},
                                                    {503, "overloaded_error"},
                                                    {529, "overloaded_error"}};
  for (const auto& [status, type] : types) {
    EXPECT_EQ(error_type(Dialect::kAnthropic, status), type);
  }
  EXPECT_EQ(from_status(data_loss("/secret/path at 0x7fff")).message, "The server failed.");
  EXPECT_EQ(from_status(out_of_range("both numbers")).code, "context_length_exceeded");
}

// A thought, a text and two calls, the second of a custom tool.
Written& write_calls(Written& to) {
  return to.part(AnswerReasoning{"hm\"", {}})
      .content("ok")
      .part(AnswerCallBegin{0, "call_1", "f", false, {}})
      .part(AnswerArguments{0, "{\"a\": ", {}})
      .part(AnswerArguments{0, "1}", {}})
      .part(AnswerCallEnd{0, {}})
      .part(AnswerCallBegin{1, "call_2", "g", true, {}})
      .part(AnswerArguments{1, "x\n", {}})
      .part(AnswerCallEnd{1, {}})
      .finish(FinishReason::kToolCalls);
}

TEST(OpenAiAnswer, AWholeChatWithCalls) {
  Written chat(AnswerKind::kChat, {});
  EXPECT_THAT(
      write_calls(chat).end(),
      HasSubstr(
          R"("message":{"role":"assistant","content":"ok","reasoning_content":"hm\"","refusal":null,)"
          R"("tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}},)"
          R"({"id":"call_2","type":"custom","custom":{"name":"g","input":"x\n"}}]},)"
          R"("logprobs":null,"finish_reason":"tool_calls")"));
  AnswerOptions hidden;
  hidden.include_reasoning = false;
  Written alone(AnswerKind::kChat, hidden);
  alone.part(AnswerReasoning{"hm", {}}).part(AnswerCallBegin{0, "call_1", "f", false, {}});
  const std::string answer = alone.finish(FinishReason::kLength).end();
  EXPECT_THAT(answer, HasSubstr(R"("content":null,"refusal":null,"tool_calls":[{"id":"call_1",)"));
  EXPECT_THAT(answer, HasSubstr(R"("function":{"name":"f","arguments":""}}])"));
}

TEST(OpenAiAnswer, AStreamedChatWithCalls) {
  Written chat(AnswerKind::kChat, streamed());
  const std::string frames = write_calls(chat).end();
  size_t at = 0;
  for (
      const char* delta :
      {R"({"role":"assistant","content":""})", R"({"reasoning_content":"hm\""})",
       R"({"content":"ok"})",
       R"({"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":""}}]})",
       R"({"tool_calls":[{"index":0,"function":{"arguments":"{\"a\": "}}]})",
       R"({"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]})",
       R"({"tool_calls":[{"index":1,"id":"call_2","type":"custom","custom":{"name":"g","input":""}}]})",
       R"({"tool_calls":[{"index":1,"custom":{"input":"x\n"}}]})",
       R"({},"logprobs":null,"finish_reason":"tool_calls")"}) {
    const size_t found = frames.find(std::string("\"delta\":") + delta, at);
    ASSERT_NE(found, std::string::npos) << delta << frames;
    at = found + 1;
  }
  EXPECT_EQ(frames.find("\"delta\":", at), std::string::npos);
}

TEST(OpenAiAnswer, OldWordsAndHiddenTokens) {
  AnswerOptions old;
  old.as_function_call = true;
  old.return_token_ids = true;
  const auto write = [](Written& to) -> Written& {
    return to.hidden({7})
        .part(AnswerCallBegin{0, "call_1", "f", false, {}})
        .part(AnswerArguments{0, "{}", {}})
        .finish(FinishReason::kToolCalls);
  };
  Written whole(AnswerKind::kChat, old);
  const std::string answer = write(whole).end();
  EXPECT_THAT(answer, HasSubstr(R"("function_call":{"name":"f","arguments":"{}"}},)"));
  EXPECT_THAT(answer, HasSubstr(R"("finish_reason":"function_call","token_ids":[7])"));
  old.stream = true;
  Written stream(AnswerKind::kChat, old);
  const std::string frames = write(stream).end();
  EXPECT_THAT(frames, HasSubstr(R"("delta":{"function_call":{"name":"f","arguments":""}})"));
  EXPECT_THAT(frames, HasSubstr(R"("delta":{"function_call":{"arguments":"{}"}})"));
  EXPECT_THAT(frames,
              HasSubstr(R"("delta":{},"logprobs":null,"finish_reason":null,"token_ids":[7])"));
}

TEST(OpenAiAnswer, ThoughtsAreCounted) {
  Written chat(AnswerKind::kChat, {});
  chat.content("x").finish(FinishReason::kStop);
  std::string out;
  chat.writer().end(out, {{10, 4, 8, 3}, {}});
  EXPECT_THAT(out, HasSubstr(R"("completion_tokens_details":{"reasoning_tokens":3})"));
}

}  // namespace
}  // namespace skein::api
