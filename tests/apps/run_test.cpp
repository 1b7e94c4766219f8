#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

#include "apps/run_skein.h"
#include "engine/manager/direct_inference.h"
#include "engine/tiny_model.h"

namespace skein {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::run_skein;
using testing::run_skein_quietly;
using testing::TestFolder;

class RunCommand : public ::testing::Test {
 protected:
  // stdout of a run of the tiny model.
  std::string text(const std::string& arguments) const {
    const auto run = run_skein_quietly("run --model " + model_ + " " + arguments);
    EXPECT_EQ(run.status, 0) << arguments;
    return run.output;
  }
  testing::Run run(const std::string& arguments) const {
    return run_skein("run --model " + model_ + " " + arguments);
  }

  TestFolder folder_;
  std::string model_ = testing::write_tiny_model(folder_);
};

// What DirectInference says to `prompt`, as text.
std::string direct_answer(const std::string& path, const std::string& prompt, uint32_t tokens) {
  ComputePool pool(1);
  const SystemClock clock;
  const auto model = LoadedModel::load(path, {}, pool).value();
  const auto direct = DirectInference::create(*model, clock).value();
  const Tokenizer& tokenizer = model->tokenizer()->tokenizer;
  SamplingParams params = model->sampling_defaults();
  params.temperature = 0;
  params.ignore_eos = true;
  std::vector<TokenId> ids;
  const auto prompt_ids = tokenizer.encode(prompt).value();
  const auto outcome = direct->generate({prompt_ids, params, tokens}, [&](const SampledToken& t) {
    ids.push_back(t.token);
    return true;
  });
  EXPECT_TRUE(outcome.ok()) << outcome.message();
  return tokenizer.decode(ids, {.skip_special = true, .continuation = true}).value();
}

TEST_F(RunCommand, GreedyIsWhatDirectInferenceSays) {
  const std::string expected = direct_answer(model_, "Once upon", 60) + "\n";
  EXPECT_GT(expected.size(), 20u);
  EXPECT_EQ(text("-p 'Once upon' -n 60 --temperature 0 --ignore-eos"), expected);
  for (const char* variant :
       {"--threads 1", "--threads 3", "--cpu-isa scalar", "--precision default"}) {
    EXPECT_EQ(text("-p 'Once upon' -n 60 --temperature 0 --ignore-eos " + std::string(variant)),
              expected)
        << variant;
  }
}

TEST_F(RunCommand, ThePromptComesFromAFileOrStdinToo) {
  const std::string expected = text("-p 'a b\nc' -n 20 --temperature 0");
  const std::string file = folder_.write("prompt.txt", "a b\nc");
  EXPECT_EQ(text("--prompt-file " + file + " -n 20 --temperature 0"), expected);
  EXPECT_EQ(text("-p - -n 20 --temperature 0 < " + file), expected);
}

TEST_F(RunCommand, GuessesChangeNoByte) {
  const std::string wanted = "-p 'one two one two one two' -n 80 --ignore-eos --seed 3 ";
  for (const char* temperature : {"--temperature 0", "--temperature 0.5"}) {
    const std::string expected = text(wanted + temperature);
    for (const char* how : {" --speculation off", " --speculation ngram", " --speculation auto"}) {
      EXPECT_EQ(text(wanted + temperature + how), expected) << how;
    }
  }
  EXPECT_EQ(run("-p x --speculation on").status, 2);
  // Whether a guess pays follows from the times of steps, which are noise on a busy machine.
  std::string said;
  for (int i = 0; i < 20 && said.find("guesses right") == std::string::npos; ++i) {
    said = run(wanted + "--temperature 0 --speculation ngram").output;
  }
  EXPECT_THAT(said, HasSubstr("guesses right"));
}

TEST_F(RunCommand, SeedsDecideTheText) {
  EXPECT_EQ(text("-p x -n 40 --seed 5"), text("-p x -n 40 --seed 5"));
  EXPECT_NE(text("-p x -n 40 --seed 5"), text("-p x -n 40 --seed 6"));
  EXPECT_NE(text("-p x -n 40"), text("-p x -n 40")) << "a seed is drawn";
}

TEST_F(RunCommand, TakesSamplingOptionsByTheirApiNames) {
  EXPECT_EQ(text("-p x -n 5 --allowed-token-ids 67"), text("-p y -n 5 --allowed-token-ids 67"));
  const std::string first = text("-p x -n 1 --temperature 0 --ignore-eos");
  EXPECT_EQ(text("-p x -n 1 --top-k 1 --ignore-eos"), first);
  EXPECT_EQ(text("-p x -n 1 --top-p 0.000001 --ignore-eos"), first);
  EXPECT_EQ(text("-p x -n 1 --min-p 1 --ignore-eos"), first);
  EXPECT_EQ(text("-p x -n 3 --temperature 0 --logit-bias 66=100 --logit-bias 67=90"),
            text("-p z -n 3 --temperature 0 --logit-bias 66=100"));
  const std::string distinct = text(
      "-p x -n 6 --temperature 0 --allowed-token-ids 65,66,67 --presence-penalty 2 "
      "--frequency-penalty 2 --repetition-penalty 50");
  EXPECT_EQ(std::set<char>(distinct.begin(), distinct.end()).size(), 4u) << "three and a newline";
  EXPECT_EQ(text("-p x -n 4 --temperature 0 --allowed-token-ids 67 --stop-token-ids 67"), "\n");
  EXPECT_EQ(run("-p x -n 4 --typical-p 0.5 --min-tokens 2 --banned-token-ids 5,6").status, 0);
}

TEST_F(RunCommand, StopStringsEndTheTextBeforeThem) {
  const std::string letters = "-p stop -n 60 --seed 1 --allowed-token-ids 97,98,99,100,101,102";
  const std::string all = text(letters);
  ASSERT_EQ(all.size(), 61u);
  const std::string stop = all.substr(20, 4);
  EXPECT_EQ(text(letters + " --stop " + stop + " --stop never"),
            all.substr(0, all.find(stop)) + "\n");
}

TEST_F(RunCommand, SpeedsGoToStderr) {
  const auto both = run("-p 'four' -n 7 --temperature 0 --ignore-eos");
  EXPECT_EQ(both.status, 0);
  EXPECT_THAT(both.output, ContainsRegex("prompt +4 tokens in +[0-9.]+ s, +[0-9.]+ tokens/s\n"));
  EXPECT_THAT(both.output, ContainsRegex("generated +7 tokens in +[0-9.]+ s, +[0-9.]+ tokens/s\n"));
}

TEST_F(RunCommand, CtrlCEndsItCleanly) {
  const std::string endless = testing::write_tiny_model(folder_, "endless", true, 1 << 20);
  const auto interrupted =
      testing::run_command("timeout --preserve-status -s INT 1 " SKEIN_BINARY " run --model " +
                           endless + " -p x -n 1000000 --ignore-eos 2>&1 >/dev/null");
  EXPECT_EQ(interrupted.status, 130);
  EXPECT_THAT(interrupted.output, HasSubstr("generated")) << "and still says how fast it was";
}

TEST_F(RunCommand, WrongUsageIsTwoAndFailuresAreOne) {
  const auto expect = [&](const std::string& arguments, int status, const char* message) {
    const auto out = run(arguments);
    EXPECT_EQ(out.status, status) << arguments;
    EXPECT_THAT(out.output, HasSubstr(message)) << arguments;
  };
  expect("", 2, "one of --prompt and --prompt-file is needed");
  expect("-p a --prompt-file b", 2, "--prompt excludes --prompt-file");
  expect("-p a -n 0", 2, "--max-tokens");
  expect("-p a --cpu-isa nonsense", 2, "--cpu-isa: nonsense not in {scalar,avx2,avx512,amx}");
  expect("-p a --precision f16", 2, "f16 not in {f32,default,high}");
  expect("-p a --threads 0", 2, "--threads");
  expect("-p a --temperature hot", 2, "--temperature = hot");
  expect("-p a --top-p 1.5", 2, "top_p is 1.5, it must be above 0 and at most 1");
  expect("-p a --logit-bias 5", 2, "--logit-bias 5: expected ID=BIAS");
  expect("-p a --no-such-option", 2, "--no-such-option");
  expect("-p ''", 1, "the prompt has 0 tokens; it needs at least 1");
  expect("-p a --prompt-file ''", 2, "excludes");
  expect("--prompt-file /nowhere", 1, "/nowhere cannot be opened");
  expect("-p a -n 512", 1, "prompt of 1 tokens plus 512 to generate is 513; the context holds 512");
  expect("-p a -n 9 --max-context 9", 1, "is 10; the context holds 9");
  expect("-p a --banned-token-ids 9999", 1, "banned has token 9999, the vocabulary has 258 tokens");
  expect("-p a --stop ''", 1, "stop");
  EXPECT_EQ(run_skein("run --model no/such/model -p a").status, 1);
  EXPECT_EQ(run_skein("run -p a").status, 2);
  const std::string ids = testing::write_tiny_model(folder_, "ids", false);
  EXPECT_THAT(run_skein("run -p a --model " + ids).output, HasSubstr("no tokenizer.json"));
}

TEST_F(RunCommand, DevicesThatAreNotThereAreRefused) {
  const std::string prompt = "-p 'Once upon' -n 8 --temperature 0 --ignore-eos ";
  EXPECT_EQ(text(prompt + "--device cpu"), text(prompt + "--device auto --cpu-isa scalar"));
  const auto gpu = run(prompt + "--device cuda:99");
  EXPECT_EQ(gpu.status, 1);
  EXPECT_THAT(gpu.output, HasSubstr("CUDA"));
  const auto number = run(prompt + "--device cuda:first");
  EXPECT_EQ(number.status, 1);
  EXPECT_THAT(number.output, ContainsRegex("'cuda:first' is no device|without CUDA"));
  const auto none = run(prompt + "--device abacus");
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.output, HasSubstr("'abacus' is no backend; there are cpu, reference, cuda"));
}

