// Products of rows with the experts that they were routed to.
#include <gtest/gtest.h>

#include "backend/conformance.h"
#include "backend/random_weights.h"

namespace skein {
namespace {

// Expert e is of type e of the types, which begin again after the last.
class ExpertOps : public Conformance {
 protected:
  void check(std::span<const ElementType> types, size_t inputs) {
    constexpr size_t kExperts = 7, kOutputs = 45;
    std::vector<OwnedTensor> weights;
    std::vector<std::unique_ptr<Matrix>> mine, theirs;
    for (size_t e = 0; e < kExperts; ++e) {
      weights.push_back(random_tensor(types[e % types.size()], kOutputs, inputs, rng_));
      mine.push_back(backend_.matrix({weights.back().view}));
      theirs.push_back(reference_.matrix({weights.back().view}));
    }
    const std::vector<float> biases = random_floats(kExperts * kOutputs, rng_);
    for (const size_t rows : {0, 1, 5, 30}) {
      for (const uint32_t used : {1U, 3U}) {
        const OwnedRows logits = OwnedRows::random(rows, kExperts, rng_);
        for (const bool expanded : {false, true}) {
          const OwnedRows x = OwnedRows::random(expanded ? rows * used : rows, inputs, rng_);
          const auto linear = [&](TestBackend& b, Rows out) {
            const auto routes = b.routes(logits, RouterKind::kTopThenSoftmax, used);
            b->expert_linear(b.up(x), &b == &backend_ ? mine : theirs,
                             expanded ? b.up(biases) : nullptr, *routes, out);
          };
          EXPECT_TRUE(same(OwnedRows(rows * used, kOutputs), linear)) << rows << " " << used;
        }
      }
    }
  }
};

TEST_P(ExpertOps, GetTheirRows) {
  constexpr ElementType kOne[] = {ElementType::kQ8_0};
  check(kOne, 64);
}

// A file may have quantized some experts of a layer otherwise than the rest.
TEST_P(ExpertOps, OfSeveralTypesGetTheirRows) {
  constexpr ElementType kTypes[] = {ElementType::kQ4_0, ElementType::kQ6_K, ElementType::kBF16,
                                    ElementType::kQ4_K, ElementType::kMXFP4};
  check(kTypes, 256);
}

INSTANTIATE_TEST_SUITE_P(Backends, ExpertOps,
                         ::testing::ValuesIn(backend_params_of_every_precision()), param_name);

}  // namespace
}  // namespace skein
