// Bodies of Anthropic's Messages and of OpenAI's Responses, friendly and hostile.
#include <gtest/gtest.h>

#include "server/api/chat_request.h"
#include "server/api/responses_request.h"
#include "server/bodies.h"

namespace skein::api {
namespace {

using testing::expect_all;
using testing::join;
using testing::kHello;
using testing::problem_of;

std::string message(std::string_view fields) {
  return join({R"({"max_tokens":5,)", kHello, ",", fields, "}"});
}
Problem message_problem(const std::string& body) {
  return problem_of(parse_messages_request(body, false));
}

TEST(MessagesRequest, HostileBodies) {
  expect_all(
      {{join({"{", kHello, "}"}), "max_tokens"},
       {R"({"max_tokens":5})", "messages"},
       {R"({"max_tokens":5,"messages":[]})", "messages"},
       {message(R"("max_tokens":0)"), "max_tokens"},
       {R"({"max_tokens":5,"messages":[{"role":"tool","content":"x"}]})", "messages[0].role"},
       {R"({"max_tokens":5,"messages":[{"role":"system","content":[{"type":"image"}]}]})",
        "messages[0].content[0].type"},
       {R"({"max_tokens":5,"messages":[{"role":"system","content":[{"type":"text"}]}]})",
        "messages[0].content[0].text"},
       {R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"image"}]}]})",
        "messages[0].content[0].type"},
       {R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"tool_use"}]}]})",
        "messages[0].content[0].type"},
       {R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"tool_result",)"
        R"("tool_use_id":"u","content":[{"type":"image"}]}]}]})",
        "messages[0].content[0].content[0].type"},
       {R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"tool_result",)"
        R"("tool_use_id":"u","is_error":"yes"}]}]})",
        "messages[0].content[0].is_error"},
       {R"({"max_tokens":5,"messages":[{"role":"assistant","content":[{"type":"tool_use",)"
        R"("id":"u","name":"f","input":"{}"}]}]})",
        "messages[0].content[0].input"},
       {message(R"("system":5)"), "system"},
       {message(R"("system":[{"type":"text","text":"a"},{"type":"text"}])"), "system[1].text"},
       {message(R"("stop_sequences":[""])"), "stop_sequences[0]"},
       {message(R"("thinking":{"type":"maybe"})"), "thinking.type"},
       {message(R"("thinking":{"type":"adaptive","display":"all"})"), "thinking.display"},
       {message(R"("thinking":{"type":"enabled","budget_tokens":0})"), "thinking.budget_tokens"},
       {message(R"("output_config":{"effort":"huge"})"), "output_config.effort"},
       {message(R"("output_config":5)"), "output_config"},
       {message(R"("tools":[{"name":1}])"), "tools[0].name"},
       {message(R"("tools":[{"name":"f","input_schema":[]}])"), "tools[0].input_schema"},
       {message(R"("tool_choice":{"type":"any"})"), "tool_choice"},
       {message(R"("tool_choice":{})"), "tool_choice.type"},
       {message(R"("tools":[{"name":"f"}],"tool_choice":{"type":"tool","name":"g"})"),
        "tool_choice", "tool_not_found"},
       {message(R"("metadata":1)"), "metadata"}},
      message_problem);
  EXPECT_TRUE(parse_messages_request(join({"{", kHello, "}"}), true).ok());
}

TEST(MessagesRequest, ServerToolsAreRefusedByName) {
  for (const char* type :
       {"web_search_20250305", "bash_20250124", "text_editor_20250728", "computer_20250124",
        "code_execution_20250825", "web_fetch_20250910", "memory_20250818"}) {
    const auto problem = message_problem(
        message(join({R"("tools":[{"name":"f"},{"type":")", type, R"(","name":"s"}])"})));
    ASSERT_TRUE(problem.has_value()) << type;
    EXPECT_EQ(problem->status, 400);
    EXPECT_EQ(problem->param, "tools[1].type");
    EXPECT_EQ(problem->code, "invalid_tool");
    EXPECT_NE(problem->message.find(type), std::string::npos) << problem->message;
  }
  const auto long_type = message_problem(
      message(join({R"("tools":[{"type":")", std::string(5000, 'x'), R"(","name":"s"}])"})));
  ASSERT_TRUE(long_type.has_value());
  EXPECT_LT(long_type->message.size(), 300U);
}

