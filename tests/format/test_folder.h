// A folder of a test's own, gone when the test ends; and the files that tests may find.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>

#include "base/needs.h"

namespace skein::testing {

class TestFolder {
 public:
  TestFolder() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = ::testing::TempDir() + "skein." + test->test_suite_name() + "." + test->name() + "." +
            std::to_string(::getpid());
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

  std::string write(std::string_view name, std::string_view text) const {
    const std::string path = *this / name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::string write(std::string_view name, std::span<const std::byte> bytes) const {
    return write(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

 private:
  std::string path_;
};

// The default model, where tools/get_model.sh leaves it.
inline std::string default_model_path() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string folder = cache ? cache : std::string(home ? home : "") + "/.cache";
  return folder + "/skein/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

}  // namespace skein::testing

#define SKEIN_NEEDS_DEFAULT_MODEL()                                    \
  SKEIN_NEEDS(                                                         \
      std::filesystem::exists(::skein::testing::default_model_path()), \
      ::skein::testing::default_model_path() + " is not there; tools/get_model.sh fetches it")
