// Every family on the GPU: the CPU's float32, bit for bit, and at the default precision the bits of
// the reference in the GPU's profile.
#include <algorithm>
#include <bit>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "model/goldens.h"
#include "model/runner.h"

namespace skein {
namespace {

using testing::Feed;
using testing::Golden;
using testing::GoldenCase;
using testing::Runner;
using Logits = std::vector<std::vector<float>>;

::testing::AssertionResult same(const Logits& got, const Logits& want) {
  if (got.size() != want.size()) return ::testing::AssertionFailure() << got.size() << " rows";
  for (size_t row = 0; row < want.size(); ++row) {
    for (size_t i = 0; i < want[row].size(); ++i) {
      if (std::bit_cast<uint32_t>(got[row][i]) == std::bit_cast<uint32_t>(want[row][i])) continue;
      return ::testing::AssertionFailure()
             << "row " << row << ", logit " << i << ": " << std::hexfloat << got[row][i] << ", not "
             << want[row][i];
    }
  }
  return ::testing::AssertionSuccess();
}

TokenId best_of(const std::vector<float>& logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

class CudaFamilies : public ::testing::Test {
 protected:
  void SetUp() override {
    ComputePool pool(1);
    const auto cuda = make_backend({.device = "cuda", .precision = Precision::kF32}, pool);
    if (!cuda.ok()) GTEST_SKIP() << cuda.message();
  }

  // The prompt at once and in chunks, then greedy tokens.
  static void check_case(Runner& cuda, Runner& cpu, const GoldenCase& golden) {
    constexpr size_t kTokens = 8, kChunk = 7;
    const auto tokens = static_cast<uint32_t>(golden.prompt.size() + kTokens);
    Feed mine = Runner::feed(tokens), theirs = Runner::feed(tokens);
    Feed pieces = Runner::feed(tokens, Runner::kBlocks / 2);
    Logits got = cuda.step(mine, golden.prompt), want = cpu.step(theirs, golden.prompt);
    ASSERT_TRUE(same(got, want));
    Feed again = Runner::feed(tokens), theirs_again = Runner::feed(tokens);
    ASSERT_TRUE(same(cuda.hidden(again, golden.prompt), cpu.hidden(theirs_again, golden.prompt)))
        << "hidden states";
    Logits in_chunks;
    for (size_t first = 0; first < golden.prompt.size(); first += kChunk) {
      const size_t count = std::min(kChunk, golden.prompt.size() - first);
      const auto part = std::span(golden.prompt).subspan(first, count);
      for (auto& row : cuda.step(pieces, part)) in_chunks.push_back(std::move(row));
    }
    ASSERT_TRUE(same(in_chunks, want)) << "in chunks";
    for (size_t i = 0; i < kTokens; ++i) {
      const TokenId token = best_of(want.back());
      got = cuda.step(mine, {&token, 1});
      want = cpu.step(theirs, {&token, 1});
      ASSERT_TRUE(same(got, want)) << "greedy token " << i;
    }
  }

  // At the default precision, where the device has it.
  static void check_f16(const Golden& golden, const std::string& path) {
    SCOPED_TRACE(path + " default");
    Runner cuda(path, Precision::kDefault, KvType::kBf16, Runner::Arithmetic::kCuda);
    Runner reference(path, Precision::kDefault, KvType::kBf16, Runner::Arithmetic::kHopper);
    ASSERT_TRUE(cuda.status().ok()) << cuda.status().message();
    ASSERT_TRUE(reference.status().ok()) << reference.status().message();
    for (const GoldenCase& item : golden.cases) {
      SCOPED_TRACE(::testing::Message() << "prompt of " << item.prompt.size());
      check_case(cuda, reference, item);
    }
  }
  static bool has_f16() {
    ComputePool pool(1);
    return make_backend({.device = "cuda", .precision = Precision::kDefault}, pool).ok();
  }

  static void check_file(const Golden& golden, const std::string& path) {
    for (const KvType type : {KvType::kF32, KvType::kBf16, KvType::kInt8}) {
      SCOPED_TRACE(path + (type == KvType::kF32    ? " f32"
                           : type == KvType::kBf16 ? " bf16"
                                                   : " int8"));
      Runner cuda(path, Precision::kF32, type, Runner::Arithmetic::kCuda);
      Runner cpu(path, Precision::kF32, type);
      ASSERT_TRUE(cuda.status().ok()) << cuda.status().message();
      ASSERT_TRUE(cpu.status().ok()) << cpu.status().message();
      for (const GoldenCase& item : golden.cases) {
        SCOPED_TRACE(::testing::Message() << "prompt of " << item.prompt.size());
        check_case(cuda, cpu, item);
      }
    }
  }
};

TEST_F(CudaFamilies, OfSafetensorsAreTheCpus) {
  testing::check_folders(check_file);
}

TEST_F(CudaFamilies, OfGgufAreTheCpus) {
  testing::check_ggufs(check_file);
}

TEST_F(CudaFamilies, AtTheDefaultPrecisionAreTheReferences) {
  if (!has_f16()) GTEST_SKIP() << "the device is no Hopper";
  testing::check_folders(check_f16);
  testing::check_ggufs(check_f16);
}

}  // namespace
}  // namespace skein
