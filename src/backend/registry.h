// Which backends there are, and how to get one.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "base/compute_pool.h"
#include "base/status.h"

namespace skein {

struct BackendOptions {
  // A name of registry.def; cuda:1 is the second of its kind, reference:hopper the reference in the
  // profile of that device. auto: cuda where it can do what is asked, else cpu.
  std::string device = "cpu";
  Precision precision = Precision::kDefault;
  // The instruction set of the CPU backend: scalar, avx2, avx512 or amx; the best that the machine
  // has if absent.
  std::optional<std::string> isa{};
};

// `pool` must outlive it. kInvalidArgument for a name that is none (lists them), kUnimplemented for
// what this machine cannot do (says what is missing).
Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options, ComputePool& pool);

// What is built in, a line for each backend: "cuda: sm_90a".
std::string describe_backends();

}  // namespace skein
