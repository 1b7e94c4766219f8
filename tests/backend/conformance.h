// The fixture of backend_conformance_test: a backend beside the reference, each with the same
// numbers in memory of its own.
#pragma once

#include <fmt/format.h>
#include <functional>
#include <ostream>
#include <string>

#include "backend/backend_memory.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/isas.h"
#include "backend/reference/reference_backend.h"
#include "backend/registry.h"
#include "backend/same_bits.h"
#include "base/compute_pool.h"

namespace skein {

// A backend that this machine can run.
struct BackendUnderTest {
  std::string name;
  std::function<std::unique_ptr<Backend>(ComputePool& pool, Precision precision)> make;
  // Of the largest magnitude in a result; 0: the reference's bits.
  float tolerance = 0;
  bool computes_on_host = true;
  bool is_emulated = false;  // slow
  bool has_f32_only = false;
  Profile profile = Profile::kHost;  // of the reference that has its bits
};

inline BackendUnderTest cpu_under_test(CpuIsa isa) {
  BackendUnderTest cpu;
  cpu.name = isa_name(isa);
  cpu.make = [isa](ComputePool& pool, Precision precision) {
    return make_cpu_backend(pool, isa, precision);
  };
  cpu.is_emulated = is_emulated(isa);
  return cpu;
}

// One that the registry makes by its name.
inline BackendUnderTest registered(const std::string& name, float tolerance = 0) {
  BackendUnderTest backend{.name = name, .make = {}, .tolerance = tolerance};
  backend.make = [name](ComputePool& pool, Precision precision) {
    auto made = make_backend({.device = name, .precision = precision}, pool);
    SKEIN_CHECK(made.ok(), "the backend cannot be made");
    return std::move(*made);
  };
  return backend;
}

inline bool has_cuda(Precision precision) {
  ComputePool pool(1);
  return make_backend({.device = "cuda", .precision = precision}, pool).ok();
}

inline BackendUnderTest cuda_under_test() {
  BackendUnderTest cuda = registered("cuda");
  cuda.computes_on_host = false;
  cuda.has_f32_only = !has_cuda(Precision::kDefault);
  cuda.profile = Profile::kHopper;
  return cuda;
}

// All of them. A new backend is a line here.
inline std::vector<BackendUnderTest> backends_under_test() {
  std::vector<BackendUnderTest> backends;
  for (const CpuIsa isa : testable_isas()) backends.push_back(cpu_under_test(isa));
  if (has_cuda(Precision::kF32)) backends.push_back(cuda_under_test());
  return backends;
}

struct BackendParam {
  BackendUnderTest backend;
  size_t threads;
  Precision precision = Precision::kF32;
};

inline void PrintTo(const BackendParam& param, std::ostream* out) {
  *out << param.backend.name << ", " << param.threads << " threads";
}

inline std::vector<BackendParam> backend_params() {
  std::vector<BackendParam> params;
  for (const BackendUnderTest& backend : backends_under_test()) {
    if (backend.is_emulated) continue;
    for (const size_t threads : {1, 3}) {  // three have uneven shares, which two may not
      if (threads == 1 || backend.computes_on_host) params.push_back({backend, threads});
    }
  }
  return params;
}

// For ops that depend on the precision.
inline std::vector<BackendParam> backend_params_of_every_precision() {
  std::vector<BackendParam> params = backend_params();
  for (const BackendUnderTest& backend : backends_under_test()) {
    if (backend.has_f32_only) continue;
    for (const size_t threads : {1, 3}) {
      if (threads > 1 && !backend.computes_on_host) continue;
      params.push_back({backend, threads, Precision::kDefault});
      params.push_back({backend, threads, Precision::kHigh});
    }
  }
  return params;
}

inline std::string param_name(const ::testing::TestParamInfo<BackendParam>& info) {
  constexpr const char* kSuffixes[] = {"", "_default", "_high"};
  return fmt::format("{}_{}{}", info.param.backend.name, info.param.threads,
                     kSuffixes[static_cast<size_t>(info.param.precision)]);
}

class Conformance : public ::testing::TestWithParam<BackendParam> {
 protected:
  Conformance()
      : pool_(GetParam().threads),
        backend_(GetParam().backend.make(pool_, GetParam().precision)),
        reference_(make_reference_backend(GetParam().precision, GetParam().backend.profile)) {}

  // Whether results are as near as the backend promises.
  ::testing::AssertionResult agree(std::span<const float> got, std::span<const float> want) const {
    const float tolerance = GetParam().backend.tolerance;
    return tolerance == 0 ? same_bits(got, want) : within(got, want, tolerance);
  }
  ::testing::AssertionResult agree(const OwnedRows& got, const OwnedRows& want) const {
    return agree(got.all(), want.all());
  }

  // op(backend, rows) on copies of `before`, by both; whether they leave the same.
  template <class Op>
  ::testing::AssertionResult same(const OwnedRows& before, const Op& op) {
    return agree(run(backend_, before, op), run(reference_, before, op));
  }
  template <class Op>
  OwnedRows run(TestBackend& backend, OwnedRows rows, const Op& op) {
    backend.clear();
    const Rows uploaded = backend.up(rows);
    op(backend, uploaded);
    backend.down(uploaded, rows);
    return rows;
  }

  // The same weights, made by each.
  struct Both {
    std::unique_ptr<Matrix> mine, theirs;
  };
  Both matrices(const std::vector<WeightView>& parts) {
    return {backend_.matrix(parts), reference_.matrix(parts)};
  }
  Both tables(const std::vector<WeightView>& parts) {
    return {backend_.table(parts), reference_.table(parts)};
  }
  const Matrix& of(const TestBackend& backend, const Both& both) const {
    return &backend == &backend_ ? *both.mine : *both.theirs;
  }

  ComputePool pool_;
  TestBackend backend_, reference_;
  Rng rng_{17};
};

}  // namespace skein
