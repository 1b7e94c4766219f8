// The model files that tests may find, and their tokenizers.
#pragma once

#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <utility>

#include "engine/loading/load_text.h"
#include "format/test_folder.h"
#include "format/weight_source.h"

namespace skein::testing {

inline const std::string kVectors = SKEIN_SOURCE_DIR "/../shared/vectors/tokenizers/";

inline LoadedTokenizer load(const std::string& path) {
  auto source = open_model(path);
  EXPECT_TRUE(source.ok()) << source.message();
  auto loaded = load_tokenizer(*source);
  EXPECT_TRUE(loaded.ok()) << loaded.message();
  return std::move(loaded).value();
}

}  // namespace skein::testing
