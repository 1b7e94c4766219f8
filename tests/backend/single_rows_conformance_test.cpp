// Attention of sequences that have one row each, as most steps are.
#include "backend/attention_conformance.h"

namespace skein {
namespace {

class SingleRows : public AttentionOps {
 protected:
  // With and without what masks and turns; one row sees `longest` tokens and itself.
  void compare(const Shape4& shape, uint32_t longest = 145) {
    constexpr uint32_t kRows = 60, kBlocks = 700;
    const Caches caches = filled_caches(KvType::kBf16, kBlocks, shape);
    Shuffled blocks(kBlocks, rng_);
    std::vector<Sequence> sequences;
    for (uint32_t i = 0; i < kRows; ++i) {
      const uint32_t context = i < 4 ? 254 + i : i == 5 ? longest : i * 29 % 520;
      sequences.push_back({i, 1, context, i % 7 != 0, blocks.take(context + 1)});
    }
    const size_t kv_width = shape.kv_heads * shape.head_dim, width = kv_width * shape.shared;
    const OwnedRows k = OwnedRows::random(kRows, kv_width, rng_);
    const OwnedRows v = OwnedRows::random(kRows, kv_width, rng_);
    const OwnedRows q = OwnedRows::random(kRows, width, rng_, 3);
    const OwnedRows angles = OwnedRows::random(kRows, 16, rng_);
    const std::vector<float> sinks = random_floats(width / shape.head_dim, rng_);
    for (const uint32_t window : {0U, 100U, 256U}) {
      std::vector<std::vector<float>> results[2];
      for (TestBackend* const b : {&backend_, &reference_}) {
        b->clear();
        AttentionParams params = params_for(shape);
        params.window = window;
        if (window == 100) params.sinks = b->up(sinks);
        if (window == 256) params.softcap = 5;
        // One right after the other, as a decoder has them.
        const auto up = [&](const OwnedRows& x) {
          std::vector<float> values;
          for (size_t i = 0; i < x.rows(); ++i) {
            const auto row = x.row(i);
            values.insert(values.end(), row.begin(), row.end());
          }
          return Rows{b->up(values), x.rows(), x.width(), x.width()};
        };
        QkTransform transform;
        if (window != 0) transform.angles = up(angles);
        if (window == 100) transform.layout = RopeLayout::kPairs;
        const Rows all[] = {up(q), up(k), up(v), up(OwnedRows::filled(kRows, width, 0))};
        b->attend(all[0], all[1], all[2], transform, sequences, of(*b, caches), params, all[3]);
        for (const Rows& rows : all) {
          const HostRows read = (*b)->read(rows);
          results[b == &reference_].emplace_back(read.data, read.data + read.rows * read.width);
        }
      }
      for (size_t i = 0; i < results[0].size(); ++i) {
        ASSERT_TRUE(agree(results[0][i], results[1][i]))
            << shape.head_dim << " window " << window << " rows " << i;
      }
    }
  }
};

TEST_P(SingleRows, OfUsualHeads) {
  for (const Shape4& shape : {Shape4{64, 2, 3}, {128, 2, 4}, {256, 2, 2}}) compare(shape);
}

TEST_P(SingleRows, OfOtherHeads) {
  for (const Shape4& shape : {Shape4{120, 2, 2}, {60, 2, 2}, {80, 2, 2}, {24, 2, 1}})
    compare(shape);
}

// More heads of rows than a device has processors, and rows of many spans.
TEST_P(SingleRows, OfManyHeads) {
  for (const Shape4& shape : {Shape4{64, 3, 4}, {128, 3, 8}, {256, 3, 2}, {128, 4, 1}}) {
    compare(shape, 1'800);
  }
}

// On hosts they are as all others.
std::vector<BackendParam> single_row_params() {
  std::vector<BackendParam> params = {
      {cpu_under_test(available_isas().back()), 1, Precision::kDefault}};
  for (const BackendUnderTest& backend : backends_under_test()) {
    if (!backend.computes_on_host) params.push_back({backend, 1, Precision::kDefault});
  }
  return params;
}

INSTANTIATE_TEST_SUITE_P(Backends, SingleRows, ::testing::ValuesIn(single_row_params()),
                         param_name);

}  // namespace
}  // namespace skein
