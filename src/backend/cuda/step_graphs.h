// StepGraphs: steps that were queued before, as graphs that a single launch replays. Asking for one
// kernel takes the host as long as many a kernel runs, and a step of few rows has hundreds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <vector>

#include "base/function_ref.h"

namespace skein::cuda {

// All that the kernels of a step and their parameters depend on, but for what memory holds.
struct GraphKey {
  uint64_t ops = 0;  // Backend::run's
  size_t rows = 0;
  size_t logits = 0;
  uint32_t spans = 0;        // of the longest context
  bool single_rows = false;  // DeviceStep::has_single_rows

  bool operator==(const GraphKey&) const = default;
};

class StepGraphs {
 public:
  explicit StepGraphs(cudaStream_t stream) : stream_(stream) {}
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;
  ~StepGraphs() { forget_all(); }

  // Calls `ops` the first time, records it the second, and replays that from then on. `memory`
  // is another number whenever memory that the ops use has moved; what was recorded before is
  // forgotten then.
  void run(const GraphKey& key, uint64_t memory, FunctionRef<void()> ops);

 private:
  struct Entry {
    GraphKey key;
    cudaGraphExec_t graph = nullptr;  // nullptr: seen once
    uint64_t used = 0;
  };

  Entry* find(const GraphKey& key);
  void add(const GraphKey& key);
  void forget_all();
  cudaGraphExec_t record(FunctionRef<void()> ops) const;

  const cudaStream_t stream_;
  std::vector<Entry> entries_;
  uint64_t memory_ = 0, runs_ = 0;
};

}  // namespace skein::cuda
