#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/run_skein.h"
#include "format/gguf_writer.h"
#include "format/test_folder.h"

namespace skein {
namespace {

using testing::GgufWriter;
using testing::run_skein;
using testing::TestFolder;

std::vector<std::byte> small_model() {
  GgufWriter w;
  w.string("general.architecture", "llama")
      .string("general.name", "tiny\x1b[31m \xff")
      .u32("llama.block_count", 2)
      .u32("llama.embedding_length", 64)
      .u32("llama.attention.head_count", 4)
      .u32("llama.context_length", 4096)
      .string("tokenizer.chat_template", "{{ x }}\n")
      .tensor({.name = "w", .dims = {64, 2}, .type = 2});
  return w.build();
}

TEST(Inspect, Json) {
  const TestFolder folder;
  const auto run = run_skein("inspect --json --tensors " + folder.write("m.gguf", small_model()));
  ASSERT_EQ(run.status, 0) << run.output;
  const auto json = nlohmann::json::parse(run.output);
  EXPECT_EQ(json["kind"], "gguf");
  EXPECT_EQ(json["shape"]["layers"], 2);
  EXPECT_EQ(json["parameters"], 128);
  EXPECT_EQ(json["kv_bytes_per_token"], 2 * 4 * (16 + 16) * 2);
  EXPECT_EQ(json["memory"][0]["context"], 2048);
  EXPECT_EQ(json["memory"][1]["kv_bytes"], 4096 * 512);
  EXPECT_EQ(json["chat_template"], "{{ x }}\n");
  EXPECT_EQ(json["dialog"]["calls"], "hermes");
  EXPECT_EQ(json["dialog"]["calls_from"], "generic");
  EXPECT_EQ(json["dialog"]["reasoning"], "none");
  EXPECT_EQ(json["tensors"][0]["shape"], nlohmann::json({2, 64}));
}

TEST(Inspect, TableShowsNoControlCharacters) {
  const TestFolder folder;
  const auto run = run_skein("inspect " + folder.write("m.gguf", small_model()));
  ASSERT_EQ(run.status, 0) << run.output;
  for (const char* expected :
       {"Architecture        llama\n", "Name                tiny\\x1b[31m \\xff\n",
        "Context length      4,096\n", "Q4_0", "4,096 tokens", "2.0 MiB",
        "Chat template       8 bytes: {{ x }}\\x0a\n",
        "Tool calls          hermes (generic; --tool-format sets another)\n",
        "Reasoning           none (--reasoning-format sets one)\n"}) {
    EXPECT_NE(run.output.find(expected), std::string::npos) << expected << run.output;
  }
  EXPECT_EQ(run.output.find('\x1b'), std::string::npos);
}

TEST(Inspect, NamesComeFromTheModelFolder) {
  const TestFolder folder;
  const std::string file = folder.write("skein/models/org/m.gguf", small_model());
  const auto run = run_skein("inspect org/m --json", "XDG_CACHE_HOME=" + folder.path());
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_EQ(nlohmann::json::parse(run.output)["path"], file);
  const auto hub = folder.write("hub/models--a--b/snapshots/r/m.gguf", small_model());
  const auto cached = run_skein("inspect a/b --json", "HF_HUB_CACHE=" + (folder / "hub"));
  ASSERT_EQ(cached.status, 0) << cached.output;
  EXPECT_EQ(nlohmann::json::parse(cached.output)["path"], hub);
}

TEST(Inspect, FailsWithItsReason) {
  const TestFolder folder;
  const auto broken = run_skein("inspect " + folder.write("m.gguf", "GGUF"));
  EXPECT_EQ(broken.status, 1);
  EXPECT_EQ(broken.output,
            "skein: " + (folder / "m.gguf") + ": 4 bytes needed at offset 4, 0 left\n");
  EXPECT_EQ(run_skein("inspect no/such/model").status, 1);
  EXPECT_EQ(run_skein("inspect").status, 2);
}

TEST(Inspect, TheDefaultModel) {
  SKEIN_NEEDS_DEFAULT_MODEL();
  const auto run = run_skein("inspect default --json");
  ASSERT_EQ(run.status, 0) << run.output;
  const auto json = nlohmann::json::parse(run.output);
  EXPECT_EQ(json["parameters"], 134'515'008);
  EXPECT_EQ(json["tokenizer"]["vocabulary"], 49'152);
  EXPECT_EQ(json["tokenizer"]["special"][1]["text"], "<|im_end|>");
}

}  // namespace
}  // namespace skein