TEST_F(RunCommand, TheReferenceComputesInEitherProfile) {
  const std::string prompt = "-p 'Once upon' -n 8 --temperature 0 --ignore-eos --precision f32 ";
  EXPECT_EQ(text(prompt + "--device reference:hopper"), text(prompt + "--device cpu"));
}

TEST(Version, NamesTheBackendsWhereAsked) {
  const auto plain = run_skein("--version");
  EXPECT_EQ(plain.status, 0);
  EXPECT_THAT(plain.output, ::testing::Not(HasSubstr("cuda")));
  for (const char* arguments : {"--version --verbose", "--verbose --version"}) {
    const auto verbose = run_skein(arguments);
    EXPECT_EQ(verbose.status, 0);
    EXPECT_THAT(verbose.output, ContainsRegex("\nbackends +cpu, "));
    EXPECT_THAT(verbose.output, ContainsRegex("cuda: (sm_90a|not built in)"));
  }
}

TEST(RunHelp, IsAManual) {
  const auto help = run_skein("run --help");
  EXPECT_EQ(help.status, 0);
  for (const char* part : {"--temperature", "--repetition-penalty", "--stop", "Ctrl-C", "-n 64"}) {
    EXPECT_THAT(help.output, HasSubstr(part));
  }
}

// English from the default model.
TEST(RunDefaultModel, ContinuesAText) {
  SKEIN_NEEDS_DEFAULT_MODEL();
  const auto run = run_skein_quietly(
      "run --model default -p 'Count: one, two, three, four,' -n 6 --temperature 0");
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.output, " five, six, seven,\n");
}

}  // namespace
}  // namespace skein
