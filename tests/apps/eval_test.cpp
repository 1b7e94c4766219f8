#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/run_skein.h"
#include "engine/tiny_model.h"
#include "model/goldens.h"

namespace skein {
namespace {

using ::testing::HasSubstr;
using testing::run_skein;
using testing::TestFolder;

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The numbers of a .npy file whose shape is as it should be.
std::vector<float> read_npy(const std::string& path, size_t rows, size_t columns) {
  const std::string bytes = bytes_of(path);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const size_t header = 10 + static_cast<uint8_t>(bytes[8]) + 256 * static_cast<uint8_t>(bytes[9]);
  EXPECT_EQ(header % 64, 0u);
  EXPECT_THAT(
      bytes.substr(0, header),
      HasSubstr(fmt::format("'<f4', 'fortran_order': False, 'shape': ({}, {})", rows, columns)));
  std::vector<float> values(rows * columns);
  EXPECT_EQ(bytes.size(), header + values.size() * sizeof(float));
  std::memcpy(values.data(), bytes.data() + header, values.size() * sizeof(float));
  return values;
}

class EvalCommand : public ::testing::Test {
 protected:
  std::string logits(const std::string& ids, const std::string& arguments) const {
    const std::string file = folder_.write("ids.json", ids);
    const auto run =
        run_skein("eval logits --model " + model_ + " --tokens " + file + " " + arguments);
    EXPECT_EQ(run.status, 0) << run.output;
    return run.output;
  }
  testing::Run kl(const std::string& ids, const std::string& arguments) const {
    const std::string file = folder_.write("ids.json", ids);
    return run_skein("eval kl --model " + model_ + " --tokens " + file + " " + arguments);
  }

