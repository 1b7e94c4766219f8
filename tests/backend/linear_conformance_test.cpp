// Products with matrices: embedding and linear.
#include <array>
#include <cmath>
#include <cstring>

#include "backend/conformance.h"
#include "backend/host/memory.h"

namespace skein {
namespace {

class LinearOps : public Conformance {
 protected:
  // linear() of both backends on `rows` random rows.
  ::testing::AssertionResult same_linear(const std::vector<WeightView>& parts, size_t rows,
                                         bool with_bias) {
    const Both both = matrices(parts);
    const OwnedRows x = OwnedRows::random(rows, both.mine->inputs(), rng_);
    const std::vector<float> bias = random_floats(both.mine->outputs(), rng_);
    const auto linear = [&](TestBackend& b, Rows out) {
      b->linear(b.up(x), of(b, both), with_bias ? b.up(bias) : nullptr, out);
    };
    return same(OwnedRows(rows, both.mine->outputs()), linear);
  }
};

class RowTiles : public LinearOps {};

TEST_P(LinearOps, EveryElementType) {
  for (const ElementType type : kElementTypes) {
    if (!can_dequantize(type)) continue;
    SCOPED_TRACE(info(type).name);
    const uint32_t block = info(type).block_elements;
    for (const size_t outputs : {1, 7, 37}) {
      const OwnedTensor w =
          random_tensor(type, outputs, block == 1 ? 53 : block * (block == 32 ? 3 : 1), rng_);
      for (const size_t rows : {0, 1, 2, 3, 5}) {
        EXPECT_TRUE(same_linear({w.view}, rows, rows % 2 == 1)) << outputs << " x " << rows;
      }
    }
  }
}

TEST_P(LinearOps, EveryBitPatternOfABlockAndSubnormals) {
  for (const ElementType type : kElementTypes) {
    if (!can_dequantize(type)) continue;
    SCOPED_TRACE(info(type).name);
    const OwnedTensor w = random_tensor(type, 33, 512, rng_, /*wild=*/true);
    EXPECT_TRUE(same_linear({w.view}, 2, false));
    const Both both = tables({w.view});
    std::vector<TokenId> ids(33);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i);
    const auto embed = [&](TestBackend& b, Rows out) {
      b->embed(of(b, both), b.begin(ids), 1.0F, out);
    };
    EXPECT_TRUE(same(OwnedRows(33, 512), embed));
  }
}

TEST_P(LinearOps, AffineGroups) {
  for (const uint32_t bits : {4U, 8U}) {
    for (const uint32_t group : {32U, 64U, 128U}) {
      for (const ElementType side : {ElementType::kF32, ElementType::kF16, ElementType::kBF16}) {
        const OwnedAffine w = random_affine({bits, group}, side, 21, 256, rng_);
        EXPECT_TRUE(same_linear({w.view}, 3, true)) << bits << " " << group;
      }
    }
  }
}

TEST_P(LinearOps, PartsOfDifferentTypes) {
  const OwnedTensor a = random_tensor(ElementType::kQ4_1, 19, 256, rng_);
  const OwnedTensor b = random_tensor(ElementType::kQ6_K, 1, 256, rng_);
  const OwnedAffine c = random_affine({4, 64}, ElementType::kF16, 40, 256, rng_);
  const OwnedTensor d = random_tensor(ElementType::kF16, 9, 256, rng_);
  for (const size_t rows : {1, 4, 9, 33}) {
    EXPECT_TRUE(same_linear({a.view, b.view, c.view, d.view}, rows, true)) << rows;
  }
}

// Codes that a device multiplies where they lie: in segments, of many outputs, and where a scale is
// too small for the faster way.
TEST_P(LinearOps, CodesOfFourBits) {
  if (GetParam().backend.is_emulated) return;
  // Hosts have no segments, and RowTiles has every number of their rows on any number of threads.
  if (GetParam().backend.computes_on_host && GetParam().threads > 1) return;
  const auto check = [&](OwnedTensor& w, std::initializer_list<size_t> rows) {
    for (const bool is_far : {false, true}) {
      const uint16_t tiny = 0x0123;
      if (is_far) std::memcpy(w.bytes.data(), &tiny, sizeof tiny);
      for (const size_t m : rows) EXPECT_TRUE(same_linear({w.view}, m, m % 2 == 1)) << m;
    }
  };
  OwnedTensor segments = random_tensor(ElementType::kQ4_0, 70, 2048, rng_);
  check(segments, {1, 2, 8, 9, 16, 17, 32, 33, 64, 65});
  OwnedTensor wide = random_tensor(ElementType::kQ4_0, 8200, 256, rng_);
  check(wide, {1, 13, 40});
}

// Every kind of codes, in segments that are not whole chunks of strips.
TEST_P(LinearOps, CodesInUnevenSegments) {
  if (GetParam().backend.computes_on_host) return;  // which has no segments
  using enum ElementType;
  for (const ElementType type :
       {kQ4_0, kQ4_1, kQ8_0, kIQ4_NL, kMXFP4, kQ2_K, kQ4_K, kQ5_K, kQ6_K}) {
    const size_t inputs = info(type).name.ends_with("_K") ? 2304 : 576;
    const OwnedTensor w = random_tensor(type, 70, inputs, rng_);
    for (const size_t m : {1, 9, 20, 64, 65, 130, 257}) {
      EXPECT_TRUE(same_linear({w.view}, m, m % 2 == 1)) << info(type).name << " " << m;
    }
  }
}

TEST_P(LinearOps, OddShapes) {
  for (const size_t inputs : {1, 2, 15, 16, 17, 63, 200}) {
    for (const size_t outputs : {1, 8, 9, 33, 70}) {
      const OwnedTensor w = random_tensor(ElementType::kBF16, outputs, inputs, rng_);
      for (const size_t rows : {1, 4, 6, 11}) {
        EXPECT_TRUE(same_linear({w.view}, rows, false)) << inputs << " " << outputs << " " << rows;
      }
    }
  }
}

TEST_P(LinearOps, ARowIsTheSameAmongAnyNumberOfOthers) {
  const OwnedTensor w = random_tensor(ElementType::kQ4_1, 100, 192, rng_);
  const auto matrix = backend_.matrix({w.view});
  const OwnedRows x = OwnedRows::random(64, 192, rng_);
  const auto products = [&](const OwnedRows& in) {
    return run(backend_, OwnedRows(in.rows(), 100),
               [&](TestBackend& b, Rows out) { b->linear(b.up(in), *matrix, nullptr, out); });
  };
  std::vector<std::vector<float>> alone;
  for (size_t i = 0; i < 64; ++i) alone.push_back(products(x.part(i, 1)).row(0));
  for (size_t rows = 1; rows <= 64; ++rows) {
    const OwnedRows out = products(x.part(0, rows));
    for (size_t i = 0; i < rows; ++i) ASSERT_TRUE(same_bits(out.row(i), alone[i])) << rows;
  }
}

// Tiles, panels, and what is left over of them.
TEST_P(RowTiles, EveryFormatAndEveryNumberOfRows) {
  constexpr size_t kOutputs = 37, kInputs = 256, kMost = 256;
  const size_t each = GetParam().backend.is_emulated ? 33 : 64;
  const OwnedRows x = OwnedRows::random(kMost, kInputs, rng_, 3);
  const auto check = [&](const WeightView& view) {
    const Both both = matrices({view});
    const auto products = [&](TestBackend& backend, size_t rows) {
      return run(backend, OwnedRows(rows, kOutputs), [&](TestBackend& b, Rows out) {
        b->linear(b.up(x).first(rows), of(b, both), nullptr, out);
      });
    };
    const OwnedRows want = products(reference_, kMost);
    for (size_t rows = 1; rows <= kMost; rows += rows < each  ? 1
                                                 : rows < 64  ? 31
                                                 : rows < 100 ? 36
                                                              : 156) {
      ASSERT_TRUE(agree(products(backend_, rows), want.part(0, rows))) << rows;
    }
  };
  for (const ElementType type : kElementTypes) {
    if (!can_dequantize(type)) continue;
    SCOPED_TRACE(info(type).name);
    check(random_tensor(type, kOutputs, kInputs, rng_).view);
  }
  for (const uint32_t bits : {4U, 8U}) {
    SCOPED_TRACE(bits);
    check(random_affine({bits, 64}, ElementType::kF16, kOutputs, kInputs, rng_).view);
  }
}

// Sums of several segments, shapes that end within a block of a device, and more rows than it takes
// at once.
TEST_P(RowTiles, LargeShapes) {
  if (GetParam().backend.is_emulated) GTEST_SKIP() << "takes minutes";
  struct Shape {
    size_t outputs, inputs, most;
  };
  constexpr Shape kShapes[] = {{70, 2048, 200}, {130, 320, 420}, {65, 600, 65}, {8200, 96, 9}};
  for (const auto& [outputs, inputs, most] : kShapes) {
    const OwnedTensor w = random_tensor(ElementType::kBF16, outputs, inputs, rng_);
    const Both both = matrices({w.view});
    const OwnedRows x = OwnedRows::random(most, inputs, rng_, 3);
    const std::vector<float> bias = random_floats(outputs, rng_);
    const auto products = [&, width = outputs](TestBackend& backend, size_t rows) {
      return run(backend, OwnedRows(rows, width), [&](TestBackend& b, Rows out) {
        b->linear(b.up(x).first(rows), of(b, both), b.up(bias), out);
      });
    };
    const OwnedRows want = products(reference_, most);
    for (const size_t rows : {1, 8, 9, 17, 33, 64, 65, 128, 129, 170, 200, 257, 300, 380, 420}) {
      if (rows > most) continue;
      ASSERT_TRUE(agree(products(backend_, rows), want.part(0, rows)))
          << rows << " rows by " << outputs << " x " << inputs;
    }
  }
}

#if defined(__x86_64__)
// Else the other tests might compare the kernels of AVX-512 alone.
TEST(Amx, MultipliesWithTilesAndLeavesNoneInUse) {
  if (!is_emulated(CpuIsa::kAmx)) GTEST_SKIP() << "counts what the emulator does";
  emulate_amx();
  ComputePool pool(1);
  Rng rng(1);
  const auto instructions = [&](ElementType type, size_t rows) {
    TestBackend backend(make_cpu_backend(pool, CpuIsa::kAmx, Precision::kDefault));
    const OwnedTensor w = random_tensor(type, 64, 64, rng);
    const auto matrix = backend.matrix({w.view});
    const Rows x = backend.up(OwnedRows::random(rows, 64, rng));
    const Rows out = backend.up(OwnedRows(rows, 64));
    const uint64_t before = emulated_amx_instructions();
    backend->linear(x, *matrix, nullptr, out);
    return emulated_amx_instructions() - before;
  };
  constexpr uint64_t kAround = 2, kGroups = 2, kBlocks = 4;
  for (const size_t rows : {1, 8, 16}) {
    EXPECT_EQ(instructions(ElementType::kBF16, rows), kAround + kGroups * 9 + 4 + 4);
  }
  EXPECT_EQ(instructions(ElementType::kBF16, 32), kAround + 2 * (kGroups * 8 + 4 + 4));
  EXPECT_EQ(instructions(ElementType::kQ4_0, 15), 0U);
  EXPECT_EQ(instructions(ElementType::kQ4_0, 16), kAround + kBlocks * kGroups * 5);
  EXPECT_EQ(instructions(ElementType::kQ4_1, 32), kAround + 2 * kBlocks * kGroups * 5);
  alignas(64) std::array<uint8_t, 64> configuration;
  asm volatile("sttilecfg %0" : "=m"(configuration));
  EXPECT_EQ(configuration, (std::array<uint8_t, 64>{}));
}
#endif

// Sums, norms and activations on the way in: what rows become, and what becomes of x.
TEST_P(LinearOps, RowsAreChangedOnTheWayIn) {
  constexpr size_t kInputs = 96;
  const OwnedTensor w = random_tensor(ElementType::kQ4_0, 21, kInputs, rng_);
  const Both both = matrices({w.view});
  const std::vector<float> weight = random_floats(kInputs, rng_),
                           bias = random_floats(kInputs, rng_);
  const ActivationParams gated{}, plain{.kind = Activation::kGeluTanh};
  struct Case {
    size_t width;
    bool delta, norm;
    const ActivationParams* activation;
  };
  const Case cases[] = {{kInputs, true, false, nullptr},    {kInputs, true, true, nullptr},
                        {kInputs, false, true, nullptr},    {2 * kInputs, false, false, &gated},
                        {2 * kInputs, true, false, &gated}, {kInputs, false, false, &plain}};
  for (const size_t rows : {1, 5, 40}) {
    for (const Case& c : cases) {
      const OwnedRows x = OwnedRows::random(rows, c.width, rng_);
      const OwnedRows delta = OwnedRows::random(rows, c.width, rng_);
      // What is left in x, and the product.
      const auto multiply = [&](TestBackend& b) {
        OwnedRows left = x, out(rows, 21);
        b.clear();
        LinearInput in(b.up(x));
        const NormParams norm{NormKind::kLayer, 1e-5F, b.up(weight), b.up(bias)};
        if (c.delta) in.delta = b.up(delta);
        if (c.norm) in.norm = &norm;
        in.delta_scale = 0.5F;
        in.activation = c.activation;
        const Rows to = b.up(out);
        b->linear(in, of(b, both), nullptr, to);
        b.down(in.x, left);
        b.down(to, out);
        return std::pair(left, out);
      };
      const auto [left, out] = multiply(backend_);
      const auto [left_want, out_want] = multiply(reference_);
      ASSERT_TRUE(agree(left, left_want)) << rows << " rows of " << c.width;
      ASSERT_TRUE(agree(out, out_want)) << rows << " rows of " << c.width;
      EXPECT_TRUE(c.delta || same_bits(left.all(), x.all()));
    }
  }
}

TEST_P(LinearOps, ARowThatIsNotFiniteIsNanAlone) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const ElementType type : {ElementType::kQ4_0, ElementType::kQ4_1, ElementType::kQ8_0,
                                 ElementType::kQ6_K, ElementType::kMXFP4, ElementType::kBF16}) {
    const OwnedTensor w = random_tensor(type, 20, 256, rng_);
    const auto matrix = backend_.matrix({w.view});
    OwnedRows x = OwnedRows::random(11, 256, rng_);
    const auto linear = [&](TestBackend& b, Rows out) {
      b->linear(b.up(x), *matrix, nullptr, out);
    };
    const OwnedRows clean = run(backend_, OwnedRows(11, 20), linear);
    x.at(2)[33] = kNan;
    x.at(7)[0] = kInf;
    x.at(8)[255] = -kInf;
    const OwnedRows got = run(backend_, OwnedRows(11, 20), linear);
    for (const size_t i : {0, 1, 3, 4, 5, 6, 9, 10}) {
      EXPECT_TRUE(same_bits(got.row(i), clean.row(i))) << i;
    }
    for (const size_t i : {2, 7, 8}) {
      for (const float value : got.row(i)) EXPECT_FALSE(std::isfinite(value)) << i;
    }
  }
}

