// The CPU backend on SmolLM2-135M's shapes, with as many threads as the machine has cores.
//
// Linear: all matrices of one token's pass (30 layers and the head, each with weights of its own,
// so that they come from where they would come from in a real step). Attention: all 30 layers.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <memory>
#include <thread>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/rng.h"
#include "tensor/tensor.h"

namespace skein {
namespace {

constexpr uint32_t kLayers = 30, kHidden = 576, kFfn = 1536, kHeads = 9, kKvHeads = 3,
                   kHeadDim = 64;
constexpr uint32_t kVocabulary = 49'152;

struct Weights {
  std::vector<std::byte> bytes;
  std::unique_ptr<Matrix> matrix;
};

// Bytes of no meaning but with scales of 1, so that no product overflows.
Weights make_weights(Backend& backend, ElementType type, uint64_t outputs, uint64_t inputs) {
  Weights weights;
  const Shape shape{outputs, inputs};
  weights.bytes.resize(*checked_byte_size(type, shape));
  Rng rng(outputs);
  for (std::byte& byte : weights.bytes) byte = static_cast<std::byte>(rng.next());
  for (size_t at = 0; at < weights.bytes.size(); at += info(type).block_bytes) {
    weights.bytes[at] = std::byte{0};
    weights.bytes[at + 1] = std::byte{0x3c};
    if (type == ElementType::kQ4_1) weights.bytes[at + 2] = weights.bytes[at + 3] = std::byte{0};
  }
  const WeightView view = TensorView{type, shape, weights.bytes};
  weights.matrix = std::move(backend.make_matrix({&view, 1})).value();
  return weights;
}

std::vector<Weights> make_model(Backend& backend, ElementType type) {
  std::vector<Weights> model;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    model.push_back(make_weights(backend, type, (kHeads + 2 * kKvHeads) * kHeadDim, kHidden));
    model.push_back(make_weights(backend, type, kHidden, kHidden));
    model.push_back(make_weights(backend, type, 2 * kFfn, kHidden));
    model.push_back(make_weights(backend, type, kHidden, kFfn));
  }
  model.push_back(make_weights(backend, ElementType::kQ8_0, kVocabulary, kHidden));
  return model;
}

size_t threads() {
  return std::max(1U, std::thread::hardware_concurrency());
}

void BM_Linear(benchmark::State& state, ElementType type, const char* isa) {
  const auto chosen = choose_isa(isa);
  if (!chosen.ok()) return state.SkipWithError(chosen.message().c_str());
  ComputePool pool(threads());
  const auto backend = make_cpu_backend(pool, *chosen, Precision::kDefault);
  const std::vector<Weights> model = make_model(*backend, type);
  const auto rows = static_cast<size_t>(state.range(0));
  const Buffer x = backend->allocate(rows * kFfn * sizeof(float)).value();
  const Buffer out = backend->allocate(rows * kVocabulary * sizeof(float)).value();
  std::fill_n(x.floats(), rows * kFfn, 0.5F);
  uint64_t bytes = 0;
  for (const Weights& weights : model) bytes += weights.matrix->bytes();
  for (auto _ : state) {
    for (const Weights& weights : model) {
      const Matrix& matrix = *weights.matrix;
      backend->linear({x.floats(), rows, matrix.inputs(), kFfn}, matrix, nullptr,
                      {out.floats(), rows, matrix.outputs(), matrix.outputs()});
    }
  }
  state.counters["weights/s"] =
      benchmark::Counter(static_cast<double>(bytes), benchmark::Counter::kIsIterationInvariantRate,
                         benchmark::Counter::kIs1024);
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(rows));
}
BENCHMARK_CAPTURE(BM_Linear, q4_1_avx512, ElementType::kQ4_1, "avx512")
    ->ArgName("rows")
    ->Arg(1)
    ->Arg(4)
    ->Arg(8)
    ->Arg(32)
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Linear, q4_1_avx2, ElementType::kQ4_1, "avx2")
    ->ArgName("rows")
    ->Arg(1)
    ->Arg(8)
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Linear, q8_0_avx512, ElementType::kQ8_0, "avx512")
    ->ArgName("rows")
    ->Arg(1)
    ->Arg(4)
    ->Arg(8)
    ->Arg(32)
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

void BM_Attention(benchmark::State& state) {
  ComputePool pool(threads());
  const auto backend = make_cpu_backend(pool, *choose_isa(std::nullopt), Precision::kDefault);
  const auto context = static_cast<uint32_t>(state.range(0));
  const auto rows = static_cast<uint32_t>(state.range(1));  // decoding sequences
  const size_t blocks_each = blocks_for(context);
  const size_t layer_bytes = kKvHeads * KvLayer::head_floats(kHeadDim) * sizeof(float);
  auto memory = backend->allocate(rows * blocks_each * kLayers * layer_bytes);
  if (!memory.ok()) return state.SkipWithError(memory.message().c_str());
  std::fill_n(memory->floats(), memory->bytes() / sizeof(float), 0.25F);
  std::vector<BlockId> blocks;
  std::vector<Sequence> sequences;
  for (uint32_t i = 0; i < rows * blocks_each; ++i) blocks.push_back(BlockId{i});
  for (uint32_t i = 0; i < rows; ++i) {
    sequences.push_back({i, 1, context - 1, true,
                         std::span<const BlockId>(blocks).subspan(i * blocks_each, blocks_each)});
  }
  std::vector<float> q(rows * kHeads * kHeadDim, 0.5F), out(q.size());
  const Rows in{q.data(), rows, kHeads * kHeadDim, kHeads * kHeadDim};
  const Rows to{out.data(), rows, kHeads * kHeadDim, kHeads * kHeadDim};
  for (auto _ : state) {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      const KvLayer cache{memory->data() + layer * layer_bytes, kLayers * layer_bytes, kKvHeads,
                          kHeadDim};
      backend->attention(in, sequences, cache, {kHeads, 0.125F, 0, 0, nullptr}, to);
    }
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(memory->bytes()));
}
BENCHMARK(BM_Attention)
    ->ArgNames({"context", "rows"})
    ->Args({128, 1})
    ->Args({1024, 1})
    ->Args({128, 8})
    ->Args({1024, 8})
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

}  // namespace
}  // namespace skein
