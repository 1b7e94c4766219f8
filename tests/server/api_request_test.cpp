// Bodies of clients, friendly and hostile.
#include <gtest/gtest.h>

#include "server/api/chat_request.h"
#include "server/api/completion_request.h"
#include "server/api/text_requests.h"
#include "server/bodies.h"

namespace skein::api {
namespace {

using testing::chat;
using testing::expect_all;
using testing::Hostile;
using testing::join;
using testing::kHello;
using testing::problem_of;

std::string completion(std::string_view fields) {
  return join({R"({"prompt":"hi")", fields.empty() ? "" : ",", fields, "}"});
}

std::string repeated(const std::string& item, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) out += ",";
    out += item;
  }
  return out;
}

TEST(ChatRequest, HostileBodies) {
  const std::string many_messages = repeated(R"({"role":"user","content":""})", kMaxMessages + 1);
  const std::vector<Hostile> bodies = {
      {"", "", "invalid_json"},
      {"{", "", "invalid_json"},
      {"{} x", "", "invalid_json"},
      {"{'a':1}", "", "invalid_json"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", "", "invalid_json"},
      {std::string("{\"a\":\"\0\"}", 9), "", "invalid_json"},
      {R"({"a":"\ud800"})", "", "invalid_json"},
      {chat(R"("temperature":NaN)"), "", "invalid_json"},
      {chat(R"("temperature":Infinity)"), "", "invalid_json"},
      {chat(R"("temperature":-Infinity)"), "", "invalid_json"},
      {chat(R"("temperature":1e999)"), "", "invalid_json"},
      {chat(
           join({R"("x":)", std::string(json::kMaxDepth, '['), std::string(json::kMaxDepth, ']')})),
       "", "invalid_json"},
      {std::string(1 << 20, '['), "", "invalid_json"},
      {join({"[", repeated("0", json::kMaxValues + 1), "]"}), "", "invalid_json"},
      {"[]", ""},
      {"null", ""},
      {"\"text\"", ""},
      {"{}", "messages"},
      {R"({"messages":null})", "messages"},
      {R"({"messages":[]})", "messages"},
      {R"({"messages":{}})", "messages"},
      {R"({"messages":"hi"})", "messages"},
      {join({"{\"messages\":[", many_messages, "]}"}), "messages"},
      {R"({"messages":[1]})", "messages[0]"},
      {R"({"messages":[null]})", "messages[0]"},
      {R"({"messages":[{}]})", "messages[0].role"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content"},
      {R"({"messages":[{"role":"root","content":""}]})", "messages[0].role"},
      {R"({"messages":[{"role":7,"content":""}]})", "messages[0].role"},
      {R"({"messages":[{"role":"user","content":""},{"role":"user","content":7}]})",
       "messages[1].content"},
      {R"({"messages":[{"role":"user","content":[1]}]})", "messages[0].content[0]"},
      {R"({"messages":[{"role":"user","content":[{"text":"x"}]}]})", "messages[0].content[0].type"},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})",
       "messages[0].content[0].text"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://10.0.0.1/"}}]}]})",
       "messages[0].content[0].type"},
      {R"({"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}]})",
       "messages[0].content[0].type"},
      {R"({"messages":[{"role":"assistant","content":null}]})", "messages[0].content"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":1}}]}]})",
       "messages[0].tool_calls[0].function.name"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{}]}]})",
       "messages[0].tool_calls[0].function"},
  };
  EXPECT_GE(bodies.size(), 35U);
  expect_all(bodies, [](const std::string& body) { return problem_of(parse_chat_request(body)); });
}