// Groups of activations that are zero, tiny, huge, or all of one size.
TEST_P(LinearOps, ActivationsOfEveryMagnitude) {
  const OwnedTensor q = random_tensor(ElementType::kQ4_1, 24, 256, rng_);
  const OwnedTensor h = random_tensor(ElementType::kF16, 24, 256, rng_);
  for (const TensorView& view : {q.view, h.view}) {
    const Both both = matrices({view});
    OwnedRows x = OwnedRows::random(40, 256, rng_);
    for (size_t i = 0; i < 40; ++i) {
      for (size_t k = 0; k < 256; ++k) {
        const int exponent = static_cast<int>(i) * 7 - 149 + static_cast<int>(k / 32);
        x.at(i)[k] = std::ldexp(i % 5 == 0 ? 1.0F : x.at(i)[k], exponent);
      }
      std::fill_n(x.at(i) + 64, 32, i % 2 == 0 ? 0.0F : -0.0F);
    }
    const auto linear = [&](TestBackend& b, Rows out) {
      b->linear(b.up(x), of(b, both), nullptr, out);
    };
    EXPECT_TRUE(same(OwnedRows(40, 24), linear));
  }
}

// In none, one or several groups of a row, the last one among them, which is not whole.
TEST_P(LinearOps, ActivationsThatTowerKeepTheirRests) {
  constexpr size_t kInputs = 250, kOutputs = 37, kRows = 20;
  const OwnedTensor w = random_tensor(ElementType::kF16, kOutputs, kInputs, rng_);
  const Both both = matrices({w.view});
  const std::vector<float> bias = random_floats(kOutputs, rng_);
  OwnedRows x = OwnedRows::random(kRows, kInputs, rng_);
  for (size_t row = 0; row < kRows; ++row) {
    for (const size_t at : std::array<size_t, 3>{249, 7 * row, 7 * row + 40}) {
      if (row % 4 > at % 3) x.at(row)[at] = 100.1F + static_cast<float>(at);
    }
  }
  for (const size_t rows : {size_t{1}, size_t{6}, kRows}) {
    const auto linear = [&](TestBackend& b, Rows out) {
      b->linear(b.up(x).first(rows), of(b, both), b.up(bias), out);
    };
    EXPECT_TRUE(same(OwnedRows(rows, kOutputs), linear)) << rows;
  }
}

