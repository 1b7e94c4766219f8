// Ops on rows alone: norms, activations, angles, logits, routing, gathering.
#include <cmath>
#include <cstring>

#include "backend/conformance.h"
#include "base/special_floats.h"

namespace skein {
namespace {

using testing::kInf;
constexpr size_t kRowCounts[] = {0, 1, 3, 40};
constexpr size_t kWidths[] = {1, 15, 16, 31, 64, 100, 577};

class RowOps : public Conformance {};

TEST_P(RowOps, Norm) {
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    for (const uint32_t parts : {1U, 3U}) {
      for (const size_t width : kWidths) {
        const std::vector<float> weight = random_floats(width * parts, rng_);
        const std::vector<float> bias = random_floats(width * parts, rng_);
        for (const int which : {0, 1, 2, 3}) {
          const auto params = [&](TestBackend& b) {
            NormParams made{kind, 1e-5F, nullptr, nullptr, parts, which % 2 == 1};
            if (which > 0) made.weight = b.up(weight);
            if (which > 1) made.bias = b.up(bias);
            return made;
          };
          const OwnedRows x = OwnedRows::random(40, width * parts, rng_, 4);
          const auto into = [&](TestBackend& b, Rows out) { b->norm(b.up(x), params(b), out); };
          EXPECT_TRUE(same(OwnedRows(40, width * parts), into)) << width << " " << which;
          const auto in_place = [&](TestBackend& b, Rows rows) { b->norm(rows, params(b), rows); };
          EXPECT_TRUE(same(x, in_place)) << width << " " << which;
        }
      }
    }
  }
}

TEST_P(RowOps, Add) {
  for (const size_t rows : kRowCounts) {
    for (const size_t width : kWidths) {
      const OwnedRows delta = OwnedRows::random(rows, width, rng_);
      for (const float scale : {1.0F, 0.22F}) {
        const auto add = [&](TestBackend& b, Rows x) { b->add(x, b.up(delta), scale); };
        EXPECT_TRUE(same(OwnedRows::random(rows, width, rng_), add)) << width;
      }
    }
  }
}

TEST_P(RowOps, Activate) {
  for (const Activation kind :
       {Activation::kSiluGated, Activation::kGeluTanhGated, Activation::kGeluTanh,
        Activation::kSwigluClamped, Activation::kGelu}) {
    if (kind == Activation::kGelu && !backend_->runs_encoders()) continue;
    const ActivationParams params{kind, 1.702F, 7.0F};
    for (const size_t rows : kRowCounts) {
      for (const size_t width : kWidths) {
        OwnedRows x = OwnedRows::random(rows, width * (params.gated() ? 2 : 1), rng_, 20);
        if (rows > 1) {  // and what no model should come to
          x.at(0)[0] = std::numeric_limits<float>::quiet_NaN();
          x.at(1)[0] = -kInf;
          x.at(1)[width / 2] = 1e30F;
        }
        const auto into = [&](TestBackend& b, Rows out) { b->activate(b.up(x), params, out); };
        EXPECT_TRUE(same(OwnedRows(rows, width), into)) << rows << " " << width;
      }
    }
  }
}

TEST_P(RowOps, EmbedsPositionsAndTexts) {
  if (!backend_->runs_encoders()) GTEST_SKIP() << "it runs no encoders";
  const OwnedTensor weights = random_tensor(ElementType::kF16, 70, 96, rng_);
  const Both both = tables({weights.view});
  const std::vector<BlockId> blocks(3, BlockId{0});
  const std::vector<Sequence> sequences = {
      {0, 5, 0, true, blocks, 3}, {5, 1, 69, true, blocks}, {6, 4, 2, true, blocks, 1}};
  for (const RowFact fact : {RowFact::kPosition, RowFact::kText}) {
    const auto embed = [&](TestBackend& b, Rows out) {
      b->embed_by(fact, of(b, both), b.begin(sequences), out);
    };
    EXPECT_TRUE(same(OwnedRows(10, 96), embed));
    const OwnedRows got = run(backend_, OwnedRows(10, 96), embed);
    const uint32_t positions[] = {0, 1, 2, 3, 4, 69, 2, 3, 4, 5};
    const uint32_t texts[] = {0, 0, 0, 1, 1, 0, 1, 1, 1, 1};
    for (size_t row = 0; row < 10; ++row) {
      std::vector<float> want(96);
      dequantize(weights.view.type,
                 weights.view.row(fact == RowFact::kPosition ? positions[row] : texts[row]), want);
      EXPECT_EQ(got.row(row), want) << row;
    }
  }
}

TEST_P(RowOps, AnglesOfARope) {
  const std::vector<uint32_t> positions = {0, 1, 31, 32, 8191, 131'071, 999'999};
  const std::vector<BlockId> blocks(blocks_for(1'000'000), BlockId{0});
  std::vector<Sequence> sequences;
  for (const uint32_t position : positions) {
    sequences.push_back({static_cast<uint32_t>(sequences.size()), 1, position, true, blocks});
  }
  for (const size_t half : {1, 5, 16, 20, 64}) {
    std::vector<float> frequencies(half);
    for (size_t j = 0; j < half; ++j) {
      frequencies[j] = std::pow(10'000.0F, -static_cast<float>(j) / static_cast<float>(half));
    }
    const auto angles = [&](TestBackend& b, Rows out) {
      const auto rope = b->make_rope(frequencies, 1.25F);
      ASSERT_TRUE(rope.ok()) << rope.message();
      EXPECT_EQ((*rope)->width(), 2 * half);
      b->rope_angles(b.begin(sequences), **rope, out);
    };
    EXPECT_TRUE(same(OwnedRows(positions.size(), 2 * half), angles)) << half;
    // The first frequency is 1.
    const OwnedRows got = run(backend_, OwnedRows(positions.size(), 2 * half), angles);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(got.row(i)[0], 1.25 * std::cos(positions[i]), 1e-5) << positions[i];
      EXPECT_NEAR(got.row(i)[half], 1.25 * std::sin(positions[i]), 1e-5) << positions[i];
    }
  }
}

TEST_P(RowOps, FinishLogits) {
  for (const size_t width : {1, 33, 5003}) {
    for (const float softcap : {0.0F, 30.0F}) {
      for (const float scale : {1.0F, 0.0625F}) {
        const auto finish = [&](TestBackend& b, Rows x) { b->finish_logits(x, scale, softcap); };
        EXPECT_TRUE(same(OwnedRows::random(3, width, rng_, 100), finish)) << width;
      }
    }
  }
}

TEST_P(RowOps, Gather) {
  const OwnedRows x = OwnedRows::random(9, 37, rng_);
  const std::vector<TokenId> tokens(9, 0);
  const std::vector<uint32_t> rows = {8, 0, 3, 3};
  const auto gather = [&](TestBackend& b, Rows out) {
    const Step step = b.begin(tokens, rows);
    EXPECT_EQ(step.rows, 9U);
    EXPECT_EQ(step.logits, 4U);
    b->gather(b.up(x), step, out);
  };
  EXPECT_TRUE(same(OwnedRows(4, 37), gather));
  EXPECT_EQ(run(backend_, OwnedRows(4, 37), gather).row(0), x.row(8));
}

// What routes hold, as ops show it: an expert that gives its number, rows that give the weights.
struct Routed {
  Routed(TestBackend& b, const OwnedRows& logits, RouterKind kind, uint32_t used) {
    const std::unique_ptr<Routes> routes = b.routes(logits, kind, used);
    const size_t rows = logits.rows();
    std::vector<OwnedTensor> numbers;
    std::vector<std::unique_ptr<Matrix>> matrices;
    for (size_t e = 0; e < logits.width(); ++e) {
      OwnedTensor number;
      const auto value = static_cast<float>(e);
      number.bytes.resize(sizeof value);
      std::memcpy(number.bytes.data(), &value, sizeof value);
      numbers.push_back(std::move(number));
      const TensorView view{ElementType::kF32, {1, 1}, numbers.back().bytes};
      matrices.push_back(b.matrix({view}));
    }
    const Rows chosen = b.up(OwnedRows(rows * used, 1));
    b->expert_linear(b.up(OwnedRows::filled(rows, 1, 1)), matrices, nullptr, *routes, chosen);
    OwnedRows units = OwnedRows::filled(rows * used, used, 0);
    for (size_t i = 0; i < rows * used; ++i) units.at(i)[i % used] = 1;
    const Rows weighed = b.up(OwnedRows(rows, used));
    b->combine(b.up(units), *routes, weighed);
    const OwnedRows numbers_chosen = b.down(chosen), weights_given = b.down(weighed);
    for (size_t i = 0; i < rows * used; ++i) {
      experts.push_back(static_cast<uint32_t>(numbers_chosen.row(i)[0]));
      weights.push_back(weights_given.row(i / used)[i % used]);
    }
  }

