// What a model takes is counted as the backend keeps it, not as the file has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/losable_device.h"
#include "engine/manager/load_served_model.h"
#include "format/gguf_writer.h"
#include "format/test_folder.h"

namespace skein {
namespace {

using testing::GgufWriter;
using ::testing::HasSubstr;

constexpr uint64_t kHidden = 256, kFfn = 512, kVocab = 512;

// A llama whose matrices have 4 bits a weight.
std::vector<std::byte> four_bit_model() {
  GgufWriter writer;
  writer.string("general.architecture", "llama")
      .u32("llama.block_count", 1)
      .u32("llama.context_length", 64)
      .u32("llama.embedding_length", kHidden)
      .u32("llama.feed_forward_length", kFfn)
      .u32("llama.attention.head_count", 4)
      .u32("llama.attention.head_count_kv", 4)
      .scalar("llama.attention.layer_norm_rms_epsilon", GgufWriter::Type::kFloat32, 1e-5F);
  const auto add = [&](const char* name, std::vector<uint64_t> dims) {
    const ElementType type = dims.size() == 1 ? ElementType::kF32 : ElementType::kQ4_0;
    writer.tensor({.name = name, .dims = std::move(dims), .type = info(type).gguf_id});
  };
  add("token_embd.weight", {kHidden, kVocab});
  add("output_norm.weight", {kHidden});
  add("blk.0.attn_norm.weight", {kHidden});
  add("blk.0.ffn_norm.weight", {kHidden});
  for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight",
                           "blk.0.attn_output.weight"}) {
    add(name, {kHidden, kHidden});
  }
  add("blk.0.ffn_gate.weight", {kHidden, kFfn});
  add("blk.0.ffn_up.weight", {kHidden, kFfn});
  add("blk.0.ffn_down.weight", {kFfn, kHidden});
  return writer.build();
}

class MemoryBudget : public ::testing::Test {
 protected:
  Result<ModelLease> load(Precision precision, uint64_t memory_bytes) {
    ServingOptions serving;
    serving.model.precision = precision;
    serving.engine.scheduler.pool_blocks = 2;
    serving.engine.scheduler.max_batch = 2;
    serving.engine.scheduler.step_tokens = 8;
    manager_ =
        std::make_unique<SchedulerManager>(SchedulerManager::Options{.memory_bytes = memory_bytes},
                                           make_model_loader(serving, pool_, clock_), clock_);
    EXPECT_TRUE(manager_->add({.id = "q4", .path = path_}).ok());
    return manager_->acquire("q4");
  }

  testing::TestFolder folder_;
  std::string path_ = folder_.write("q4.gguf", four_bit_model());
  SystemClock clock_;
  ComputePool pool_{1};
  std::unique_ptr<SchedulerManager> manager_;
};

TEST_F(MemoryBudget, CountsWeightsAsTheBackendKeepsThem) {
  constexpr uint64_t kMuch = uint64_t{1} << 30;
  constexpr uint64_t kWeights = kHidden * (4 * kHidden + 3 * kFfn + kVocab);
  const uint64_t four_bits = load(Precision::kDefault, kMuch).value()->weight_bytes();
  EXPECT_LT(four_bits, kWeights);
  // In bfloat16: two bytes a weight, however few the file has.
  const uint64_t high = load(Precision::kHigh, kMuch).value()->weight_bytes();
  EXPECT_GE(high, 2 * kWeights);
  EXPECT_GT(high, 3 * four_bits);
}

TEST_F(MemoryBudget, AModelThatIsLargerWhenPackedDoesNotFit) {
  const uint64_t needed = load(Precision::kHigh, uint64_t{1} << 30).value()->memory_bytes();
  EXPECT_TRUE(load(Precision::kHigh, needed).ok());
  const Result<ModelLease> refused = load(Precision::kHigh, needed - 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("memory budget"));
}

// A device keeps the embedding beside the output matrix, although the file has it once.
TEST_F(MemoryBudget, CountsTheTableThatADeviceKeeps) {
  const auto device = std::make_shared<testing::LosableDevice>();
  ModelOptions options;
  options.backend_maker = testing::LosableBackend::maker(device);
  uint64_t asked = 0;
  options.admit = [&](uint64_t bytes) {
    asked = bytes;
    return ok_status();
  };
  ASSERT_TRUE(LoadedModel::load(path_, options, pool_).ok());
  const uint64_t without = std::exchange(asked, 0);
  device->tables_bytes = kVocab * kHidden * sizeof(float);
  ASSERT_TRUE(LoadedModel::load(path_, options, pool_).ok());
  EXPECT_EQ(asked, without + device->tables_bytes);
  // One that does not fit is refused with both numbers, before anything is taken.
  device->tables_bytes = testing::LosableDevice::kTotal;
  const auto refused = LoadedModel::load(path_, options, pool_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("8192 MB of weights"));
  EXPECT_THAT(refused.message(), HasSubstr("8192 MB of memory can be had"));
}

// Before anything is packed, so that there is nothing to pack where it does not fit.
TEST_F(MemoryBudget, IsAskedBeforeMemoryIsTaken) {
  ModelOptions options;
  uint64_t asked = 0;
  bool was_packing = false;
  options.precision = Precision::kHigh;
  options.report = [&](uint64_t, uint64_t) { was_packing = true; };
  options.admit = [&](uint64_t bytes) {
    asked = bytes;
    return unavailable("no room");
  };
  const auto refused = LoadedModel::load(path_, options, pool_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kUnavailable);
  EXPECT_FALSE(was_packing);
  options.admit = {};
  const auto loaded = LoadedModel::load(path_, options, pool_);
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  const Decoder& decoder = (*loaded)->decoder();
  EXPECT_EQ(decoder.packed_bytes() + decoder.workspace_bytes(), asked);
}

}  // namespace
}  // namespace skein
