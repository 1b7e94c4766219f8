#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "apps/run_skein.h"
#include "engine/tiny_model.h"
#include "format/test_folder.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A config that no weights belong to.
class BenchCommand : public ::testing::Test {
 protected:
  std::string config(const std::string& family = "llama", const std::string& more = "") const {
    return folder_.write(family + ".json",
                         "{\"model_type\": \"" + family +
                             "\", \"hidden_size\": 256, \"intermediate_size\": 512, "
                             "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
                             "\"num_key_value_heads\": 2, \"vocab_size\": 500, "
                             "\"max_position_embeddings\": 2048, \"rms_norm_eps\": 1e-5, "
                             "\"rope_theta\": 10000.0, \"hidden_act\": \"silu\"" +
                             more + "}");
  }
  std::string dummy() const {
    return "bench --threads 1 --no-limits --dummy-weights " + config() + " ";
  }

  const TestFolder folder_;
};

TEST_F(BenchCommand, JsonHasMachineModelAndResults) {
  const auto run = run_skein_quietly(dummy() + "--prompts 2 -n 3 --concurrency 1,4 --json --plot " +
                                     (folder_ / "p.svg") + " --save " + (folder_ / "a.json"));
  ASSERT_EQ(run.status, 0) << run.output;
  const auto json = nlohmann::json::parse(run.output);
  EXPECT_EQ(json["machine"]["threads"], 1);
  EXPECT_EQ(json["model"]["family"], "llama");
  ASSERT_EQ(json["results"].size(), 3U);
  EXPECT_EQ(json["results"][0]["mode"], "single");
  EXPECT_EQ(json["results"][0]["total_tokens"], 6);
  EXPECT_EQ(json["results"][2]["mode"], "batched");
  EXPECT_EQ(json["results"][2]["concurrency"], 4);
  EXPECT_EQ(json["results"][2]["num_requests"], 4);
  EXPECT_EQ(json["results"][2]["prefix_hit_tokens"], 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "p.svg"));
  const auto compared = run_skein("bench compare " + (folder_ / "a.json") + " " +
                                  (folder_ / "a.json") + " --markdown");
  EXPECT_EQ(compared.status, 0) << compared.output;
  EXPECT_THAT(compared.output, HasSubstr("| 4 at once"));
  EXPECT_THAT(compared.output, HasSubstr("1.00x"));
}

TEST_F(BenchCommand, SpeculationIsMeasuredByWorkload) {
  const std::string model = write_tiny_model(folder_, "long", true, 4096);
  const auto run = run_skein_quietly("bench --threads 1 --model " + model +
                                     " --speculation --concurrency 1,2 -n 12 --markdown");
  ASSERT_EQ(run.status, 0) << run.output;
  for (const char* line : {"| chat | 1 |", "| edit | 1 |", "| quote | 2 |"}) {
    EXPECT_THAT(run.output, HasSubstr(line));
  }
  EXPECT_EQ(run_skein("bench --speculation off").status, 2);
}

TEST_F(BenchCommand, PromptsOfALengthAreThatLong) {
  const auto run = run_skein_quietly(
      dummy() + "--prompt-tokens 64 --prompts 4 -n 200 --concurrency 4 --no-single --json");
  ASSERT_EQ(run.status, 0) << run.output;
  const auto json = nlohmann::json::parse(run.output);
  ASSERT_EQ(json["results"].size(), 1U);
  EXPECT_EQ(json["results"][0]["num_requests"], 4);
  EXPECT_EQ(json["results"][0]["prompt_tokens"], 256);
  EXPECT_EQ(json["results"][0]["prefix_hit_tokens"], 0);
  EXPECT_GT(json["results"][0]["prefill_tokens_per_second"], 0);
  EXPECT_GT(json["results"][0]["decode_tokens_per_second"], 0);
  EXPECT_EQ(run_skein("bench --prompt-tokens 64 --shared-prefix").status, 2);
  EXPECT_EQ(run_skein("bench --prompt-tokens 64 --trace t.jsonl").status, 2);
}

TEST_F(BenchCommand, LongPromptsKeepArriving) {
  const auto run = run_skein(dummy() +
                             "--prompt-tokens 8 --prompts 2 -n 200 --concurrency 2 "
                             "--no-single --interference 500 --step-tokens 64");
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("2 at once, disturbed"));
  EXPECT_THAT(run.output, HasSubstr("x)"));
  const auto refused = run_skein(dummy() + "--prompts 1 --concurrency 1 --interference 4000");
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.output, HasSubstr("4000"));
}