TEST_P(LinearOps, LongRowsGoThroughInPasses) {
  const OwnedTensor w = random_tensor(ElementType::kQ4_0, 17, 32768, rng_);
  EXPECT_TRUE(same_linear({w.view}, 40, true));
}

TEST_P(LinearOps, PartsOfTheColumnsAreRows) {
  const OwnedTensor w = random_tensor(ElementType::kQ8_0, 40, 64, rng_);
  const Both both = matrices({w.view});
  const OwnedRows x = OwnedRows::random(5, 200, rng_);
  const auto linear = [&](TestBackend& b, Rows out) {
    b->linear(b.up(x).columns(70, 64), of(b, both), nullptr, out.columns(11, 40));
  };
  EXPECT_TRUE(same(OwnedRows(5, 90), linear));
}

TEST_P(LinearOps, EmbedScalesTheRowsOfTheTable) {
  const OwnedTensor a = random_tensor(ElementType::kQ4_0, 30, 96, rng_);
  const OwnedTensor b = random_tensor(ElementType::kF16, 20, 96, rng_);
  const Both both = tables({a.view, b.view});
  std::vector<TokenId> ids = {0, 49, 29, 30, 7, 7};
  for (const size_t count : {size_t{0}, size_t{6}}) {
    const auto embed = [&](TestBackend& b, Rows out) {
      b->embed(of(b, both), b.begin(std::span(ids).first(count)), 24.0F, out);
    };
    EXPECT_TRUE(same(OwnedRows(count, 96), embed));
  }
}

