// Products that a tensor core of an H200 computed, against the reference in its profile: a machine
// without a GPU sees here whether the model of it changed. Where there is a GPU,
//
//   SKEIN_RECORD=products build/release/tests/backend/backend_conformance_test
//   --gtest_filter=Recorded*
//
// writes the list anew, to the file that stands in the tree.
#include <bit>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sstream>

#include "backend/backend_memory.h"
#include "backend/registry.h"
#include "backend/same_bits.h"
#include "base/compute_pool.h"

namespace skein {
namespace {

const std::string kFile = SKEIN_SOURCE_DIR "/tests/backend/recorded_products.txt";

using Products = std::map<std::string, std::vector<float>>;  // by the name of the case

struct Case {
  const char* name;
  ElementType type;
  size_t inputs;
  bool wild;      // any bits at all as weights
  int exponents;  // binades that the activations are spread over
};

constexpr Case kCases[] = {
    {"one group", ElementType::kF16, 16, false, 1},
    {"a chain", ElementType::kBF16, 240, false, 1},
    {"any bits", ElementType::kF16, 32, true, 20},
    {"any bits of 32", ElementType::kF32, 64, true, 30},
    {"what is cut off", ElementType::kBF16, 192, false, 24},
    {"segments", ElementType::kBF16, 2048, false, 4},
    {"quantized", ElementType::kQ4_K, 1024, false, 2},
};

std::vector<float> products_of(const Case& own, Backend& made) {
  constexpr size_t kRows = 3, kOutputs = 12;
  Rng rng(random_at(29, own.inputs));
  const OwnedTensor weights = random_tensor(own.type, kOutputs, own.inputs, rng, own.wild);
  OwnedRows x = OwnedRows::random(kRows, own.inputs, rng);
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t k = 0; k < own.inputs; ++k) {
      x.at(i)[k] = std::ldexp(x.at(i)[k], -static_cast<int>(rng.below(own.exponents)));
    }
  }
  auto memory = made.allocate(x.all().size() * sizeof(float));
  auto results = made.allocate(kRows * kOutputs * sizeof(float));
  const auto matrix = made.make_matrix(std::vector<WeightView>{weights.view});
  made.write(memory->floats(), x.all());
  const Rows in{memory->floats() + OwnedRows::kOffset, kRows, own.inputs, x.stride()};
  const Rows out{results->floats(), kRows, kOutputs, kOutputs};
  made.linear(in, **matrix, nullptr, out);
  const HostRows read = made.read(out);
  return {read.data, read.data + kRows * kOutputs};
}

Products all_products(const std::string& device) {
  ComputePool pool(1);
  const auto made = make_backend({.device = device}, pool);
  SKEIN_CHECK(made.ok(), "{}", made.message());
  Products products;
  for (const Case& own : kCases) products[own.name] = products_of(own, **made);
  return products;
}

Products read_products() {
  Products products;
  std::ifstream in(kFile);
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (line.starts_with('#') || colon == std::string::npos) continue;
    std::istringstream rest(line.substr(colon + 1));
    auto& own = products[line.substr(0, colon)];
    for (uint32_t bits = 0; rest >> std::hex >> bits;) own.push_back(std::bit_cast<float>(bits));
  }
  return products;
}

TEST(RecordedProducts, AreTheReferences) {
  if (const char* wish = std::getenv("SKEIN_RECORD"); wish && std::string(wish) == "products") {
    std::ofstream out(kFile);
    out << "# Recorded on an H200 by recorded_products_test; see there.\n";
    for (const auto& [name, values] : all_products("cuda")) {
      out << name << ":";
      for (const float x : values) out << fmt::format(" {:08x}", std::bit_cast<uint32_t>(x));
      out << "\n";
    }
  }
  const Products recorded = read_products(), got = all_products("reference:hopper");
  EXPECT_EQ(recorded.size(), got.size());
  for (const auto& [name, values] : recorded) {
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_TRUE(same_bits(got.at(name), values)) << name;
  }
}

}  // namespace
}  // namespace skein
