// The tokens that the default model and every family answer, against a list in the tree: whoever
// changes arithmetic, loading or sampling sees here whether an answer changed. What is recorded
// holds on every machine, for a product has one definition of its bits.
//
//   SKEIN_RECORD=tokens build/release/tests/engine/recorded_tokens_test
//
// records anew. That is a change of answers, and so has a line in the CHANGELOG.
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "engine/manager/direct_inference.h"
#include "format/json.h"
#include "format/test_folder.h"
#include "model/goldens.h"

namespace skein {
namespace {

using Tokens = std::vector<TokenId>;
using Lists = std::map<std::string, Tokens>;  // by "model precision prompt"

constexpr uint32_t kLength = 16;
const std::string kFile = SKEIN_SOURCE_DIR "/tests/engine/recorded_tokens.txt";

Lists read_lists() {
  Lists lists;
  std::ifstream in(kFile);
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (line.starts_with('#') || colon == std::string::npos) continue;
    std::istringstream rest(line.substr(colon + 1));
    Tokens& tokens = lists[line.substr(0, colon)];
    for (TokenId token; rest >> token;) tokens.push_back(token);
  }
  return lists;
}

void write_lists(const Lists& lists) {
  std::ofstream out(kFile);
  out << "# Recorded by recorded_tokens_test; see there.\n";
  for (const auto& [name, tokens] : lists) {
    out << fmt::format("{}: {}\n", name, fmt::join(tokens, " "));
  }
}

// Those whose name begins with `group` must be `got`, no more and no fewer.
void expect_recorded(const std::string& group, const Lists& got) {
  Lists lists = read_lists();
  if (const char* wish = std::getenv("SKEIN_RECORD"); wish && std::string(wish) == "tokens") {
    std::erase_if(lists, [&](const auto& entry) { return entry.first.starts_with(group); });
    lists.insert(got.begin(), got.end());
    return write_lists(lists);
  }
  for (const auto& [name, tokens] : lists) {
    if (!name.starts_with(group)) continue;
    const auto it = got.find(name);
    ASSERT_NE(it, got.end()) << name << " is recorded, and nobody answered it";
    EXPECT_EQ(it->second, tokens) << name;
  }
  for (const auto& [name, tokens] : got) EXPECT_TRUE(lists.contains(name)) << name;
}

struct Ask {
  std::string name;
  Tokens prompt;
  SamplingParams sampling;
};

Ask greedy(std::string name, Tokens prompt) {
  Ask ask{std::move(name), std::move(prompt), {}};
  ask.sampling.temperature = 0;
  return ask;
}

Ask seeded(std::string name, Tokens prompt) {
  Ask ask{std::move(name), std::move(prompt), {}};
  ask.sampling.seed = 20261116;
  ask.sampling.top_p = 0.95F;
  ask.sampling.repetition_penalty = 1.1F;
  return ask;
}

void answer(const std::string& path, const std::string& name, Precision precision,
            const std::vector<Ask>& asks, ComputePool& pool, Lists& lists) {
  constexpr const char* kPrecisions[] = {"f32", "default", "high"};
  const SystemClock clock;
  ModelOptions options;
  options.precision = precision;
  const auto model = LoadedModel::load(path, options, pool);
  ASSERT_TRUE(model.ok()) << model.message();
  const auto direct = DirectInference::create(**model, clock);
  ASSERT_TRUE(direct.ok()) << direct.message();
  for (const Ask& ask : asks) {
    Tokens& tokens =
        lists[fmt::format("{} {} {}", name, kPrecisions[static_cast<int>(precision)], ask.name)];
    const auto outcome =
        (*direct)->generate({ask.prompt, ask.sampling, kLength}, [&](const SampledToken& token) {
          tokens.push_back(token.token);
          return true;
        });
    ASSERT_TRUE(outcome.ok()) << outcome.message();
    ASSERT_EQ(tokens.size(), kLength);
  }
}

constexpr Precision kPrecisions[] = {Precision::kDefault, Precision::kHigh, Precision::kF32};

TEST(RecordedTokens, OfAllFamilies) {
  ComputePool pool(2);
  Lists lists;
  size_t families = 0;
  for (const testing::Golden& golden : testing::goldens()) {
    ++families;
    const Tokens& prompt = golden.cases.back().prompt;
    for (const Precision precision : kPrecisions) {
      std::vector<Ask> asks = {greedy("greedy", prompt)};
      if (precision == Precision::kDefault) asks.push_back(seeded("seeded", prompt));
      const std::string name = "goldens/" + golden.name;
      answer(golden.folder, name, precision, asks, pool, lists);
      if (golden.has("model.gguf")) {
        answer(golden.gguf(), name + ".gguf", precision, asks, pool, lists);
      }
    }
  }
  EXPECT_EQ(families, 17U);
  expect_recorded("goldens/", lists);
}

TEST(RecordedTokens, OfTheDefaultModel) {
  SKEIN_NEEDS_DEFAULT_MODEL();
  std::ifstream in(testing::kSmolLm2Reference);
  const Json cases = Json::parse(in)["cases"];
  ComputePool pool(2);
  Lists lists;
  for (const Precision precision : kPrecisions) {
    std::vector<Ask> asks;
    for (const size_t i : {20, 0, 39}) {
      asks.push_back(greedy(fmt::format("greedy-{}", i), cases[i]["ids"]));
      if (precision != Precision::kDefault) break;  // they are slow
      asks.push_back(seeded(fmt::format("seeded-{}", i), cases[i]["ids"]));
    }
    answer(testing::default_model_path(), "default-model", precision, asks, pool, lists);
  }
  expect_recorded("default-model ", lists);
}

}  // namespace
}  // namespace skein
