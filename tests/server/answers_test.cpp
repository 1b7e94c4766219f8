#include "server/api/answers.h"

#include <gtest/gtest.h>

#include "server/api/message_stream.h"
#include "server/api/openai_stream.h"
#include "server/json/parse.h"

namespace skein::api {
namespace {

json::Value parsed(std::string_view text) {
  auto result = json::parse(text);
  EXPECT_EQ(result.index(), 0U) << text;
  return result.index() == 0 ? std::get<json::Value>(std::move(result)) : json::Value();
}

// The data of each frame.
std::vector<json::Value> frames(std::string_view text) {
  std::vector<json::Value> found;
  while (!text.empty()) {
    const size_t end = text.find("\n\n");
    EXPECT_NE(end, std::string_view::npos);
    std::string_view frame = text.substr(0, end);
    text.remove_prefix(end + 2);
    if (const size_t line = frame.find('\n'); line != std::string_view::npos) {
      EXPECT_TRUE(frame.starts_with("event: "));
      frame.remove_prefix(line + 1);
    }
    EXPECT_TRUE(frame.starts_with("data: "));
    EXPECT_EQ(frame.find('\n'), std::string_view::npos);
    frame.remove_prefix(6);
    found.push_back(frame == "[DONE]" ? json::Value("[DONE]") : parsed(frame));
  }
  return found;
}

const Identity kIdentity{"chatcmpl-1", 17, "org/\"model\""};
const Usage kUsage{10, 4, 8};
const Logprob kLogprob{"\xc3", -1.5F, {{"a", -0.5F}, {"b", -INFINITY}}, 3};

TEST(Answers, Chat) {
  Answer answer{kIdentity, {{0, "hi\n\xff", FinishReason::kLength}}, kUsage};
  answer.choices[0].logprobs = {kLogprob};
  answer.choices[0].token_ids = {7, 8};
  answer.with_token_ids = true;
  answer.prompt_token_ids = {1};
  answer.timings = Timings{1, 2.0004, 3, 4, 5};
  const json::Value json = parsed(chat_answer(answer));
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["model"], "org/\"model\"");
  const json::Value& choice = json["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], "hi\n\xef\xbf\xbd");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["logprobs"]["content"][0]["bytes"][0], 0xc3);
  EXPECT_EQ(choice["logprobs"]["content"][0]["top_logprobs"][1]["logprob"], -9999.0);
  EXPECT_EQ(choice["token_ids"].dump(), "[7,8]");
  EXPECT_EQ(json["usage"]["total_tokens"], 14);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 8);
  EXPECT_EQ(json["timings"]["prefill_ms"], 2.0);
  EXPECT_EQ(json["prompt_token_ids"].dump(), "[1]");
}

TEST(Answers, CompletionAndMessage) {
  Answer answer{kIdentity, {{0, "a"}, {1, "b"}}, kUsage};
  answer.choices[1].logprobs = {kLogprob, kLogprob};
  const json::Value completion = parsed(completion_answer(answer));
  EXPECT_EQ(completion["choices"][0]["text"], "a");
  EXPECT_TRUE(completion["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(completion["choices"][1]["logprobs"]["text_offset"].dump(), "[3,3]");
  EXPECT_EQ(completion["choices"][1]["logprobs"]["top_logprobs"][0]["a"], -0.5);
  answer.choices[0].stop_sequence = "END";
  const json::Value message = parsed(message_answer(answer));
  EXPECT_EQ(message["content"][0]["text"], "a");
  EXPECT_EQ(message["stop_reason"], "stop_sequence");
  EXPECT_EQ(message["stop_sequence"], "END");
  EXPECT_EQ(message["usage"]["input_tokens"], 2);
  EXPECT_EQ(message["usage"]["cache_read_input_tokens"], 8);
  const std::vector<ModelInfo> models = {{"m/1", 5, 4096}};
  EXPECT_EQ(parsed(model_list_answer(models))["data"][0]["id"], "m/1");
  EXPECT_EQ(count_tokens_answer(3), R"({"input_tokens":3})");
}

TEST(Answers, ChatStream) {
  const OpenAiStream stream(OpenAiStream::Kind::kChat, kIdentity, {.include_usage = true});
  std::string out;
  stream.begin(out, 0);
  stream.text(out, {.index = 0, .text = "h\"i"});
  const std::vector<Logprob> logprobs = {kLogprob};
  const std::span<const Logprob> span = logprobs;
  stream.text(out, {.index = 0, .text = "x", .logprobs = &span});
  stream.progress(out, 3, 10);
  stream.finish(out, 0, FinishReason::kStop, nullptr);
  stream.usage(out, kUsage, nullptr);
  OpenAiStream::done(out);
  const auto chunks = frames(out);
  ASSERT_EQ(chunks.size(), 7U);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(chunks[i]["id"], "chatcmpl-1");
    EXPECT_EQ(chunks[i]["created"], 17);
    EXPECT_EQ(chunks[i]["object"], "chat.completion.chunk");
    EXPECT_EQ(chunks[i]["usage"].is_null(), i < 5);
  }
  EXPECT_EQ(chunks[0]["choices"][0]["delta"].dump(), R"({"role":"assistant","content":""})");
  EXPECT_EQ(chunks[1]["choices"][0]["delta"].dump(), R"({"content":"h\"i"})");
  EXPECT_TRUE(chunks[1]["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(chunks[2]["choices"][0]["logprobs"]["content"].size(), 1U);
  EXPECT_EQ(chunks[4]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(chunks[5]["choices"].size(), 0U);
  EXPECT_EQ(chunks[6], "[DONE]");
}

TEST(Answers, CompletionStream) {
  const OpenAiStream stream(OpenAiStream::Kind::kCompletion, kIdentity,
                            {.continuous_usage = true, .token_ids = true});
  std::string out;
  const std::vector<TokenId> ids = {5};
  const Timings timings;
  stream.text(out,
              {.index = 2, .text = "a", .token_ids = ids, .usage = &kUsage, .timings = &timings});
  OpenAiStream::error(out, deadline_exceeded());
  const auto chunks = frames(out);
  EXPECT_EQ(chunks[0]["choices"][0]["text"], "a");
  EXPECT_EQ(chunks[0]["choices"][0]["index"], 2);
  EXPECT_EQ(chunks[0]["choices"][0]["token_ids"][0], 5);
  EXPECT_EQ(chunks[0]["usage"]["completion_tokens"], 4);
  EXPECT_EQ(chunks[1]["error"]["code"], "deadline_exceeded");
}

TEST(Answers, MessageStream) {
  std::string out;
  MessageStream::begin(out, kIdentity, kUsage);
  MessageStream::text(out, "hi");
  out.append(kPingEvent);
  MessageStream::finish(out, {.index = 0, .text = "", .finish = FinishReason::kLength}, kUsage);
  MessageStream::error(out, queue_full(2));
  std::vector<std::string> types;
  for (const json::Value& event : frames(out)) types.push_back(event["type"]);
  EXPECT_EQ(types, (std::vector<std::string>{"message_start", "content_block_start",
                                             "content_block_delta", "ping", "content_block_stop",
                                             "message_delta", "message_stop", "error"}));
  EXPECT_NE(out.find("\"stop_reason\":\"max_tokens\""), std::string::npos);
}

TEST(Answers, ErrorsOfBothDialects) {
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

}  // namespace
}  // namespace skein::api