TEST(MessagesRequest, BlocksBecomeMessages) {
  auto request = parse_messages_request(R"({"max_tokens":5,"system":[{"type":"text","text":"s"}],
      "stop_sequences":["END"],"messages":[
      {"role":"user","content":"a"},{"role":"user","content":"b"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"x"},
        {"type":"text","text":"t"},{"type":"tool_use","id":"u1","name":"f","input":{"q":1}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"u1","content":"42"},
        {"type":"text","text":"go on"}]},
      {"role":"assistant","content":"Sure"}]})",
                                        false);
  ASSERT_TRUE(request.ok()) << request.error().param;
  EXPECT_EQ(request->messages.dump(),
            R"([{"role":"system","content":"s"},{"role":"user","content":"a\nb"},)"
            R"({"role":"assistant","content":"t","reasoning_content":"hm","tool_calls":[)"
            R"({"type":"function","id":"u1","function":{"name":"f","arguments":"{\"q\":1}"}}]},)"
            R"({"role":"tool","tool_call_id":"u1","content":"42"},)"
            R"({"role":"user","content":"go on"},{"role":"assistant","content":"Sure"}])");
  EXPECT_TRUE(request->continue_final_message);
  EXPECT_FALSE(request->add_generation_prompt);
  EXPECT_EQ(request->options.stop, std::vector<std::string>{"END"});
  EXPECT_EQ(request->call_ids, dialog::IdStyle::kAnthropic);
}

// As Claude Code sends it.
TEST(MessagesRequest, SystemMessagesStayAndBillingGoes) {
  auto request = parse_messages_request(R"({"max_tokens":5,
      "system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; cch=ab12"},
        {"type":"text","text":"You are","cache_control":{"type":"ephemeral"}},
        {"type":"text","text":"a tool."}],
      "betas":["x"],"context_management":{"edits":[]},"container":"c","service_tier":"auto",
      "messages":[{"role":"user","content":[{"type":"text","text":"a",
        "cache_control":{"type":"ephemeral"}}]},
      {"role":"system","content":"later"},
      {"role":"assistant","content":[{"type":"redacted_thinking","data":"zz"},
        {"type":"thinking","thinking":"hm","signature":"not ours"}]},
      {"role":"system","content":[{"type":"text","text":"x-anthropic-billing-header: y"}]},
      {"role":"user","content":[
        {"type":"tool_result","tool_use_id":"u1","is_error":true,
          "content":[{"type":"text","text":"no"},{"type":"text","text":"file"}]},
        {"type":"tool_result","tool_use_id":"u2","is_error":true},
        {"type":"tool_result","tool_use_id":"u3","is_error":true,"content":"Error: x"},
        {"type":"tool_result","tool_use_id":"u4","is_error":false,"content":[]}]}]})",
                                        false);
  ASSERT_TRUE(request.ok()) << request.error().param;
  EXPECT_EQ(request->messages.dump(),
            R"([{"role":"system","content":"You are\na tool."},{"role":"user","content":"a"},)"
            R"({"role":"system","content":"later"},)"
            R"({"role":"assistant","content":"","reasoning_content":"hm"},)"
            R"({"role":"tool","tool_call_id":"u1","content":"Error: no\nfile"},)"
            R"({"role":"tool","tool_call_id":"u2","content":"Error"},)"
            R"({"role":"tool","tool_call_id":"u3","content":"Error: x"},)"
            R"({"role":"tool","tool_call_id":"u4","content":""}])");
  EXPECT_TRUE(request->add_generation_prompt);
}

TEST(MessagesRequest, ACallIsNotTheBeginningOfAnAnswer) {
  auto request = parse_messages_request(R"({"max_tokens":5,"messages":[
      {"role":"user","content":"a"},{"role":"assistant","content":[
        {"type":"tool_use","id":"u","name":"f","input":{}}]}]})",
                                        false);
  ASSERT_TRUE(request.ok());
  EXPECT_FALSE(request->continue_final_message);
  EXPECT_TRUE(request->add_generation_prompt);
}