TEST_P(LinearOps, MatricesThatCannotBeAreRefused) {
  const OwnedTensor f64 = random_tensor(ElementType::kF64, 2, 8, rng_, true);
  const auto type = backend_->make_matrix(std::vector<WeightView>{f64.view});
  ASSERT_FALSE(type.ok());
  EXPECT_EQ(type.status().code(), Code::kUnimplemented);
  EXPECT_NE(type.message().find("F64"), std::string::npos);
  const OwnedTensor a = random_tensor(ElementType::kF32, 2, 8, rng_);
  const OwnedTensor b = random_tensor(ElementType::kF32, 2, 9, rng_);
  const auto shapes = backend_->make_matrix(std::vector<WeightView>{a.view, b.view});
  ASSERT_FALSE(shapes.ok());
  EXPECT_NE(shapes.message().find("[2, 8] and [2, 9]"), std::string::npos);
  EXPECT_FALSE(backend_->make_matrix({}).ok());
}

INSTANTIATE_TEST_SUITE_P(Backends, LinearOps,
                         ::testing::ValuesIn(backend_params_of_every_precision()), param_name);

// Float32 has no tiles of rows. Of emulated AMX one thread has seen it all, and signals to several
// take minutes.
std::vector<BackendParam> params_with_tiles() {
  std::vector<BackendParam> params = backend_params_of_every_precision();
  std::erase_if(params, [](const BackendParam& p) {
    return p.precision == Precision::kF32 || (p.backend.is_emulated && p.threads > 1);
  });
  return params;
}

INSTANTIATE_TEST_SUITE_P(Backends, RowTiles, ::testing::ValuesIn(params_with_tiles()), param_name);

}  // namespace
}  // namespace skein
