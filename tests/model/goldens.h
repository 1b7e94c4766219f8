// The golden folders: those of ../shared, and the few that are here.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
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

  bool has_gguf() const { return std::filesystem::exists(folder + "/model.gguf"); }
};

inline Golden read_golden(const std::filesystem::path& folder) {
  std::ifstream in(folder / "golden.json");
  const Json json = Json::parse(in);
  Golden golden{folder.filename(), folder, {}};
  for (const Json& item : json["cases"]) {
    golden.cases.push_back({item["prompt"], item["argmax_all"], item["greedy"], item["logits_last"],
                            item["greedy_margins"]});
  }
  return golden;
}

// Every folder with a golden.json: of ../shared where it is there, else of this folder.
inline std::vector<Golden> goldens() {
  const std::string shared = SKEIN_SOURCE_DIR "/../shared/goldens";
  const std::string own = SKEIN_SOURCE_DIR "/tests/model/goldens";
  std::vector<std::filesystem::path> folders;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::exists(shared) ? shared : own)) {
    if (std::filesystem::exists(entry.path() / "golden.json")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  std::vector<Golden> out;
  for (const auto& folder : folders) out.push_back(read_golden(folder));
  return out;
}

}  // namespace skein::testing
