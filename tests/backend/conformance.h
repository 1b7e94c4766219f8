// The fixture of backend_conformance_test: a backend beside the reference, over the same memory.
#pragma once

#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/isas.h"
#include "backend/random_weights.h"
#include "backend/reference/reference_backend.h"
#include "backend/same_bits.h"
#include "base/compute_pool.h"
#include "base/rng.h"

namespace skein {

// Rows in memory of their own, with a stride larger than their width; what lies between rows is
// NaN, which shows when it is read.
class OwnedRows {
 public:
  OwnedRows(size_t rows, size_t width, size_t gap = 3)
      : memory_(rows * (width + gap) + 1, std::numeric_limits<float>::quiet_NaN()),
        rows_{memory_.data() + 1, rows, width, width + gap} {}  // + 1: unaligned
  static OwnedRows random(size_t rows, size_t width, Rng& rng, float range = 1) {
    OwnedRows made(rows, width);
    for (size_t i = 0; i < rows; ++i) {
      for (size_t k = 0; k < width; ++k) made.rows_.row(i)[k] = range * random_float(rng);
    }
    return made;
  }
  OwnedRows(const OwnedRows& other) : memory_(other.memory_), rows_(other.rows_) {
    rows_.data = memory_.data() + 1;
  }
  OwnedRows& operator=(const OwnedRows&) = delete;

  Rows view() const { return rows_; }
  // All of it, the gaps included: an op that writes beyond its rows is found.
  const std::vector<float>& all() const { return memory_; }
  std::vector<float> row(size_t i) const { return {rows_.row(i), rows_.row(i) + rows_.width}; }

 private:
  std::vector<float> memory_;
  Rows rows_;
};

struct BackendParam {
  CpuIsa isa;
  size_t threads;
  Precision precision = Precision::kF32;
};

inline std::vector<BackendParam> backend_params() {
  std::vector<BackendParam> params;
  for (const CpuIsa isa : available_isas()) {
    for (const size_t threads : {1, 2, 3}) params.push_back({isa, threads});
  }
  return params;
}

// For ops that depend on the precision.
inline std::vector<BackendParam> backend_params_of_every_precision() {
  std::vector<BackendParam> params = backend_params();
  for (const CpuIsa isa : testable_isas()) {
    for (const size_t threads : {1, 3}) {
      params.push_back({isa, threads, Precision::kDefault});
      params.push_back({isa, threads, Precision::kHigh});
    }
  }
  return params;
}

inline std::string param_name(const ::testing::TestParamInfo<BackendParam>& info) {
  constexpr const char* kSuffixes[] = {"", "_default", "_high"};
  return fmt::format("{}_{}{}", isa_name(info.param.isa), info.param.threads,
                     kSuffixes[static_cast<size_t>(info.param.precision)]);
}

class Conformance : public ::testing::TestWithParam<BackendParam> {
 protected:
  Conformance()
      : pool_(GetParam().threads),
        backend_(make_cpu_backend(pool_, GetParam().isa, GetParam().precision)),
        reference_(make_reference_backend(GetParam().precision)) {}

  // op(backend, rows) on copies of `before`, by both; whether they leave the same bits.
  template <class Op>
  ::testing::AssertionResult same(const OwnedRows& before, const Op& op) {
    const OwnedRows got = before, want = before;
    op(*backend_, got.view());
    op(*reference_, want.view());
    return same_bits(got.all(), want.all());
  }

  std::unique_ptr<Matrix> matrix(Backend& backend, std::vector<WeightView> parts) {
    auto made = backend.make_matrix(parts);
    EXPECT_TRUE(made.ok()) << made.message();
    return std::move(*made);
  }
  std::unique_ptr<Matrix> table(Backend& backend, std::vector<WeightView> parts) {
    auto made = backend.make_table(parts);
    EXPECT_TRUE(made.ok()) << made.message();
    return std::move(*made);
  }

  ComputePool pool_;
  std::unique_ptr<Backend> backend_, reference_;
  Rng rng_{17};
};

}  // namespace skein
