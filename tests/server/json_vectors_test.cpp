// JSONTestSuite: what starts with y_ is taken, what starts with n_ refused.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>

#include "server/json.h"

namespace skein::json {
namespace {

const std::filesystem::path kVectors = SKEIN_SOURCE_DIR "/../shared/vectors/json";

TEST(JsonVectors, TheTestSuite) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kVectors)) {
    const std::string name = entry.path().filename().string();
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const bool taken = parse(text).index() == 0;
    if (!name.starts_with("i_")) {
      EXPECT_EQ(taken, name.starts_with("y_")) << name;
    }
    ++files;
  }
  EXPECT_GT(files, 300U);
}

}  // namespace
}  // namespace skein::json
