// How far the faster precisions are from float32, on the default model.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "engine/divergence.h"
#include "engine/evaluate.h"
#include "format/json.h"
#include "format/test_folder.h"

namespace skein {
namespace {

const std::string kReference = SKEIN_SOURCE_DIR "/../shared/reference/smollm2.json";
constexpr size_t kTokens = 128;  // of each sequence, to keep this quick

std::unique_ptr<LoadedModel> load(Precision precision, ComputePool& pool) {
  ModelOptions options;
  options.precision = precision;
  options.limits = {.rows = 64, .logit_rows = 64};
  auto model = LoadedModel::load(testing::default_model_path(), options, pool);
  EXPECT_TRUE(model.ok()) << model.message();
  return std::move(*model);
}

class PrecisionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(testing::default_model_path())) {
      GTEST_SKIP() << testing::default_model_path() << " is not there";
    }
    std::ifstream in(kReference);
    if (!in) GTEST_SKIP() << kReference << " is not there";
    const Json reference = Json::parse(in);
    for (const Json& sequence : reference["kl"]["sequences"]) {
      std::vector<TokenId> ids = sequence;
      ids.resize(kTokens);
      sequences_.push_back(std::move(ids));
    }
    ASSERT_FALSE(sequences_.empty());
  }

  // Logits of every position of every sequence, one after the other.
  std::vector<float> logits(Precision precision) {
    const auto model = load(precision, pool_);
    const size_t vocab = model->decoder().spec().vocab;
    std::vector<float> all(sequences_.size() * kTokens * vocab);
    const Status status =
        Evaluator(*model).run(sequences_, {.all = true}, [&](const Evaluator::Row& row) {
          std::copy(
              row.logits.begin(), row.logits.end(),
              all.begin() + static_cast<ptrdiff_t>((row.list * kTokens + row.position) * vocab));
        });
    EXPECT_TRUE(status.ok()) << status.message();
    return all;
  }

  Divergence::Summary compare(const std::vector<float>& want, Precision precision) {
    const std::vector<float> got = logits(precision);
    const size_t rows = sequences_.size() * kTokens, vocab = want.size() / rows;
    Divergence divergence;
    for (size_t i = 0; i < rows; ++i) {
      divergence.add(std::span(want).subspan(i * vocab, vocab),
                     std::span(got).subspan(i * vocab, vocab), kNoToken);
    }
    const Divergence::Summary summary = divergence.summary();
    std::cout << "mean KL " << summary.mean_kl << ", same top token " << summary.same_top << "\n";
    return summary;
  }

  ComputePool pool_{2};
  std::vector<std::vector<TokenId>> sequences_;
};

TEST_F(PrecisionTest, DefaultAndHighStayCloseToFloat32) {
  const std::vector<float> exact = logits(Precision::kF32);
  const Divergence::Summary fast = compare(exact, Precision::kDefault);
  EXPECT_LE(fast.mean_kl, 1.1 * 0.00345);
  EXPECT_GE(fast.same_top, 0.945);
  EXPECT_GT(fast.mean_kl, 1e-4) << "not the arithmetic that was asked for";
  const Divergence::Summary high = compare(exact, Precision::kHigh);
  EXPECT_LT(high.mean_kl, 0.0003);
  EXPECT_GT(high.mean_kl, 1e-6) << "not the arithmetic that was asked for";
}

}  // namespace
}  // namespace skein