TEST(MessagesRequest, ToolsAndThoughts) {
  auto request = parse_messages_request(
      message(R"("tools":[{"type":"custom","name":"f","description":"d","strict":true,
        "input_schema":{"type":"object","properties":{"a":{"type":"string"}}},
        "cache_control":{"type":"ephemeral"},"eager_input_streaming":true},{"name":"g"}],
        "tool_choice":{"type":"tool","name":"g","disable_parallel_tool_use":true},
        "thinking":{"type":"enabled","budget_tokens":2000,"display":"omitted"},
        "output_config":{"effort":"max"})"),
      false);
  ASSERT_TRUE(request.ok()) << request.error().param;
  EXPECT_EQ(request->tools.dump(),
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":)"
            R"({"type":"object","properties":{"a":{"type":"string"}}},"strict":true}},)"
            R"({"type":"function","function":{"name":"g","parameters":{}}}])");
  EXPECT_EQ(request->tool_choice, ToolChoice::kNamed);
  EXPECT_EQ(request->tool_names, std::vector<std::string>{"g"});
  EXPECT_FALSE(request->parallel_tool_calls);
  EXPECT_EQ(request->reasoning_budget, 2000U);
  EXPECT_FALSE(request->options.include_reasoning);
  EXPECT_EQ(request->template_kwargs.dump(),
            R"({"enable_thinking":true,"reasoning_effort":"xhigh"})");
  auto any = parse_messages_request(message(R"("tools":[{"name":"f"}],"tool_choice":{"type":"any"},
        "thinking":{"type":"disabled"},"output_config":{"effort":"low"})"),
                                    false);
  ASSERT_TRUE(any.ok());
  EXPECT_EQ(any->tool_choice, ToolChoice::kRequired);
  EXPECT_TRUE(any->parallel_tool_calls);
  EXPECT_EQ(any->template_kwargs["enable_thinking"], false);
}

std::string response(std::string_view fields) {
  return join({R"({"input":"hi")", fields.empty() ? "" : ",", fields, "}"});
}
std::string items(std::string_view list) {
  return join({R"({"input":[)", list, "]}"});
}
Problem response_problem(const std::string& body) {
  return problem_of(parse_responses_request(body, {}));
}