TEST(ChatRequest, HostileFields) {
  std::string biases;
  for (int i = 0; i < 1025; ++i) biases += fmt::format("{}\"{}\":0", i > 0 ? "," : "", i);
  const std::vector<Hostile> bodies = {
      {chat(R"("temperature":-0.1)"), "temperature"},
      {chat(R"("temperature":5.1)"), "temperature"},
      {chat(R"("temperature":"1")"), "temperature"},
      {chat(R"("temperature":true)"), "temperature"},
      {chat(R"("top_p":1.5)"), "top_p"},
      {chat(R"("top_k":-2)"), "top_k"},
      {chat(R"("top_k":1.5)"), "top_k"},
      {chat(R"("min_p":2)"), "min_p"},
      {chat(R"("repetition_penalty":0)"), "repetition_penalty"},
      {chat(R"("repetition_penalty":1e-38)"), "repetition_penalty"},
      {chat(R"("typical_p":1e-60)"), "typical_p"},
      {chat(R"("presence_penalty":2.5)"), "presence_penalty"},
      {chat(R"("frequency_penalty":-3)"), "frequency_penalty"},
      {chat(R"("n":0)"), "n"},
      {chat(R"("n":129)"), "n"},
      {chat(R"("n":1e18)"), "n"},
      {chat(R"("n":true)"), "n"},
      {chat(R"("max_tokens":0)"), "max_tokens"},
      {chat(R"("max_tokens":-2)"), "max_tokens"},
      {chat(R"("max_completion_tokens":99999999999)"), "max_completion_tokens"},
      {chat(R"("max_tokens":18446744073709551615)"), "max_tokens"},
      {chat(R"("min_tokens":5,"max_tokens":4)"), "min_tokens"},
      {chat(join({R"("stop":[)", repeated("\"x\"", 17), "]"})), "stop"},
      {chat(R"("stop":["a",""])"), "stop[1]"},
      {chat(R"("stop":[1])"), "stop[0]"},
      {chat(R"("stop":{})"), "stop"},
      {chat(join({"\"stop\":\"", std::string(1025, 'x'), "\""})), "stop"},
      {chat(R"("stop_token_ids":[-1])"), "stop_token_ids[0]"},
      {chat(R"("allowed_token_ids":[])"), "allowed_token_ids"},
      {chat(R"("allowed_token_ids":[5,-1])"), "allowed_token_ids[1]"},
      {chat(join({R"("allowed_token_ids":[)", repeated("5", 1025), "]"})), "allowed_token_ids"},
      {chat(R"("logprobs":1)"), "logprobs"},
      {chat(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs"},
      {chat(R"("top_logprobs":2)"), "top_logprobs"},
      {chat(join({"\"logit_bias\":{", biases, "}"})), "logit_bias"},
      {chat(R"("logit_bias":{"x":1})"), "logit_bias"},
      {chat(R"("logit_bias":{"-1":1})"), "logit_bias"},
      {chat(R"("logit_bias":{"1":101})"), "logit_bias"},
      {chat(R"("logit_bias":[[1,1]])"), "logit_bias"},
      {chat(R"("seed":9223372036854775808)"), "seed"},
      {chat(R"("seed":1.5)"), "seed"},
      {chat(R"("stream":"yes")"), "stream"},
      {chat(R"("stream_options":{"include_usage":true})"), "stream_options"},
      {chat(R"("stream":true,"stream_options":{"include_usage":1})"),
       "stream_options.include_usage"},
      {chat(R"("tools":[{}])"), "tools[0].type"},
      {chat(R"("tools":[{"type":"function"}])"), "tools[0].function"},
      {chat(R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])"),
       "tools[0].function.parameters"},
      {chat(R"("tool_choice":"maybe")"), "tool_choice"},
      {chat(R"("tool_choice":"required")"), "tool_choice"},
      {chat(R"("response_format":{"type":"xml"})"), "response_format.type"},
      {chat(R"("response_format":"json")"), "response_format"},
      {chat(R"("chat_template":"{{ 1 }}")"), "chat_template"},
      {chat(R"("chat_template_kwargs":{"messages":1})"), "chat_template_kwargs"},
      {chat(R"("chat_template_kwargs":{"enable_thinking":[1]})"),
       "chat_template_kwargs.enable_thinking"},
      {chat(R"("continue_final_message":true)"), "continue_final_message"},
      {chat(R"("reasoning_effort":"max")"), "reasoning_effort"},
      {chat(R"("timeout":0)"), "timeout"},
      {chat(R"("model":7)"), "model"},
      {chat(join({"\"model\":\"", std::string(600, 'm'), "\""})), "model"},
  };
  EXPECT_GE(bodies.size(), 50U);
  expect_all(bodies, [](const std::string& body) { return problem_of(parse_chat_request(body)); });
}

TEST(ChatRequest, InvalidJsonSaysWhere) {
  EXPECT_NE(parse_chat_request("").error().message.find("at byte 0"), std::string::npos);
  EXPECT_NE(parse_chat_request("{\"a\":tru}").error().message.find("at byte 8"), std::string::npos)
      << parse_chat_request("{\"a\":tru}").error().message;
}

TEST(ChatRequest, Defaults) {
  auto request = parse_chat_request(chat(""));
  ASSERT_TRUE(request.ok());
  const AnswerOptions& generation = request->options;
  EXPECT_FALSE(generation.max_tokens || generation.temperature || generation.top_p);
  EXPECT_EQ(generation.n, 1U);
  EXPECT_FALSE(generation.stream);
  EXPECT_TRUE(request->tools.is_null());
  EXPECT_TRUE(request->add_generation_prompt);
  SamplingParams defaults;
  defaults.temperature = 0.5F;
  defaults.top_p = 0.9F;
  defaults.min_p = 0.1F;
  defaults.top_k = 7;
  defaults.typical_p = 0.8F;
  defaults.repetition_penalty = 1.5F;
  defaults.stop_ids = {3, 1};
  const SamplingParams params = generation.sampling_params(defaults, 77);
  EXPECT_EQ(params.temperature, 0.5F);
  EXPECT_EQ(params.top_p, 0.9F);
  EXPECT_EQ(params.min_p, 0.1F);
  EXPECT_EQ(params.top_k, 7U);
  EXPECT_EQ(params.typical_p, 0.8F);
  EXPECT_EQ(params.repetition_penalty, 1.5F);
  EXPECT_EQ(params.seed, 77U);
  EXPECT_EQ(params.stop_ids, (std::vector<TokenId>{1, 3}));
}

TEST(ChatRequest, EveryFieldArrives) {
  auto request = parse_chat_request(chat(
      R"("model":"m","temperature":0,"top_p":0,"top_k":-1,"min_p":0.1,"n":3.0,"seed":-5,
      "max_tokens":9,"max_completion_tokens":7,"stop":"END","stop_token_ids":[9,3,9],"allowed_token_ids":[5,9],
      "presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.1,"logit_bias":{"5":-100},
      "logprobs":true,"top_logprobs":2,"stream":true,"ignore_eos":true,"min_tokens":2,
      "stream_options":{"include_usage":true,"continuous_usage_stats":true},"timeout":1.5,
      "return_token_ids":true,"chat_template_kwargs":{"enable_thinking":false},"user":null,
      "reasoning_effort":"low","priority":0,"service_tier":"priority","speculation":"ngram","unknown":[[1]])"));
  ASSERT_TRUE(request.ok()) << request.error().param;
  const AnswerOptions& g = request->options;
  EXPECT_EQ(g.model, "m");
  EXPECT_EQ(g.max_tokens, 7U);
  EXPECT_EQ(g.n, 3U);
  EXPECT_EQ(g.stop, std::vector<std::string>{"END"});
  EXPECT_TRUE(g.stream && g.include_usage && g.continuous_usage && g.return_token_ids);
  EXPECT_EQ(g.timeout_us, 1'500'000);
  EXPECT_EQ(g.speculation, Speculation::kNgram);
  SamplingParams defaults;
  defaults.stop_ids = {4};
  const SamplingParams params = g.sampling_params(defaults, 0);
  EXPECT_EQ(params.temperature, 0);
  EXPECT_GT(params.top_p, 0) << "0 is the likeliest token alone";
  EXPECT_EQ(params.top_k, 0U);
  EXPECT_EQ(params.seed, static_cast<uint64_t>(-5));
  EXPECT_EQ(params.stop_ids, (std::vector<TokenId>{3, 4, 9}));
  EXPECT_EQ(params.top_logprobs, 2U);
  EXPECT_EQ(params.logit_bias[0], (std::pair<TokenId, float>(5, -100)));
  EXPECT_EQ(params.allowed, (std::vector<TokenId>{5, 9}));
  EXPECT_EQ(request->template_kwargs.dump(),
            R"({"enable_thinking":false,"reasoning_effort":"low"})");
}

TEST(ChatRequest, MessagesBecomeWhatTemplatesWant) {
  auto request = parse_chat_request(R"({"messages":[
      {"role":"developer","content":"d"},
      {"role":"user","name":"bob","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
        "function":{"name":"f","arguments":"{\"z\":1,\"a\":2}"}}]},
      {"role":"tool","tool_call_id":"c1","content":"ok"}],
      "tools":[{"type":"function","function":{"name":"f","parameters":{"z":1,"a":2}}}],
      "tool_choice":"none","response_format":{"type":"text"}})");
  ASSERT_TRUE(request.ok()) << request.error().param;
  EXPECT_EQ(request->messages.dump(),
            R"([{"role":"system","content":"d"},{"role":"user","content":"a\nb","name":"bob"},)"
            R"({"role":"assistant","content":null,"tool_calls":[{"type":"function",)"
            R"("function":{"name":"f","arguments":"{\"z\":1,\"a\":2}"},"id":"c1"}]},)"
            R"({"role":"tool","content":"ok","tool_call_id":"c1"}])");
  EXPECT_EQ(request->tool_choice, ToolChoice::kNone);
  EXPECT_EQ(request->conversation().context["tools"][0]["function"]["name"], "f");
}

