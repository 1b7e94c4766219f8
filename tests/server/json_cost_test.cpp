#include <chrono>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <string>

#include "server/json.h"

namespace skein::json {
namespace {

// One million members, and 8 MiB of everything that is dear to parse: well under a second each.
TEST(Json, TimeIsLinear) {
  std::string members = "{\"\":0";
  for (size_t i = 0; members.size() < (8U << 20) && i < kMaxValues - 2; ++i) {
    members += fmt::format(",\"{}\":0", i);
  }
  members.push_back('}');
  std::string escapes(8 << 20, '\\');
  escapes.front() = '"';
  for (const std::string& text : {members, std::string(8 << 20, '['), escapes}) {
    const auto begin = std::chrono::steady_clock::now();
    (void)parse(text);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  }
}

}  // namespace
}  // namespace skein::json
