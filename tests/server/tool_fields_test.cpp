// Tools and what is said about calling them, in everybody's words.
#include "server/api/tool_fields.h"

#include <gtest/gtest.h>

#include "server/api/responses_request.h"

namespace skein::api {
namespace {

Parsed<ChatRequest> ask(const std::string& fields) {
  return parse_chat_request(R"({"messages":[{"role":"user","content":"x"}],)" + fields + "}");
}

const std::string kTwo =
    R"("tools":[{"type":"function","function":{"name":"f","description":"d","strict":true,)"
    R"("parameters":{"type":"object","properties":{"b":{},"a":{}}}}},)"
    R"({"type":"custom","custom":{"name":"g","format":{"type":"grammar",)"
    R"("grammar":{"syntax":"regex","definition":"a|b"}}}}])";

TEST(ToolFields, ToolsKeepTheirOrderAndTheirWords) {
  auto request = ask(kTwo);
  ASSERT_TRUE(request.ok()) << request.error().param;
  EXPECT_EQ(request->tools[0].dump(),
            R"({"type":"function","function":{"name":"f","description":"d",)"
            R"("parameters":{"type":"object","properties":{"b":{},"a":{}}},"strict":true}})");
  EXPECT_EQ(request->tools[1]["function"]["parameters"].dump(),
            R"({"type":"object","properties":{"input":{"type":"string","description":)"
            R"("A text that matches this regular expression:\na|b"}},)"
            R"("required":["input"],"additionalProperties":false})");
  ASSERT_EQ(request->custom_grammars.size(), 1U);
  EXPECT_EQ(request->custom_grammars[0].regex, "a|b");
  EXPECT_EQ(request->custom_grammars[0].field, "tools[1].custom.format.grammar.definition");
  EXPECT_EQ(request->custom_tools, std::vector<std::string>{"g"});
  EXPECT_EQ(request->tool_choice, ToolChoice::kAuto);
  EXPECT_TRUE(request->parallel_tool_calls);
  EXPECT_TRUE(ask(R"("tools":[])")->tools.is_null());
}

// Responses leaves some out; those that are taken keep their numbers.
TEST(ToolFields, NumbersAreThoseOfTheRequest) {
  auto request = parse_responses_request(
      R"({"input":"x","tools":[{"type":"web_search"},{"type":"function","name":"f"},)"
      R"({"type":"mcp"},{"type":"custom","name":"g"}]})",
      {});
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->tools.size(), 2U);
  EXPECT_EQ(request->tool_places, (std::vector<size_t>{1, 3}));
}

TEST(ToolFields, EverySpellingOfAChoice) {
  const auto with = [](const std::string& choice) {
    auto request = ask(kTwo + R"(,"tool_choice":)" + choice);
    EXPECT_TRUE(request.ok()) << choice << ": " << request.error().message;
    return std::move(*request);
  };
  EXPECT_EQ(with("\"none\"").tool_choice, ToolChoice::kNone);
  EXPECT_EQ(with("\"required\"").tool_choice, ToolChoice::kRequired);
  for (const char* named :
       {R"({"type":"function","function":{"name":"f"}})", R"({"type":"function","name":"f"})"}) {
    EXPECT_EQ(with(named).tool_choice, ToolChoice::kNamed);
    EXPECT_EQ(with(named).tool_names, std::vector<std::string>{"f"});
  }
  EXPECT_EQ(with(R"({"type":"custom","custom":{"name":"g"}})").tool_names,
            std::vector<std::string>{"g"});
  const ChatRequest some =
      with(R"({"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[)"
           R"({"type":"function","function":{"name":"f"}},{"type":"custom","name":"g"}]}})");
  EXPECT_EQ(some.tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(some.tool_names, (std::vector<std::string>{"f", "g"}));
  EXPECT_EQ(
      with(R"({"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]})")
          .tool_choice,
      ToolChoice::kAuto);
}

TEST(ToolFields, OldFunctionsAreTools) {
  auto request = ask(R"("functions":[{"name":"f"}],"function_call":{"name":"f"})");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->tools.size(), 1U);
  EXPECT_EQ(request->tool_choice, ToolChoice::kNamed);
  EXPECT_TRUE(request->options.as_function_call);
}