TEST_F(BenchCommand, CtrlCPrintsWhatThereIs) {
  const auto run = run_command("timeout -s INT --preserve-status 3 " SKEIN_BINARY " " + dummy() +
                               "--prompts 400 -n 1500 --concurrency 8 2>&1");
  EXPECT_EQ(run.status, 130);
  EXPECT_THAT(run.output, HasSubstr("one at a time (cut short)"));
  EXPECT_THAT(run.output, Not(HasSubstr("8 at once")));
}

TEST_F(BenchCommand, AShapeHasANameAndNoFile) {
  const std::string small = "bench --threads 2 --no-limits --no-single --device cpu --shape ";
  const auto run = run_skein_quietly(
      small + "llama-135m --type q4_0 --prompt-tokens 8 --prompts 1 -n 2 --concurrency 1 --json");
  ASSERT_EQ(run.status, 0) << run.output;
  const auto json = nlohmann::json::parse(run.output);
  EXPECT_EQ(json["model"]["name"], "llama-135m with random q4_0 weights");
  EXPECT_EQ(json["results"][0]["total_tokens"], 2);
  const auto unknown = run_skein(small + "llama-9b");
  EXPECT_EQ(unknown.status, 1);
  EXPECT_THAT(unknown.output, HasSubstr("'llama-9b' is no shape; there are llama-135m, llama-1b"));
  const auto no_type = run_skein(small + "llama-1b --type q9_9");
  EXPECT_EQ(no_type.status, 1);
  EXPECT_THAT(no_type.output, HasSubstr("'q9_9' is no quantization"));
  EXPECT_EQ(run_skein(small + "llama-1b --model m.gguf").status, 2);
  EXPECT_EQ(run_skein(small + "llama-1b --dummy-weights " + config()).status, 2);
}

// Before a byte of them is made.
TEST_F(BenchCommand, AShapeThatDoesNotFitIsRefusedWithBothNumbers) {
  const auto run = run_skein("bench --device cpu --shape llama-70b --type f32");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.output, ::testing::ContainsRegex(
                              "llama-70b with random f32 weights takes [0-9]{12} bytes of memory "
                              "on the CPU, .* [0-9]+ are available"));
}

TEST_F(BenchCommand, EveryShapeThatIsNamedCanBeMadeUp) {
  const std::string experts =
      ", \"num_experts\": 4, \"num_local_experts\": 4, \"num_experts_per_tok\": 2, "
      "\"moe_intermediate_size\": 256, \"head_dim\": 64";
  for (const char* family : {"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe"}) {
    const std::string name = family;
    const bool sparse = name == "mixtral" || name == "qwen3_moe";
    const auto run = run_skein("bench --threads 1 --no-limits --dummy-weights " +
                               config(name, sparse ? experts : "") +
                               " --dummy-quant Q4_K --prompts 1 -n 2 --concurrency 2");
    EXPECT_EQ(run.status, 0) << family << ": " << run.output;
  }
  const auto refused = run_skein("bench --dummy-weights " + config("gemma2"));
  EXPECT_EQ(refused.status, 1);
  const auto no_type = run_skein(dummy() + "--dummy-quant Q9_9");
  EXPECT_EQ(no_type.status, 1);
  EXPECT_THAT(no_type.output, HasSubstr("'Q9_9' is no quantization"));
}

TEST_F(BenchCommand, ATraceIsTheWorkload) {
  const std::string trace = folder_.write(
      "t.jsonl", "{\"prompt_tokens\": 40, \"max_tokens\": 3}\n{\"prompt\": \"Hi\"}\n");
  const auto run =
      run_skein_quietly(dummy() + "--prompts 2 -n 5 --concurrency 2 --json --trace " + trace);
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_EQ(nlohmann::json::parse(run.output)["results"][1]["total_tokens"], 8);
  folder_.write("bad.jsonl", "{}\n");
  const auto bad = run_skein(dummy() + "--trace " + (folder_ / "bad.jsonl"));
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.output, HasSubstr("line 1"));
}

TEST_F(BenchCommand, WrongUsageIsTold) {
  EXPECT_EQ(run_skein("bench --concurrency 0").status, 2);
  EXPECT_EQ(run_skein("bench serve").status, 2);
  EXPECT_EQ(run_skein("bench serve --url ftp://a").status, 2);
  EXPECT_EQ(run_skein("bench compare a.json").status, 2);
  EXPECT_EQ(run_skein("bench sim --step-ms 0 --token-ms 0").status, 2);
  EXPECT_EQ(run_skein("bench sim --high-percent 60 --low-percent 60").status, 2);
  EXPECT_EQ(run_skein("bench compare /none.json /none.json").status, 1);
  EXPECT_EQ(run_skein("bench serve --url http://127.0.0.1:1").status, 1);
}

}  // namespace
}  // namespace skein::testing
