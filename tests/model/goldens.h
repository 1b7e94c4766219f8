// The golden folders of every family, as cmake/goldens.cmake unpacks them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <vector>

#include "base/ids.h"
#include "format/json.h"

namespace skein::testing {

struct GoldenCase {
  std::vector<TokenId> prompt, argmax_all, greedy;
  std::vector<float> logits_last, greedy_margins;
};

struct Golden {
  std::string name;
  std::string folder;
  std::vector<GoldenCase> cases;

  bool has(const std::string& file) const { return std::filesystem::exists(folder + "/" + file); }
  std::string gguf() const { return folder + "/model.gguf"; }
};

inline Golden read_golden(const std::filesystem::path& folder) {
  std::ifstream in(folder / "golden.json");  // a folder without one is an error
  const Json json = Json::parse(in);
  Golden golden{folder.filename(), folder, {}};
  for (const Json& item : json["cases"]) {
    golden.cases.push_back({item["prompt"], item["argmax_all"], item["greedy"], item["logits_last"],
                            item["greedy_margins"]});
  }
  return golden;
}

inline const std::string kGoldens = SKEIN_SOURCE_DIR "/build/goldens";
// The default model on 42 prompts, by a float32 run of its dequantized weights.
inline const std::string kSmolLm2Reference = kGoldens + "/smollm2.json";

inline std::vector<Golden> goldens() {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(kGoldens)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  std::vector<Golden> out;
  for (const auto& folder : folders) out.push_back(read_golden(folder));
  return out;
}

using CheckGolden = void(const Golden& golden, const std::string& path);

// Every family as a folder of safetensors, and those that there is a GGUF twin of.
inline void check_folders(CheckGolden* check) {
  size_t folders = 0;
  for (const Golden& golden : goldens()) {
    if (!golden.has("config.json")) continue;
    ++folders;
    check(golden, golden.folder);
  }
  EXPECT_EQ(folders, 17U);
}
inline void check_ggufs(CheckGolden* check) {
  size_t twins = 0;
  for (const Golden& golden : goldens()) {
    if (!golden.has("model.gguf")) continue;
    ++twins;
    check(golden, golden.gguf());
  }
  EXPECT_EQ(twins, 13U);
}

}  // namespace skein::testing