TEST(ResponsesRequest, HostileItems) {
  std::string many;
  for (size_t i = 0; i <= kMaxMessages; ++i) many += R"({"role":"user","content":""},)";
  many.pop_back();
  expect_all(
      {{"", "", "invalid_json"},
       {"[]", ""},
       {"{}", "input"},
       {R"({"input":5})", "input"},
       {R"({"input":[]})", "input"},
       {items(many), "input"},
       {items("5"), "input[0]"},
       {items("{}"), "input[0].type"},
       {items(R"({"type":5})"), "input[0].type"},
       {items(R"({"type":"item_reference","id":"x"})"), "input[0].type"},
       {items(R"({"id":"msg_1"})"), "input[0].type"},
       {items(R"({"type":"web_search_call"})"), "input[0].type"},
       {items(R"({"type":"local_shell_call"})"), "input[0].type"},
       {items(join({R"({"type":")", std::string(5000, 'x'), R"("})"})), "input[0].type"},
       {items(R"({"type":"message","content":"x"})"), "input[0].role"},
       {items(R"({"role":"tool","content":"x"})"), "input[0].role"},
       {items(R"({"role":"user"})"), "input[0].content"},
       {items(R"({"role":"user","content":{}})"), "input[0].content"},
       {items(R"({"role":"user","content":[{"type":"input_image","image_url":"http://x"}]})"),
        "input[0].content[0].type"},
       {items(R"({"role":"user","content":[{"type":"input_text"}]})"), "input[0].content[0].text"},
       {items(R"({"type":"function_call","name":"f","arguments":"{}"})"), "input[0].call_id"},
       {items(R"({"type":"function_call","call_id":"c","arguments":"{}"})"), "input[0].name"},
       {items(R"({"type":"function_call","call_id":"c","name":"f","arguments":{}})"),
        "input[0].arguments"},
       {items(R"({"type":"function_call_output","call_id":"c"})"), "input[0].output"},
       {items(R"({"type":"function_call_output","call_id":"c","output":[{"type":"input_file"}]})"),
        "input[0].output[0].type"},
       {items(R"({"type":"custom_tool_call","call_id":"c","name":"f","input":1})"),
        "input[0].input"},
       {items(R"({"type":"reasoning","content":5})"), "input[0].content"}},
      response_problem);
}

// An empty thought is no message, and a form is told to the first one.
TEST(ResponsesRequest, ItemsThatSayNothingAreNoConversation) {
  for (const std::string_view more :
       {"", R"(,"text":{"format":{"type":"json_object"}},"describe_form":true)"}) {
    const Problem problem = problem_of(
        parse_responses_request(join({R"({"input":[{"type":"reasoning"}])", more, "}"}), {}));
    ASSERT_TRUE(problem) << more;
    EXPECT_EQ(problem->param, "input");
  }
}

TEST(ResponsesRequest, HostileFields) {
  expect_all(
      {{response(R"("previous_response_id":"resp_1")"), "previous_response_id"},
       {response(R"("conversation":"conv_1")"), "conversation"},
       {response(R"("prompt":{"id":"p"})"), "prompt"},
       {response(R"("background":true)"), "background"},
       {response(R"("truncation":"auto")"), "truncation"},
       {response(R"("instructions":5)"), "instructions"},
       {response(R"("max_output_tokens":0)"), "max_output_tokens"},
       {response(R"("temperature":9)"), "temperature"},
       {response(R"("top_logprobs":21)"), "top_logprobs"},
       {response(R"("include":"x")"), "include"},
       {response(R"("include":[5])"), "include[0]"},
       {response(R"("metadata":{"a":5})"), "metadata"},
       {response(R"("store":"no")"), "store"},
       {response(R"("stream_options":{})"), "stream_options"},
       {response(R"("reasoning":{"effort":"huge"})"), "reasoning.effort"},
       {response(R"("reasoning":"high")"), "reasoning"},
       {response(R"("text":5)"), "text"},
       {response(R"("text":{"verbosity":"loud"})"), "text.verbosity"},
       {response(R"("text":{"format":{}})"), "text.format.type"},
       {response(R"("text":{"format":{"type":"json_schema","name":"x"}})"),
        "text.format.json_schema"},
       {response(R"("text":{"format":{"type":"grammar"}})"), "text.format.type", "not_supported",
        501},
       {response(R"("tools":[{}])"), "tools[0].type"},
       {response(R"("tools":[{"type":"function"}])"), "tools[0].name"},
       {response(R"("tools":[{"type":"function","name":"a b"}])"), "tools[0].name", "invalid_tool"},
       {response(R"("tool_choice":"required")"), "tool_choice"},
       {response(R"("tool_choice":"required","tools":[{"type":"web_search"}])"), "tool_choice"},
       {response(R"("tool_choice":{"type":"web_search"},"tools":[{"type":"web_search"}])"),
        "tool_choice.type"},
       {response(R"("tools":[{"type":"function","name":"f"}],)"
                 R"("tool_choice":{"type":"function","name":"g"})"),
        "tool_choice", "tool_not_found"}},
      response_problem);
}

TEST(ResponsesRequest, ItemsBecomeMessages) {
  auto request = parse_responses_request(R"({"instructions":"s","input":[
      {"type":"message","role":"developer","content":[{"type":"input_text","text":"d"}]},
      {"role":"user","content":"a"},
      {"type":"message","role":"user","content":[{"type":"input_text","text":"b"},
        {"type":"input_text","text":"c"}]},
      {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"short"}],
        "content":[{"type":"reasoning_text","text":"long"}],"encrypted_content":null},
      {"type":"message","id":"msg_1","status":"completed","role":"assistant",
        "content":[{"type":"output_text","text":"t","annotations":[]}]},
      {"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{\"q\":1}"},
      {"type":"custom_tool_call","call_id":"c2","name":"patch","input":"*** \"x\""},
      {"type":"function_call_output","call_id":"c1","output":"42"},
      {"type":"custom_tool_call_output","call_id":"c2",
        "output":[{"type":"input_text","text":"o"},{"type":"input_text","text":"k"}]},
      {"type":"reasoning","id":"rs_2","summary":[{"type":"summary_text","text":"only"}]},
      {"type":"function_call","call_id":"c3","name":"f","arguments":"not JSON"},
      {"role":"assistant","content":[{"type":"refusal","refusal":"no"}]},
      {"role":"user","content":"go on"}]})",
                                         {});
  ASSERT_TRUE(request.ok()) << request.error().param << request.error().message;
  EXPECT_EQ(
      request->messages.dump(),
      R"([{"role":"system","content":"s"},{"role":"system","content":"d"},)"
      R"({"role":"user","content":"a\nb\nc"},)"
      R"({"role":"assistant","content":"t","reasoning_content":"long","tool_calls":[)"
      R"({"type":"function","id":"c1","function":{"name":"f","arguments":"{\"q\":1}"}},)"
      R"({"type":"function","id":"c2","function":{"name":"patch","arguments":"{\"input\":\"*** \\\"x\\\"\"}"}}]},)"
      R"({"role":"tool","tool_call_id":"c1","content":"42"},)"
      R"({"role":"tool","tool_call_id":"c2","content":"o\nk"},)"
      R"({"role":"assistant","content":null,"reasoning_content":"only","tool_calls":[)"
      R"({"type":"function","id":"c3","function":{"name":"f","arguments":"not JSON"}}]},)"
      R"({"role":"assistant","content":"no"},{"role":"user","content":"go on"}])");
  EXPECT_TRUE(request->add_generation_prompt);
  EXPECT_EQ(parse_responses_request(response(""), {})->messages.dump(),
            R"([{"role":"user","content":"hi"}])");
}