TEST(CompletionRequest, HostileBodies) {
  expect_all({{"{}", "prompt"},
              {R"({"prompt":[]})", "prompt"},
              {R"({"prompt":5})", "prompt"},
              {R"({"prompt":["a",1]})", "prompt[1]"},
              {R"({"prompt":[1,"a"]})", "prompt[1]"},
              {R"({"prompt":[1,-1]})", "prompt[1]"},
              {R"({"prompt":[[1],[]]})", "prompt[1]"},
              {R"({"prompt":[[1],[2.5]]})", "prompt[1][0]"},
              {R"({"prompt":[{}]})", "prompt[0]"},
              {join({"{\"prompt\":[", repeated("\"x\"", 129), "]}"}), "prompt"},
              {join({"{\"n\":128,\"prompt\":[", repeated("\"x\"", 5), "]}"}), "n"},
              {completion(R"("logprobs":21)"), "logprobs"},
              {completion(R"("speculation":"on")"), "speculation"},
              {completion(R"("speculation":true)"), "speculation"},
              {completion(R"("logprobs":true)"), "logprobs"},
              {completion(R"("echo":1)"), "echo"},
              {completion(R"("min_tokens":17)"), "min_tokens"},
              {completion(R"("suffix":"x")"), "suffix", "not_supported", 501}},
             [](const std::string& body) { return problem_of(parse_completion_request(body)); });
}

