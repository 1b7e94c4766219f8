#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/run_skein.h"
#include "engine/manager/direct_inference.h"
#include "engine/tiny_model.h"
#include "generate/prompt.h"

namespace skein {
namespace {

using ::testing::HasSubstr;
using testing::run_command;
using testing::TestFolder;

constexpr const char* kGreedy = " --temperature 0 -n 12 --ignore-eos";

class ChatCommand : public ::testing::Test {
 protected:
  // stdout of a chat whose user types `lines` into a pipe.
  std::string chat(const std::string& lines, const std::string& arguments = kGreedy) const {
    const std::string input = folder_.write("input", lines);
    const auto run = run_command(SKEIN_BINARY " chat --model " + model_ + " " + arguments + " <" +
                                 input + " 2>/dev/null");
    EXPECT_EQ(run.status, 0) << lines;
    return run.output;
  }

  TestFolder folder_;
  std::string model_ = testing::write_tiny_model(folder_);
};

// The whole conversation computed anew for every answer.
std::string slow_chat(const std::string& path, const std::vector<std::string>& messages,
                      const std::string& system) {
  ComputePool pool(1);
  const SystemClock clock;
  const auto model = LoadedModel::load(path, {}, pool).value();
  const Tokenizer& tokenizer = model->tokenizer()->tokenizer;
  SamplingParams params;
  params.temperature = 0;
  nlohmann::ordered_json said = nlohmann::ordered_json::array();
  if (!system.empty()) said.push_back({{"role", "system"}, {"content", system}});
  std::string output;
  for (const std::string& message : messages) {
    said.push_back({{"role", "user"}, {"content", message}});
    const auto prompt = model->chat_template()->render(
        {{"messages", said}, {"add_generation_prompt", true}}, jinja::RenderOptions());
    const auto ids = encode_prompt(tokenizer, prompt.value()).value();
    std::vector<TokenId> answer;
    const auto direct = DirectInference::create(*model, clock).value();
    const auto outcome = direct->generate({ids, params, 12}, [&](const SampledToken& token) {
      answer.push_back(token.token);
      return true;
    });
    EXPECT_TRUE(outcome.ok()) << outcome.message();
    const std::string text = tokenizer.decode(answer).value();
    said.push_back({{"role", "assistant"}, {"content", text}});
    output += text + "\n";
  }
  return output;
}

TEST_F(ChatCommand, RemembersTheConversation) {
  EXPECT_EQ(chat("hello\nand then?\nwell\n"),
            slow_chat(model_, {"hello", "and then?", "well"}, ""));
  EXPECT_EQ(chat("hello\n", std::string("--system 'Be brief.'") + kGreedy),
            slow_chat(model_, {"hello"}, "Be brief."));
}

TEST_F(ChatCommand, ResetForgetsIt) {
  const std::string once = chat("hello\n");
  EXPECT_EQ(chat("hello\n/reset\nhello\n"), once + once);
  EXPECT_NE(chat("hello\nhello\n"), once + once);
}

TEST_F(ChatCommand, LinesThatAreNoMessages) {
  const std::string once = chat("hello\n");
  EXPECT_EQ(chat("\n\nhello"), once) << "empty lines are skipped, the last one needs no end";
  EXPECT_EQ(chat("hello\n/exit\nhello\n"), once);
  EXPECT_EQ(chat(""), "");
  const auto help = run_command("echo /what | " SKEIN_BINARY " chat --model " + model_ + " 2>&1");
  EXPECT_EQ(help.output, "/what: no such command; /help lists them\n");
}

TEST_F(ChatCommand, FailsWithItsReason) {
  const std::string input = folder_.write("input", std::string(600, 'x') + "\n");
  const auto run = run_command(SKEIN_BINARY " chat --model " + model_ + " 2>&1 <" + input);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.output, HasSubstr("the context holds 512"));
  EXPECT_EQ(testing::run_skein("chat").status, 2);
  EXPECT_EQ(testing::run_skein("chat --model no/such/model </dev/null").status, 1);
  EXPECT_EQ(testing::run_skein("chat --top-k many --model " + model_).status, 2);
}

TEST_F(ChatCommand, OnATerminal) {
  const std::string endless = testing::write_tiny_model(folder_, "endless", true, 1 << 20);
  const auto run = run_command(
      "python3 " SKEIN_SOURCE_DIR "/tests/apps/chat_pty.py " SKEIN_BINARY " " + endless + " 2>&1");
  EXPECT_EQ(run.status, 0) << run.output;
}

TEST(ChatDefaultModel, AnswersInEnglish) {
  SKEIN_NEEDS_DEFAULT_MODEL();
  const auto run = run_command("echo 'What is 2+2?' | " SKEIN_BINARY
                               " chat --model default --temperature 0 2>/dev/null");
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.output, "The answer to this classic math problem is 4.\n");
}

}  // namespace
}  // namespace skein
