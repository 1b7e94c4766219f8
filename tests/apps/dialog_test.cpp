#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/run_skein.h"
#include "format/test_folder.h"
#include "text/ordered_json.h"

namespace skein {
namespace {

using ::testing::HasSubstr;
using testing::run_skein;
using testing::run_skein_quietly;

class Dialog : public ::testing::Test {
 protected:
  static std::string own_template(const std::string& name) {
    return " --template " SKEIN_SOURCE_DIR "/tests/dialog/templates/" + name + ".jinja";
  }
  testing::TestFolder folder_;
};

TEST_F(Dialog, SaysWhatATemplateWritesAndWhereThatWasFound) {
  const auto run = run_skein_quietly("dialog format" + own_template("hermes"));
  EXPECT_EQ(run.status, 0);
  const OrderedJson found = OrderedJson::parse(run.output);
  EXPECT_EQ(found["format"], "hermes");
  EXPECT_EQ(found["source"], "template");
  EXPECT_EQ(found["pieces"]["body"], R"({"name": "{name}", "arguments": {arguments}})");
  EXPECT_EQ(found["reasoning"]["begin"], "<think>");
  EXPECT_EQ(found["template"]["arguments"], "object");
  const OrderedJson none =
      OrderedJson::parse(run_skein_quietly("dialog format" + own_template("no_tools")).output);
  EXPECT_EQ(none["source"], "generic");
  EXPECT_TRUE(none["reasoning"]["source"].is_null());
}

// Nobody says what the model's tokens are called, and many templates need them.
TEST_F(Dialog, ATemplateThatWritesItsEnd) {
  const std::string path = folder_.write(
      "t.jinja",
      "{{ bos_token }}{%- for tool in tools or [] %}{{- tool | tojson }}{%- endfor %}"
      "{%- for m in messages %}{{- '[' + m.role + ']' }}{{- m.content or '' }}"
      "{%- for c in m.tool_calls or [] %}{{- '<tool_call>\n{\"name\": \"' + c.function.name + '\", "
      "\"arguments\": ' + (c.function.arguments | tojson) + '}\n</tool_call>' }}{%- endfor %}"
      "{{- '' + eos_token }}{%- endfor %}{%- if add_generation_prompt %}{{- '[assistant]' }}"
      "{%- endif %}");
  const auto run = run_skein_quietly("dialog format --template " + path);
  EXPECT_EQ(run.status, 0);
  const OrderedJson found = OrderedJson::parse(run.output);
  EXPECT_EQ(found["format"], "hermes");
  EXPECT_EQ(found["source"], "template");
}

TEST_F(Dialog, ParsesAnswersTheSameInPieces) {
  const std::string texts = folder_.write(
      "t.jsonl",
      R"x({"text": "Hm.</think>So.<tool_call>f<arg_key>a</arg_key><arg_value>7</arg_value></tool_call>"}
{"text": "Plain.", "enable_thinking": false}
)x");
  const std::string tools = folder_.write(
      "tools.json",
      R"([{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}])");
  const std::string arguments = "dialog parse" + own_template("key_value") + " --texts " + texts;
  const auto run = run_skein_quietly(arguments + " --tools " + tools);
  EXPECT_EQ(run.status, 0);
  const OrderedJson parsed = OrderedJson::parse(run.output);
  EXPECT_EQ(parsed["format"], "glm");
  const OrderedJson first = parsed["texts"][0]["message"];
  EXPECT_EQ(first["content"], "So.");
  EXPECT_EQ(first["reasoning_content"], "Hm.");
  EXPECT_EQ(first["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(first["tool_calls"][0]["function"]["arguments"], R"({"a": "7"})");
  EXPECT_EQ(parsed["texts"][1]["message"].dump(), R"({"role":"assistant","content":"Plain."})");
  EXPECT_EQ(run_skein_quietly(arguments + " --chunks 3 --tools " + tools).output, run.output);
  // Without the tool's schema 7 is a number.
  EXPECT_THAT(run_skein_quietly(arguments).output, HasSubstr(R"({\"a\": 7})"));
}

TEST_F(Dialog, SaysWhatIsWrong) {
  const std::string bad = folder_.write("bad.jinja", "{% if %}");
  EXPECT_EQ(run_skein("dialog format --template " + bad).status, 1);
  EXPECT_EQ(run_skein("dialog format").status, 2);
  EXPECT_EQ(run_skein("dialog format --model m --template " + bad).status, 2);
  const std::string texts = folder_.write("t", "{\"text\": \"a\"}\n{\"test\": 1}\n");
  const auto run = run_skein("dialog parse" + own_template("hermes") + " --texts " + texts);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.output, HasSubstr(texts + ":2: not an object with a text"));
  const std::string tools = folder_.write("tools", "{}");
  EXPECT_THAT(
      run_skein("dialog parse" + own_template("hermes") + " --texts " + texts + " --tools " + tools)
          .output,
      HasSubstr("is not a JSON list of tools"));
  EXPECT_THAT(run_skein("dialog format --help").output, HasSubstr("signature"));
}

}  // namespace
}  // namespace skein
