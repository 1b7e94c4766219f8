#include "backend/cuda/step_graphs.h"

#include <algorithm>

#include "backend/cuda/device_memory.h"

namespace skein::cuda {
namespace {

constexpr size_t kMostGraphs = 256;

void destroy(cudaGraphExec_t graph) {
  if (graph != nullptr) static_cast<void>(cudaGraphExecDestroy(graph));
}

}  // namespace

StepGraphs::Entry* StepGraphs::find(const GraphKey& key) {
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& entry) { return entry.key == key; });
  return it == entries_.end() ? nullptr : &*it;
}

// In place of the one that was not used for the longest time, where there are many.
void StepGraphs::add(const GraphKey& key) {
  if (entries_.size() >= kMostGraphs) {
    const auto oldest =
        std::min_element(entries_.begin(), entries_.end(),
                         [](const Entry& a, const Entry& b) { return a.used < b.used; });
    destroy(oldest->graph);
    entries_.erase(oldest);
  }
  entries_.push_back({key, nullptr, runs_});
}

void StepGraphs::forget_all() {
  for (const Entry& entry : entries_) destroy(entry.graph);
  entries_.clear();
}

// A stream that records takes nothing else, so whatever happens the recording has to end.
cudaGraphExec_t StepGraphs::record(FunctionRef<void()> ops) const {
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "a graph's beginning");
  cudaGraph_t graph = nullptr;
  try {
    ops();
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(stream_, &graph));
    if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
    throw;
  }
  check(cudaStreamEndCapture(stream_, &graph), "a graph's end");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  static_cast<void>(cudaGraphDestroy(graph));
  check(error, "a graph");
  return executable;
}

void StepGraphs::run(const GraphKey& key, uint64_t memory, FunctionRef<void()> ops) {
  if (memory != memory_) forget_all();
  memory_ = memory;
  ++runs_;
  Entry* const entry = find(key);
  if (entry == nullptr) {
    ops();  // a step that throws has not been seen
    add(key);
    return;
  }
  if (entry->graph == nullptr) entry->graph = record(ops);
  entry->used = runs_;
  check(cudaGraphLaunch(entry->graph, stream_), "a step's graph");
}

}  // namespace skein::cuda