  TestFolder folder_;
  std::string model_ = testing::write_tiny_model(folder_);
};

TEST_F(EvalCommand, LogitsAsJson) {
  const std::string text = logits("[[1, 2, 3], [4]]", "--greedy 5 --json");
  const auto json = nlohmann::json::parse(text);
  ASSERT_EQ(json.size(), 2u);
  for (const auto& item : json) {
    const std::vector<float> last = item.at("logits_last");
    EXPECT_EQ(last.size(), testing::kTinyVocab);
    EXPECT_EQ(item.at("greedy").size(), 5u);
    EXPECT_EQ(item.at("greedy")[0], std::max_element(last.begin(), last.end()) - last.begin());
  }
  for (const char* variant : {"--cpu-isa scalar", "--threads 1", "--precision default"}) {
    EXPECT_EQ(logits("[[1, 2, 3], [4]]", std::string("--greedy 5 --json ") + variant), text);
  }
  const auto alone = nlohmann::json::parse(logits("[[4]]", "--greedy 5 --json"));
  EXPECT_EQ(alone[0], json[1]) << "the lists beside it do not count";
  const int first = json[1].at("greedy")[0];
  const auto next =
      nlohmann::json::parse(logits(fmt::format("[[4, {}]]", first), "--greedy 4 --json"));
  EXPECT_EQ(next[0].at("greedy")[0], json[1].at("greedy")[1]);
  EXPECT_TRUE(nlohmann::json::parse(logits("[[4]]", "--json"))[0].at("greedy").empty());
  EXPECT_NE(logits("[[1, 2, 3], [4]]", "--greedy 5 --json --precision f32"), text);
}

TEST_F(EvalCommand, LogitsAsATable) {
  const std::string text = logits("[[1, 2, 3]]", "--greedy 2");
  EXPECT_THAT(text, HasSubstr("list 0, 3 ids\n"));
  EXPECT_THAT(text, HasSubstr("  then "));
}

TEST_F(EvalCommand, LogitsOfEveryPosition) {
  const std::string ids = "[[1, 2, 3], [9], [4, 5]]";
  const std::string out = folder_ / "all.npy";
  const auto json = nlohmann::json::parse(logits(ids, "--json --all --out " + out));
  const std::vector<float> all = read_npy(out, 6, testing::kTinyVocab);
  const auto row = [&](size_t i) {
    const auto at = all.begin() + static_cast<ptrdiff_t>(i * testing::kTinyVocab);
    return std::vector<float>(at, at + testing::kTinyVocab);
  };
  EXPECT_EQ(row(2), json[0].at("logits_last").get<std::vector<float>>()) << "exact in JSON too";
  EXPECT_EQ(row(3), json[1].at("logits_last").get<std::vector<float>>());
  EXPECT_EQ(row(5), json[2].at("logits_last").get<std::vector<float>>());
  const auto prefix = nlohmann::json::parse(logits("[[1, 2]]", "--json"));
  EXPECT_EQ(row(1), prefix[0].at("logits_last").get<std::vector<float>>());
}

TEST_F(EvalCommand, BadTokenFilesAreNamedByIndex) {
  const auto message = [&](const std::string& ids) {
    const std::string file = folder_.write("bad.json", ids);
    const auto run = run_skein("eval logits --model " + model_ + " --tokens " + file);
    EXPECT_EQ(run.status, 1) << ids;
    return run.output;
  };
  EXPECT_THAT(message("{}"), HasSubstr("bad.json: not a list of id lists"));
  EXPECT_THAT(message("[]"), HasSubstr("bad.json: the list of id lists is empty"));
  EXPECT_THAT(message("[[1], 7]"), HasSubstr("bad.json: list 1 is not a list of ids"));
  EXPECT_THAT(message("[[1], []]"), HasSubstr("bad.json: list 1 is empty"));
  EXPECT_THAT(message("[[1, \"x\"]]"), HasSubstr("list 0, index 1: \"x\" is no token id"));
  EXPECT_THAT(message("[[1, 2.5]]"), HasSubstr("list 0, index 1: 2.5 is no token id"));
  EXPECT_THAT(message("[[-1]]"), HasSubstr("list 0, index 0: -1 is no token id"));
  EXPECT_THAT(message("[[4294967296]]"), HasSubstr("index 0: 4294967296 is no token id"));
  EXPECT_THAT(message("[[1], [2, 272]]"),
              HasSubstr("list 1, index 1: id 272; the vocabulary has 272"));
  EXPECT_THAT(message("[[1,"), HasSubstr("bad.json: "));
  EXPECT_THAT(run_skein("eval logits --tokens /nowhere --model " + model_).output,
              HasSubstr("/nowhere cannot be opened"));
}

TEST_F(EvalCommand, WrongUsageIsTwo) {
  const std::string start = "eval logits --model " + model_ + " --tokens x ";
  EXPECT_EQ(run_skein("eval").status, 2);
  EXPECT_EQ(run_skein("eval logits --model " + model_).status, 2);
  EXPECT_EQ(run_skein(start + "--all").status, 2);
  EXPECT_EQ(run_skein(start + "--out x.npy").status, 2);
  EXPECT_EQ(run_skein(start + "--greedy -1").status, 2);
}

TEST_F(EvalCommand, KlToItselfIsZero) {
  const auto run = kl("[[1, 2, 3, 4, 5, 6, 7], [9, 8]]", "--precision f32 --json");
  ASSERT_EQ(run.status, 0) << run.output;
  const auto json = nlohmann::json::parse(run.output);
  EXPECT_EQ(json.at("positions"), 9);
  EXPECT_EQ(json.at("mean_kl"), 0);
  EXPECT_EQ(json.at("same_top"), 1);
  EXPECT_EQ(json.at("perplexity"), json.at("reference_perplexity"));
  EXPECT_GT(json.at("perplexity"), 1);
  EXPECT_THAT(kl("[[1, 2]]", "--precision f32").output,
              HasSubstr("same top token        100.00 %\n"));
  EXPECT_GT(nlohmann::json::parse(kl("[[1, 2]]", "--json").output).at("mean_kl"), 0);
}

TEST_F(EvalCommand, KlToAFile) {
  const std::string ids = "[[1, 2, 3, 4], [5, 6]]";
  const std::string out = folder_ / "reference.npy";
  logits(ids, "--all --out " + out);
  const auto same = nlohmann::json::parse(kl(ids, "--json --reference " + out).output);
  EXPECT_EQ(same.at("mean_kl"), 0);
  // One logit of the first row is raised by log 2: the distance is known.
  std::string bytes = bytes_of(out);
  const size_t at = bytes.size() - 6 * testing::kTinyVocab * sizeof(float);
  std::vector<float> row(testing::kTinyVocab);
  std::memcpy(row.data(), bytes.data() + at, row.size() * sizeof(float));
  double sum = 0;
  for (const float x : row) sum += std::exp(double{x});
  const double share = std::exp(double{row[7]}) / sum;
  row[7] += std::log(2.0F);
  std::memcpy(bytes.data() + at, row.data(), row.size() * sizeof(float));
  folder_.write("reference.npy", bytes);
  const double expected = 2 * share / (1 + share) * std::log(2) - std::log(1 + share);
  const auto moved = nlohmann::json::parse(kl(ids, "--json --reference " + out).output);
  EXPECT_NEAR(moved.at("max_kl"), expected, 1e-6);
  EXPECT_NEAR(moved.at("mean_kl"), expected / 6, 1e-6);

  EXPECT_THAT(kl("[[1, 2, 3]]", "--reference " + out).output,
              HasSubstr("is 6 x 272; the lists have 3 ids, the vocabulary 272 tokens"));
  EXPECT_THAT(kl(ids, "--reference " + (folder_ / "ids.json")).output, HasSubstr("no .npy file"));
  folder_.write("reference.npy", bytes.substr(0, bytes.size() - 4));
  EXPECT_THAT(kl(ids, "--reference " + out).output, HasSubstr("has room for 1631 numbers"));
}

TEST(EvalGoldens, LogitsAreTheGoldenOnes) {
  const std::string folder = testing::kGoldens + "/llama";
  const testing::Golden golden = testing::read_golden(folder);
  nlohmann::json prompts;
  for (const testing::GoldenCase& c : golden.cases) prompts.push_back(c.prompt);
  const TestFolder own;
  const std::string ids = own.write("ids.json", prompts.dump());
  for (const std::string& model : {folder, folder + "/model.gguf"}) {
    const auto run = run_skein("eval logits --precision f32 --greedy 40 --json --tokens " + ids +
                               " --model " + model);
    ASSERT_EQ(run.status, 0) << run.output;
    const auto json = nlohmann::json::parse(run.output);
    ASSERT_EQ(json.size(), golden.cases.size());
    for (size_t i = 0; i < golden.cases.size(); ++i) {
      const testing::GoldenCase& c = golden.cases[i];
      const std::vector<float> last = json[i].at("logits_last");
      double error = 0, norm = 0;
      for (size_t t = 0; t < last.size(); ++t) {
        error += std::pow(double{last[t]} - c.logits_last[t], 2);
        norm += std::pow(c.logits_last[t], 2);
      }
      EXPECT_LT(std::sqrt(error / norm), 1e-4) << model << ", prompt " << i;
      for (size_t t = 0; t < 40 && c.greedy_margins[t] >= 1e-3F; ++t) {
        EXPECT_EQ(json[i].at("greedy")[t], c.greedy[t]) << model << ", prompt " << i;
      }
    }
  }
}

}  // namespace
}  // namespace skein
