// Tokens that a GPU draws, against those that the host draws from the same rows.
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "backend/registry.h"
#include "base/rng.h"
#include "engine/drawn.h"

namespace skein {
namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity();

class CudaDraws : public ::testing::Test {
 protected:
  void SetUp() override {
    auto cuda = make_backend({.device = "cuda", .precision = Precision::kDefault}, pool_);
    if (!cuda.ok()) GTEST_SKIP() << cuda.message();
    backend_ = std::move(*cuda);
  }

  double uniform() { return static_cast<double>(rng_.next() >> 11) * 0x1p-53; }

  // Rows of every kind: spread like a language model's, flat, a few tokens far ahead, few distinct
  // values, parts impossible.
  std::vector<float> random_row(size_t width) {
    std::vector<float> row(width);
    const uint64_t kind = rng_.below(6);
    for (float& x : row) {
      const double bell = uniform() + uniform() + uniform() + uniform() - 2;
      x = static_cast<float>(kind == 0 ? 1 : kind == 1 ? std::round(4 * bell) : 8 * bell);
      if (kind == 5) x *= 0.01F;
      if (kind == 3 && rng_.chance(1, 3)) x = kOut;
    }
    if (kind >= 2) row[rng_.below(width)] = 12;
    if (kind == 4) {
      for (int i = 0; i < 50; ++i) row[rng_.below(width)] = static_cast<float>(20 + 5 * uniform());
    }
    return row;
  }

  Draw random_draw(size_t width) {
    const float temperatures[] = {0, 0x1p-20F, 0.1F, 0.7F, 1, 3, 100};
    const float shares[] = {0.05F, 0.5F, 0.95F, 0.999F, 0.999999F};
    const float least[] = {1, 0.3F, 0.05F, 0.001F, 1e-9F};
    Draw draw;
    draw.temperature = temperatures[rng_.below(7)];
    if (rng_.chance(1, 3)) draw.top_k = static_cast<uint32_t>(rng_.between(1, 2 * width));
    if (rng_.chance(1, 3)) draw.top_k = static_cast<uint32_t>(rng_.between(1, 50));
    if (rng_.chance(1, 2)) draw.top_p = shares[rng_.below(5)];
    if (rng_.chance(1, 3)) draw.min_p = least[rng_.below(5)];
    draw.random = rng_.chance(1, 10) ? 0 : rng_.chance(1, 10) ? UINT64_MAX : rng_.next();
    return draw;
  }

  ComputePool pool_{4};
  std::unique_ptr<Backend> backend_;
  Rng rng_{20};
};

TEST_F(CudaDraws, AreThoseOfTheHost) {
  constexpr size_t kRows = 48;
  for (const size_t width : {1U, 15U, 1000U, 1024U, 5000U, 49152U, 128256U}) {
    auto queue = backend_->make_draw_queue(kRows, width, 2);
    ASSERT_TRUE(queue.ok() && *queue != nullptr);
    auto memory = backend_->allocate(kRows * width * sizeof(float));
    ASSERT_TRUE(memory.ok()) << memory.message();
    const Rows rows{memory->floats(), kRows, width, width};
    for (int round = 0; round < 8; ++round) {
      std::vector<float> logits;
      std::vector<Draw> draws;
      for (size_t i = 0; i < kRows; ++i) {
        const std::vector<float> row = random_row(width);
        logits.insert(logits.end(), row.begin(), row.end());
        draws.push_back(random_draw(width));
      }
      backend_->write(memory->floats(), logits);
      (*queue)->find(rows, draws);
      std::vector<VocabularyScan::Argmax> found(kRows);
      (*queue)->take(found);
      for (size_t i = 0; i < kRows; ++i) {
        const std::span<const float> row = std::span(logits).subspan(i * width, width);
        const Draw& draw = draws[i];
        if (*std::max_element(row.begin(), row.end()) == kOut) continue;
        EXPECT_EQ(static_cast<TokenId>(found[i].index),
                  testing::drawn_from(row, draw, backend_->scan()))
            << width << ", row " << i << ": temperature " << draw.temperature << ", top_k "
            << draw.top_k << ", top_p " << draw.top_p << ", min_p " << draw.min_p << ", random "
            << draw.random;
        EXPECT_EQ(found[i].value, backend_->scan().argmax(row).value);
      }
    }
  }
}

// A part whose tokens weigh nothing each, but something together: the bits that lead there are as
// good as any, and a client that names its seed names them.
TEST_F(CudaDraws, APartWithoutWeightyTokensGivesOneOfItsOwn) {
  for (const size_t width : {2048U, 3072U, 5000U}) {
    auto queue = backend_->make_draw_queue(2, width, 1);
    ASSERT_TRUE(queue.ok() && *queue != nullptr);
    std::vector<float> logits(2 * width, -29.9F);  // less than half a unit
    logits[0] = logits[width] = 0;
    const size_t last_part = (width - 1) / drawing::kPartTokens * drawing::kPartTokens;
    logits[width + last_part] = kOut;
    auto memory = backend_->allocate(logits.size() * sizeof(float));
    ASSERT_TRUE(memory.ok()) << memory.message();
    backend_->write(memory->floats(), logits);
    const std::vector<Draw> draws(2, Draw{1, 0, 1, 0, UINT64_MAX});
    (*queue)->find({memory->floats(), 2, width, width}, draws);
    std::vector<VocabularyScan::Argmax> found(2);
    (*queue)->take(found);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(found[i].index, last_part + i) << width;
      EXPECT_EQ(static_cast<TokenId>(found[i].index),
                testing::drawn_from(std::span(logits).subspan(i * width, width), draws[i],
                                    backend_->scan()));
    }
  }
}

// A row that is not sound says so and takes nothing from the others.
TEST_F(CudaDraws, OneThatIsNotSoundIsNotDrawnFrom) {
  constexpr size_t kWidth = 3000;
  auto queue = backend_->make_draw_queue(4, kWidth, 1);
  ASSERT_TRUE(queue.ok() && *queue != nullptr);
  std::vector<float> logits;
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> row = random_row(kWidth);
    logits.insert(logits.end(), row.begin(), row.end());
  }
  logits[kWidth + 77] = std::numeric_limits<float>::quiet_NaN();
  auto memory = backend_->allocate(logits.size() * sizeof(float));
  ASSERT_TRUE(memory.ok()) << memory.message();
  backend_->write(memory->floats(), logits);
  const std::vector<Draw> draws(3, Draw{1, 0, 0.9F, 0, 12345});
  (*queue)->find({memory->floats(), 3, kWidth, kWidth}, draws);
  std::vector<VocabularyScan::Argmax> found(3);
  (*queue)->take(found);
  EXPECT_FALSE(found[1].all_finite);
  for (const size_t i : {0U, 2U}) {
    EXPECT_TRUE(found[i].all_finite);
    EXPECT_EQ(static_cast<TokenId>(found[i].index),
              testing::drawn_from(std::span(logits).subspan(i * kWidth, kWidth), draws[i],
                                  backend_->scan()));
  }
}

}  // namespace
}  // namespace skein
