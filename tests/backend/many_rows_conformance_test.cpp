// What devices do otherwise than small steps show, and matrices that they fill by themselves.
#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/attention_conformance.h"
#include "backend/seeded_backend.h"
#include "base/special_floats.h"

namespace skein {
namespace {

// Of the processor's one is enough: it cuts no step.
std::vector<BackendParam> params_of_devices() {
  std::vector<BackendParam> params;
  for (const BackendParam& param : backend_params_of_every_precision()) {
    const bool is_one = param.precision == Precision::kDefault && param.backend.name == "avx2";
    if (!param.backend.computes_on_host || (is_one && param.threads == 3)) params.push_back(param);
  }
  return params;
}

class ManyRows : public AttentionOps {
 protected:
  // A step of thousands of rows beside its sequences, one at a time. Numbers that are not finite
  // reach those rows alone that see them.
  void compare(const Shape4& shape, KvType type, uint32_t window, bool has_sinks) {
    constexpr std::pair<uint32_t, uint32_t> kStartsAndRows[] = {
        {0, 1},    {40, 3},  {0, 700}, {300, 1},    {7, 1},     {250, 5},  {0, 130},
        {511, 17}, {0, 256}, {30, 6},  {100, 1000}, {900, 150}, {1500, 20}};
    const size_t width = size_t{shape.kv_heads} * shape.head_dim;
    Shuffled blocks(210, rng_);
    std::vector<Sequence> sequences;
    uint32_t rows = 0;
    for (const auto& [start, count] : kStartsAndRows) {
      sequences.push_back({rows, count, start, true, blocks.take(start + count)});
      rows += count;
    }
    const auto kv = cache(backend_, type, 210, shape);
    const OwnedRows tokens = OwnedRows::random(size_t{210} * kBlockTokens, width, rng_);
    fill(backend_, *kv, tokens, tokens);
    const OwnedRows k = OwnedRows::random(rows, width, rng_);
    OwnedRows v = OwnedRows::random(rows, width, rng_);
    for (const Sequence& sequence : sequences) {
      if (sequence.rows % 2 == 0) v.at(sequence.first_row + sequence.rows / 3)[1] = testing::kNan;
    }
    const OwnedRows q = OwnedRows::random(rows, width * shape.shared, rng_, 3);
    const auto attend = [&](size_t first, size_t count, std::span<const Sequence> step) {
      return run(backend_, OwnedRows(count, q.width()), [&](TestBackend& b, Rows out) {
        AttentionParams params = params_for(shape);
        params.window = window;
        if (has_sinks) params.sinks = b.up(sinks_);
        b.attend(b.up(q.part(first, count)), b.up(k.part(first, count)), b.up(v.part(first, count)),
                 {}, step, *kv, params, out);
      });
    };
    const OwnedRows whole = attend(0, rows, sequences);
    for (Sequence sequence : sequences) {
      const uint32_t first = std::exchange(sequence.first_row, 0);
      EXPECT_TRUE(same_bits(attend(first, sequence.rows, {&sequence, 1}).all(),
                            whole.part(first, sequence.rows).all()))
          << sequence.rows << " rows from " << first << " on, heads of " << shape.head_dim
          << ", window " << window;
    }
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ManyRows);

// Such a step is cut otherwise than one of a few rows.
TEST_P(ManyRows, ManyRowsAreAsEachSequenceAlone) {
  for (const KvType type : kTypes) compare({64, 2, 4}, type, 0, false);
}

// Prompts have a kernel of their own there.
TEST_P(ManyRows, PromptsOfEveryHeadSize) {
  for (const Shape4& shape :
       {Shape4{64, 1, 16}, {128, 1, 4}, {256, 1, 2}, {80, 2, 3}, {24, 1, 5}, {144, 1, 1}}) {
    compare(shape, KvType::kBf16, 0, false);
    compare(shape, KvType::kBf16, 300, true);
  }
}

// Matrices that a device filled: from their seed alone, and the same numbers for every kernel that
// reads them.
TEST(SeededBackend, FillsMatricesOnADevice) {
  if (!has_cuda(Precision::kDefault)) GTEST_SKIP() << "no Hopper";
  ComputePool pool(1);
  const auto products = [&](ElementType type, uint64_t seed, size_t rows) {
    auto made = make_seeded_backend({.device = "cuda"}, pool, seed);
    EXPECT_TRUE(made.ok()) << made.message();
    TestBackend backend(std::move(*made));
    const auto matrix = backend.matrix({TensorView{type, {96, 512}, {}}});
    const Rows out = backend.up(OwnedRows(rows, 96, 0));
    backend->linear(backend.up(OwnedRows::filled(rows, 512, 1)), *matrix, nullptr, out);
    return backend.down(out).row(rows - 1);
  };
  using enum ElementType;
  for (const ElementType type : {kBF16, kQ4_0, kQ4_1, kQ5_0, kQ8_0, kQ4_K, kQ6_K, kIQ4_NL}) {
    SCOPED_TRACE(info(type).name);
    const std::vector<float> one = products(type, 1, 1);
    float largest = 0;
    for (const float x : one) largest = std::max(largest, std::abs(x));
    EXPECT_GT(largest, 0.01F);
    EXPECT_LT(largest, 10.0F);
    for (const size_t rows : {1, 20, 64, 100, 300}) {
      EXPECT_TRUE(same_bits(products(type, 1, rows), one)) << rows << " rows";
    }
    EXPECT_FALSE(same_bits(products(type, 2, 1), one));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ManyRows, ::testing::ValuesIn(params_of_devices()), param_name);

}  // namespace
}  // namespace skein
