// Small models, written and run.
#pragma once

#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <vector>

#include "format/test_folder.h"
#include "model/model_writer.h"
#include "model/runner.h"

namespace skein::testing {

using Logits = std::vector<std::vector<float>>;

// In float32: files that say the same in different types give the same.
inline Logits logits_of(const std::string& path, const std::vector<TokenId>& tokens) {
  Runner runner(path, Precision::kF32);
  EXPECT_TRUE(runner.status().ok()) << runner.status().message();
  if (!runner.status().ok()) return {};
  Feed feed = Runner::feed(static_cast<uint32_t>(tokens.size()));
  return runner.step(feed, tokens);
}

inline std::string write_folder(const TestFolder& folder, const std::string& name,
                                std::string_view config, const std::vector<TensorData>& tensors) {
  folder.write(name + "/config.json", config);
  folder.write(name + "/model.safetensors", safetensors_of(tensors));
  return folder / name;
}

}  // namespace skein::testing