  std::vector<uint32_t> experts;
  std::vector<float> weights;
};

TEST_P(RowOps, RouteChoosesTheBestAndLowerNumbersFirst) {
  OwnedRows x = OwnedRows::random(40, 33, rng_, 5);
  std::fill_n(x.at(3), 33, 1.0F);  // all equal
  x.at(4)[7] = std::numeric_limits<float>::quiet_NaN();
  for (const RouterKind kind : {RouterKind::kSoftmaxThenTop, RouterKind::kSoftmaxThenTopNormalized,
                                RouterKind::kTopThenSoftmax}) {
    const uint32_t used = 4;
    const Routed got(backend_, x, kind, used), want(reference_, x, kind, used);
    EXPECT_EQ(got.experts, want.experts);
    EXPECT_TRUE(agree(got.weights, want.weights));
    EXPECT_EQ(std::vector(got.experts.begin() + 12, got.experts.begin() + 16),
              (std::vector<uint32_t>{0, 1, 2, 3}));
    for (size_t i = 0; i < 40; ++i) {
      if (i == 4) continue;
      float sum = 0;
      for (size_t j = 0; j < used; ++j) sum += got.weights[i * used + j];
      if (kind == RouterKind::kSoftmaxThenTop) {
        EXPECT_LT(sum, 1.0F);
      } else {
        EXPECT_NEAR(sum, 1.0F, 1e-6);
      }
      EXPECT_GE(x.row(i)[got.experts[i * used]], x.row(i)[got.experts[i * used + 1]]);
    }
  }
}

TEST_P(RowOps, Combine) {
  for (const size_t rows : kRowCounts) {
    for (const size_t width : kWidths) {
      const uint32_t used = 3;
      const OwnedRows logits = OwnedRows::random(rows, 8, rng_, 3);
      const OwnedRows x = OwnedRows::random(rows * used, width, rng_);
      const auto combine = [&](TestBackend& b, Rows out) {
        b->combine(b.up(x), *b.routes(logits, RouterKind::kTopThenSoftmax, used), out);
      };
      EXPECT_TRUE(same(OwnedRows(rows, width), combine)) << rows << " " << width;
    }
  }
}

TEST_P(RowOps, NothingOfARowReachesItsNeighbours) {
  const size_t width = 100;
  OwnedRows x = OwnedRows::random(5, 2 * width, rng_, 3);
  const auto result = [&](const OwnedRows& in) {
    const Rows rows = backend_.up(in), out = backend_.up(OwnedRows(in.rows(), width));
    backend_->norm(rows, {}, rows);
    backend_->activate(rows, {}, out);
    return backend_.down(out);
  };
  const OwnedRows alone = result(x.part(2, 1));
  std::fill_n(x.at(1), 2 * width, std::numeric_limits<float>::quiet_NaN());
  std::fill_n(x.at(3), 2 * width, kInf);
  EXPECT_TRUE(same_bits(result(x).row(2), alone.row(0)));
}

TEST_P(RowOps, TheCallersFloatingPointModeComesBack) {
  volatile float tiny = std::numeric_limits<float>::min();
  const Rows x = backend_.up(OwnedRows::random(64, 1000, rng_));
  backend_->add(x, x, 1.0F);
  EXPECT_GT(tiny / 2, 0.0F);
}

TEST(Tolerance, IsRelativeToTheLargestOfAResult) {
  const float want[] = {100, 1, -kInf};
  const float near[] = {100.05F, 0.95F, -kInf}, far[] = {100, 1.2F, -kInf}, lost[] = {100, 1, 100};
  EXPECT_TRUE(within(near, want, 1e-3F));
  EXPECT_FALSE(within(far, want, 1e-3F));
  EXPECT_FALSE(within(lost, want, 1e-3F));
  EXPECT_FALSE(within(std::span(near).first(2), want, 1e-3F));
  EXPECT_FALSE(within(std::vector{std::nanf("")}, std::vector{1.0F}, 1e-3F));
}

INSTANTIATE_TEST_SUITE_P(Backends, RowOps, ::testing::ValuesIn(backend_params()), param_name);

}  // namespace
}  // namespace skein
