// The model files that tests may find, and their tokenizers.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <utility>

#include "engine/load_tokenizer.h"
#include "format/weight_source.h"

namespace skein::testing {

inline const std::string kVectors = SKEIN_SOURCE_DIR "/../shared/vectors/tokenizers/";

inline std::string default_model() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string base =
      cache != nullptr ? cache : std::string(home != nullptr ? home : "") + "/.cache";
  return base + "/skein/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

#define SKEIN_NEEDS_DEFAULT_MODEL()                                  \
  if (!std::filesystem::exists(::skein::testing::default_model())) { \
    GTEST_SKIP() << ::skein::testing::default_model()                \
                 << " is not there; tools/get_model.sh fetches it";  \
  }

inline LoadedTokenizer load(const std::string& path) {
  auto source = open_model(path);
  EXPECT_TRUE(source.ok()) << source.message();
  auto loaded = load_tokenizer(*source);
  EXPECT_TRUE(loaded.ok()) << loaded.message();
  return std::move(loaded).value();
}

}  // namespace skein::testing