TEST(CompletionRequest, PromptsInAllForms) {
  EXPECT_EQ(parse_completion_request(completion(""))->options.max_tokens, 16U);
  EXPECT_EQ(parse_completion_request(R"({"prompt":["a","b"]})")->prompts.size(), 2U);
  EXPECT_EQ(std::get<1>(parse_completion_request(R"({"prompt":[1,2.0]})")->prompts[0]),
            (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(std::get<1>(parse_completion_request(R"({"prompt":[[1],[2,3]]})")->prompts[1]),
            (std::vector<TokenId>{2, 3}));
  auto logprobs = parse_completion_request(completion(R"("logprobs":0,"suffix":"")"));
  EXPECT_TRUE(logprobs->options.sampling.logprobs);
}

TEST(TextRequests, BothNames) {
  auto vllm = parse_tokenize_request(R"({"prompt":"a"})");
  EXPECT_TRUE(vllm.ok() && vllm->add_special && vllm->text == "a");
  auto llama = parse_tokenize_request(R"({"content":"a","with_pieces":true})");
  EXPECT_TRUE(llama.ok() && !llama->add_special && llama->with_pieces);
  EXPECT_TRUE(parse_tokenize_request(chat(""))->chat.has_value());
  EXPECT_EQ(parse_tokenize_request("{}").error().param, "prompt");
  EXPECT_EQ(parse_detokenize_request(R"({"tokens":[1,"a"]})").error().param, "tokens[1]");
  EXPECT_EQ(parse_detokenize_request("{}").error().param, "tokens");
  EXPECT_EQ(parse_apply_template_request("{}").error().param, "messages");
  EXPECT_EQ(tokenize_answer({1, 2}, 9, nullptr), R"({"tokens":[1,2],"count":2,"max_model_len":9})");
}

}  // namespace
}  // namespace skein::api
