// Ops on rows alone: norms, activations, rotation, logits, gathering.
#include "backend/conformance.h"

namespace skein {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
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
          NormParams params{kind, 1e-5F, nullptr, nullptr, parts, which % 2 == 1};
          if (which > 0) params.weight = weight.data();
          if (which > 1) params.bias = bias.data();
          const OwnedRows x = OwnedRows::random(40, width * parts, rng_, 4);
          const auto into = [&](Backend& b, Rows out) { b.norm(x.view(), params, out); };
          EXPECT_TRUE(same(OwnedRows(40, width * parts), into)) << width << " " << which;
          const auto in_place = [&](Backend& b, Rows rows) { b.norm(rows, params, rows); };
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
        const auto add = [&](Backend& b, Rows x) { b.add(x, delta.view(), scale); };
        EXPECT_TRUE(same(OwnedRows::random(rows, width, rng_), add)) << width;
      }
    }
  }
}

TEST_P(RowOps, Activate) {
  for (const Activation kind : {Activation::kSiluGated, Activation::kGeluTanhGated,
                                Activation::kGeluTanh, Activation::kSwigluClamped}) {
    const ActivationParams params{kind, 1.702F, 7.0F};
    for (const size_t rows : kRowCounts) {
      for (const size_t width : kWidths) {
        OwnedRows x = OwnedRows::random(rows, width * (params.gated() ? 2 : 1), rng_, 20);
        if (rows > 1) {  // and what no model should come to
          x.view().row(0)[0] = std::numeric_limits<float>::quiet_NaN();
          x.view().row(1)[0] = -kInf;
          x.view().row(1)[width / 2] = 1e30F;
        }
        const auto into = [&](Backend& b, Rows out) { b.activate(x.view(), params, out); };
        EXPECT_TRUE(same(OwnedRows(rows, width), into)) << rows << " " << width;
      }
    }
  }
}

TEST_P(RowOps, RopeInBothLayouts) {
  for (const size_t half : {1, 5, 16, 20, 64}) {
    std::vector<float> frequencies(half);
    for (size_t j = 0; j < half; ++j) {
      frequencies[j] = std::pow(10'000.0F, -static_cast<float>(j) / static_cast<float>(half));
    }
    const std::vector<uint32_t> positions = {0, 1, 31, 32, 8191, 131'071, 999'999};
    const auto angles = [&](Backend& b, Rows out) {
      b.rope_angles(positions, frequencies, 1.25F, out);
    };
    OwnedRows turned(positions.size(), 2 * half);
    ASSERT_TRUE(same(turned, angles)) << half;
    angles(*reference_, turned.view());
    for (const RopeLayout layout : {RopeLayout::kHalves, RopeLayout::kPairs}) {
      const size_t head_dim = 2 * half + 6;  // the last six stay
      const auto rope = [&](Backend& b, Rows x) { b.rope(x, 3, layout, turned.view()); };
      const OwnedRows x = OwnedRows::random(positions.size(), 3 * head_dim, rng_);
      EXPECT_TRUE(same(x, rope)) << half;
    }
  }
}

TEST_P(RowOps, FinishLogits) {
  for (const size_t width : {1, 33, 5003}) {
    for (const float softcap : {0.0F, 30.0F}) {
      for (const float scale : {1.0F, 0.0625F}) {
        const auto finish = [&](Backend& b, Rows x) { b.finish_logits(x, scale, softcap); };
        EXPECT_TRUE(same(OwnedRows::random(3, width, rng_, 100), finish)) << width;
      }
    }
  }
}

TEST_P(RowOps, Gather) {
  const OwnedRows x = OwnedRows::random(9, 37, rng_);
  const std::vector<uint32_t> rows = {8, 0, 3, 3};
  const auto gather = [&](Backend& b, Rows out) { b.gather(x.view(), rows, out); };
  EXPECT_TRUE(same(OwnedRows(4, 37), gather));
  const OwnedRows out(4, 37);
  gather(*backend_, out.view());
  EXPECT_EQ(out.row(0), x.row(8));
}

TEST_P(RowOps, RouteChoosesTheBestAndLowerNumbersFirst) {
  OwnedRows x = OwnedRows::random(40, 33, rng_, 5);
  std::fill_n(x.view().row(3), 33, 1.0F);  // all equal
  x.view().row(4)[7] = std::numeric_limits<float>::quiet_NaN();
  for (const RouterKind kind : {RouterKind::kSoftmaxThenTop, RouterKind::kSoftmaxThenTopNormalized,
                                RouterKind::kTopThenSoftmax}) {
    const uint32_t used = 4;
    std::vector<uint32_t> got(40 * used), want(40 * used);
    std::vector<float> got_weights(40 * used), want_weights(40 * used);
    backend_->route(x.view(), kind, {used, got, got_weights});
    reference_->route(x.view(), kind, {used, want, want_weights});
    EXPECT_EQ(got, want);
    EXPECT_TRUE(same_bits(got_weights, want_weights));
    EXPECT_EQ(std::vector(got.begin() + 12, got.begin() + 16), (std::vector<uint32_t>{0, 1, 2, 3}));
    for (size_t i = 0; i < 40; ++i) {
      if (i == 4) continue;
      float sum = 0;
      for (size_t j = 0; j < used; ++j) sum += got_weights[i * used + j];
      if (kind == RouterKind::kSoftmaxThenTop) {
        EXPECT_LT(sum, 1.0F);
      } else {
        EXPECT_NEAR(sum, 1.0F, 1e-6);
      }
      EXPECT_GE(x.row(i)[got[i * used]], x.row(i)[got[i * used + 1]]);
    }
  }
}

TEST_P(RowOps, Combine) {
  for (const size_t rows : kRowCounts) {
    for (const size_t width : kWidths) {
      const uint32_t used = 3;
      std::vector<uint32_t> experts(rows * used);
      std::vector<float> weights = random_floats(rows * used, rng_);
      const OwnedRows x = OwnedRows::random(rows * used, width, rng_);
      const auto combine = [&](Backend& b, Rows out) {
        b.combine(x.view(), {used, experts, weights}, out);
      };
      EXPECT_TRUE(same(OwnedRows(rows, width), combine)) << rows << " " << width;
    }
  }
}

TEST_P(RowOps, NothingOfARowReachesItsNeighbours) {
  const size_t width = 100;
  OwnedRows x = OwnedRows::random(5, 2 * width, rng_, 3);
  const auto run = [&](Rows in) {
    const OwnedRows normed(in.rows, 2 * width), out(in.rows, width);
    backend_->norm(in, {}, normed.view());
    backend_->activate(normed.view(), {}, out.view());
    return out;
  };
  const OwnedRows alone = run({x.view().row(2), 1, 2 * width, x.view().stride});
  std::fill_n(x.view().row(1), 2 * width, std::numeric_limits<float>::quiet_NaN());
  std::fill_n(x.view().row(3), 2 * width, kInf);
  EXPECT_TRUE(same_bits(run(x.view()).row(2), alone.row(0)));
}

TEST_P(RowOps, TheCallersFloatingPointModeComesBack) {
  volatile float tiny = std::numeric_limits<float>::min();
  const OwnedRows x = OwnedRows::random(64, 1000, rng_);
  backend_->add(x.view(), x.view(), 1.0F);
  EXPECT_GT(tiny / 2, 0.0F);
}

INSTANTIATE_TEST_SUITE_P(Backends, RowOps, ::testing::ValuesIn(backend_params()), param_name);

}  // namespace
}  // namespace skein