TEST(ToolFields, HistoriesKeepArgumentsAsText) {
  auto request =
      parse_chat_request(R"({"messages":[{"role":"assistant","reasoning":"hm","tool_calls":[
      {"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\": 1, no"}},
      {"id":"2","type":"function","function":{"name":"f","arguments":{"z":1,"a":2}}},
      {"id":"3","type":"custom","custom":{"name":"g","input":"\"x\"\n"}}]},
      {"role":"assistant","content":"c","function_call":{"name":"f","arguments":"{}"}},
      {"role":"function","name":"f","content":"r"}]})");
  ASSERT_TRUE(request.ok()) << request.error().param;
  const json::Value& calls = request->messages[0]["tool_calls"];
  EXPECT_EQ(calls[0]["function"]["arguments"], "{\"a\": 1, no");
  EXPECT_EQ(calls[1]["function"]["arguments"], R"({"z":1,"a":2})");
  EXPECT_EQ(calls[2]["function"]["arguments"], R"({"input":"\"x\"\n"})");
  EXPECT_EQ(request->messages[0]["reasoning_content"], "hm");
  EXPECT_EQ(request->messages[1]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(request->messages[2]["role"], "tool");
  EXPECT_EQ(request->messages[2]["tool_call_id"], "f");
}

TEST(ToolFields, Reasoning) {
  auto request =
      ask(R"("thinking":{"type":"enabled","budget_tokens":9},"include_reasoning":false)");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->reasoning_budget, 9U);
  EXPECT_FALSE(request->options.include_reasoning);
  EXPECT_EQ(request->template_kwargs["enable_thinking"], true);
  EXPECT_EQ(ask(R"("reasoning":{"effort":"none"})")->template_kwargs["enable_thinking"], false);
  EXPECT_EQ(ask(R"("reasoning_budget_tokens":0)")->reasoning_budget, 0U);
  EXPECT_FALSE(ask(R"("reasoning_format":"none")")->parses_reasoning);
  EXPECT_EQ(ask(R"("reasoning_budget_tokens":-1)")->reasoning_budget, std::nullopt);
  EXPECT_FALSE(ask(R"("reasoning_budget_tokens":-2)").ok());
  EXPECT_EQ(ask(R"("enable_thinking":false)")->template_kwargs["enable_thinking"], false);
  EXPECT_EQ(parse_responses_request(R"({"input":"x","enable_thinking":false})", {})
                ->template_kwargs["enable_thinking"],
            false);
}

TEST(ToolFields, LimitsAndWhatIsBeyondThem) {
  const auto tools = [](size_t count, size_t name_bytes, size_t text_bytes) {
    std::string out = "\"tools\":[";
    for (size_t i = 0; i < count; ++i) {
      std::string name = std::to_string(i);
      name.insert(0, name_bytes - name.size(), 'f');
      out += std::string(i > 0 ? "," : "") + R"({"type":"function","function":{"name":")" + name +
             R"(","description":")" + std::string(text_bytes, 'x') + "\"}}";
    }
    return out + "]";
  };
  EXPECT_TRUE(ask(tools(128, 128, 1)).ok());
  const Error many = ask(tools(129, 10, 1)).error();
  EXPECT_EQ(many.param, "tools");
  EXPECT_EQ(many.code, "schema_too_complex");
  EXPECT_NE(many.message.find("129 tools; at most 128"), std::string::npos) << many.message;
  EXPECT_EQ(ask(tools(1, 129, 1)).error().code, "invalid_tool");
  EXPECT_TRUE(ask(tools(1, 8, kMaxToolBytes - 1000)).ok());
  const Error large = ask(tools(2, 8, kMaxToolBytes / 2)).error();
  EXPECT_EQ(large.code, "schema_too_complex");
  EXPECT_EQ(large.param, "tools");
  EXPECT_NE(large.message.find("at most 1048576"), std::string::npos) << large.message;
  EXPECT_EQ(ask(kTwo + R"(,"tool_choice":{"type":"function","name":"h"})").error().code,
            "tool_not_found");
}

}  // namespace
}  // namespace skein::api