TEST(ResponsesRequest, ThoughtsComeBackAsTheyWere) {
  const auto thought_in = [](std::string_view fields) {
    auto request = parse_responses_request(
        items(join({R"({"type":"reasoning",)", fields, R"(},{"role":"user","content":"x"})"})), {});
    EXPECT_TRUE(request.ok());
    return request->messages[0].value("reasoning_content", "");
  };
  EXPECT_EQ(thought_in(R"("summary":[],"encrypted_content":"skein:hm")"), "hm");
  EXPECT_EQ(thought_in(R"("encrypted_content":"skein:hm",)"
                       R"("content":[{"type":"reasoning_text","text":"I"}])"),
            "I");
  EXPECT_EQ(thought_in(R"("encrypted_content":"gAAAAB","summary":[)"
                       R"({"type":"summary_text","text":"s"}])"),
            "s")
      << "another server's";
  EXPECT_EQ(thought_in(R"("encrypted_content":"gAAAAB","summary":[])"), "");
}

TEST(ResponsesRequest, EveryFieldArrives) {
  auto request = parse_responses_request(
      response(R"("model":"m","max_output_tokens":9,"temperature":0.5,"top_p":0.25,"stream":true,
        "stream_options":{"include_obfuscation":false},"top_logprobs":3,"n":5,
        "include":["reasoning.encrypted_content"],"store":true,"user":"u","background":false,
        "truncation":"disabled","service_tier":"flex","prompt_cache_key":"k",
        "client_metadata":{"a":"b"},"metadata":{"who":"me"},"parallel_tool_calls":false,
        "reasoning":{"effort":"high","summary":"auto"},"text":{"verbosity":"low","format":
          {"type":"json_schema","name":"x","strict":true,"schema":{"type":"object"}}},
        "tools":[{"type":"web_search"},{"type":"function","name":"f","strict":false,
          "parameters":{"type":"object"}},{"type":"namespace","name":"n","tools":[]},
          {"type":"custom","name":"c","format":{"type":"text"}}],
        "tool_choice":{"type":"allowed_tools","mode":"required","tools":[
          {"type":"function","name":"f"}]})"),
      {});
  ASSERT_TRUE(request.ok()) << request.error().param;
  const AnswerOptions& options = request->options;
  EXPECT_EQ(options.model, "m");
  EXPECT_EQ(options.max_tokens, 9U);
  EXPECT_EQ(options.n, 1U);
  EXPECT_TRUE(options.stream);
  EXPECT_TRUE(options.sampling.logprobs);
  EXPECT_EQ(options.sampling.top_logprobs, 3U);
  EXPECT_TRUE(options.seal_reasoning);
  ASSERT_TRUE(options.form);
  EXPECT_EQ(options.form->field, "text.format.schema");
  EXPECT_TRUE(options.form->spec.strict);
  EXPECT_EQ(request->tools.size(), 2U) << "those of the server's own are left out";
  EXPECT_EQ(request->custom_tools, std::vector<std::string>{"c"});
  EXPECT_EQ(request->tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(request->tool_names, std::vector<std::string>{"f"});
  EXPECT_FALSE(request->parallel_tool_calls);
  EXPECT_EQ(request->template_kwargs["reasoning_effort"], "high");
  const json::Value echo = json::Value::parse("{" + *options.echo + "}");
  EXPECT_EQ(echo["metadata"]["who"], "me");
  EXPECT_EQ(echo["max_output_tokens"], 9);
  EXPECT_EQ(echo["tools"].size(), 2U);
  EXPECT_EQ(echo["tool_choice"]["mode"], "required");
  EXPECT_EQ(echo["text"]["format"]["name"], "x");
  EXPECT_EQ(echo["reasoning"]["effort"], "high");
  EXPECT_EQ(echo["parallel_tool_calls"], false);
  EXPECT_EQ(echo["service_tier"], "default");
}

TEST(ResponsesRequest, WhatIsNotSaidIsEchoedAsItIsMeant) {
  auto request = parse_responses_request(response(R"("instructions":"é\n\"")"), {});
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(json::Value::parse("{" + *request->options.echo + "}").dump(),
            R"({"instructions":"é\n\"","max_output_tokens":null,"max_tool_calls":null,)"
            R"("metadata":{},"parallel_tool_calls":true,"previous_response_id":null,)"
            R"("prompt_cache_key":null,"reasoning":{"effort":null,"summary":null},)"
            R"("safety_identifier":null,"service_tier":"default",)"
            R"("text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],)"
            R"("top_logprobs":0,"truncation":"disabled","user":null})");
  EXPECT_EQ(parse_responses_request(response(""), {.counting = true})->options.echo, nullptr);
}

}  // namespace
}  // namespace skein::api
