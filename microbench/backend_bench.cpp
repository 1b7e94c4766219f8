// The CPU backend, mostly on SmolLM2-135M's shapes.
//
// Product: one shape on one thread, measured in time of that thread, so that others on the machine
// disturb it less; as many matrices of the shape as a model has, so that weights come from where
// they would come from in a real step. Step: all matrices of one pass, on all threads. Attention:
// all 30 layers. `weights` is what is read of them a second, `ops` are two per weight and row.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/host/kv.h"
#include "base/rng.h"
#include "tensor/tensor.h"

namespace skein {
namespace {

constexpr uint32_t kLayers = 30, kHidden = 576, kFfn = 1536, kHeads = 9, kKvHeads = 3,
                   kHeadDim = 64;
constexpr uint32_t kVocabulary = 49'152;
// Llama-3.2-1B's: activations of many rows no longer fit beside the weights at hand.
constexpr uint32_t kLargeHidden = 2048, kLargeFfn = 8192, kLargeCopies = 4;

struct Weights {
  std::vector<std::byte> bytes;
  std::unique_ptr<Matrix> matrix;
};

// Bytes of no meaning, but in blocks that begin with a scale it is 1, so that no product overflows.
Weights make_weights(Backend& backend, ElementType type, uint64_t outputs, uint64_t inputs) {
  Weights weights;
  const Shape shape{outputs, inputs};
  weights.bytes.resize(*checked_byte_size(type, shape));
  Rng rng(outputs);
  for (std::byte& byte : weights.bytes) byte = static_cast<std::byte>(rng.next());
  for (size_t at = 0; at < weights.bytes.size(); at += info(type).block_bytes) {
    if (type == ElementType::kQ6_K) continue;
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

// Multiplies with all of `model` again and again, and counts.
void run_products(benchmark::State& state, Backend& backend, const std::vector<Weights>& model,
                  size_t rows) {
  size_t most_inputs = 0, most_outputs = 0;
  double bytes = 0, weights_count = 0;
  for (const Weights& weights : model) {
    most_inputs = std::max(most_inputs, weights.matrix->inputs());
    most_outputs = std::max(most_outputs, weights.matrix->outputs());
    bytes += static_cast<double>(weights.matrix->bytes());
    weights_count += static_cast<double>(weights.matrix->inputs() * weights.matrix->outputs());
  }
  const Buffer x = backend.allocate(rows * most_inputs * sizeof(float)).value();
  const Buffer out = backend.allocate(rows * most_outputs * sizeof(float)).value();
  Rng rng(rows);
  std::vector<float> values(rows * most_inputs);
  for (float& value : values) value = static_cast<float>(rng.below(2001)) / 1000 - 1;
  backend.write(x.floats(), values);
  for (auto _ : state) {
    for (const Weights& weights : model) {
      const Matrix& matrix = *weights.matrix;
      backend.linear(Rows{x.floats(), rows, matrix.inputs(), most_inputs}, matrix, nullptr,
                     {out.floats(), rows, matrix.outputs(), most_outputs});
    }
  }
  constexpr auto kRate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["weights"] = benchmark::Counter(bytes, kRate);
  state.counters["ops"] = benchmark::Counter(2 * weights_count * static_cast<double>(rows), kRate);
}

struct ProductCase {
  ElementType type;
  const char* isa;
  Precision precision;
};

constexpr ProductCase kQ4_1 = {ElementType::kQ4_1, "avx512", Precision::kDefault};
constexpr ProductCase kQ4_0 = {ElementType::kQ4_0, "avx512", Precision::kDefault};
constexpr ProductCase kQ8_0 = {ElementType::kQ8_0, "avx512", Precision::kDefault};
constexpr ProductCase kQ6_K = {ElementType::kQ6_K, "avx512", Precision::kDefault};
constexpr ProductCase kBf16 = {ElementType::kQ4_1, "avx512", Precision::kHigh};
constexpr ProductCase kF32 = {ElementType::kQ4_1, "avx512", Precision::kF32};
constexpr ProductCase kQ4_1Avx2 = {ElementType::kQ4_1, "avx2", Precision::kDefault};
constexpr ProductCase kQ8_0Avx2 = {ElementType::kQ8_0, "avx2", Precision::kDefault};
constexpr ProductCase kQ4_1Amx = {ElementType::kQ4_1, "amx", Precision::kDefault};
constexpr ProductCase kQ8_0Amx = {ElementType::kQ8_0, "amx", Precision::kDefault};
constexpr ProductCase kBf16Amx = {ElementType::kQ4_1, "amx", Precision::kHigh};

void BM_Product(benchmark::State& state, const ProductCase& how) {
  const auto isa = choose_isa(how.isa);
  if (!isa.ok()) return state.SkipWithError(isa.message().c_str());
  ComputePool pool(1);
  const auto backend = make_cpu_backend(pool, *isa, how.precision);
  std::vector<Weights> model;
  const auto inputs = static_cast<uint64_t>(state.range(0)),
             outputs = static_cast<uint64_t>(state.range(1));
  const size_t copies = outputs == kVocabulary   ? 1
                        : inputs >= kLargeHidden ? kLargeCopies
                                                 : kLayers;
  for (size_t i = 0; i < copies; ++i) {
    model.push_back(make_weights(*backend, how.type, outputs, inputs));
  }
  run_products(state, *backend, model, static_cast<size_t>(state.range(2)));
}

void every_shape(benchmark::internal::Benchmark* bench) {
  const std::pair<uint32_t, uint32_t> shapes[] = {{kHidden, (kHeads + 2 * kKvHeads) * kHeadDim},
                                                  {kHidden, kHidden},
                                                  {kHidden, 2 * kFfn},
                                                  {kFfn, kHidden},
                                                  {kHidden, kVocabulary}};
  bench->ArgNames({"inputs", "outputs", "rows"})->Unit(benchmark::kMillisecond);
  for (const auto& [inputs, outputs] : shapes) {
    for (const int rows : {1, 2, 4, 8, 16, 32, 64, 256}) bench->Args({inputs, outputs, rows});
  }
}
void large_shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"inputs", "outputs", "rows"})->Unit(benchmark::kMillisecond);
  for (const int rows : {1, 8, 32, 256}) {
    bench->Args({kLargeHidden, 2 * kLargeFfn, rows})->Args({kLargeFfn, kLargeHidden, rows});
  }
}
// The widest of a layer's.
void one_shape(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"inputs", "outputs", "rows"})->Unit(benchmark::kMillisecond);
  for (const int rows : {1, 2, 4, 8, 32, 256}) bench->Args({kHidden, 2 * kFfn, rows});
}
BENCHMARK_CAPTURE(BM_Product, q4_1, kQ4_1)->Apply(every_shape);
BENCHMARK_CAPTURE(BM_Product, q8_0, kQ8_0)->Apply(every_shape);
BENCHMARK_CAPTURE(BM_Product, q4_0, kQ4_0)->Apply(one_shape)->Apply(large_shapes);
BENCHMARK_CAPTURE(BM_Product, q6_k, kQ6_K)
    ->ArgNames({"inputs", "outputs", "rows"})
    ->ArgsProduct({{768}, {2048}, {1, 8, 32}})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Product, bf16, kBf16)->Apply(one_shape)->Apply(large_shapes);
BENCHMARK_CAPTURE(BM_Product, f32, kF32)->Apply(one_shape);
BENCHMARK_CAPTURE(BM_Product, q4_1_avx2, kQ4_1Avx2)->Apply(one_shape);
BENCHMARK_CAPTURE(BM_Product, q8_0_avx2, kQ8_0Avx2)->Apply(one_shape);
BENCHMARK_CAPTURE(BM_Product, q4_1_amx, kQ4_1Amx)->Apply(one_shape);
BENCHMARK_CAPTURE(BM_Product, q8_0_amx, kQ8_0Amx)->Apply(one_shape);
BENCHMARK_CAPTURE(BM_Product, bf16_amx, kBf16Amx)->Apply(one_shape);

void BM_Step(benchmark::State& state, Precision precision) {
  ComputePool pool(threads());
  const auto backend = make_cpu_backend(pool, *choose_isa(std::nullopt), precision);
  const std::vector<Weights> model = make_model(*backend, ElementType::kQ4_1);
  run_products(state, *backend, model, static_cast<size_t>(state.range(0)));
}
BENCHMARK_CAPTURE(BM_Step, default, Precision::kDefault)
    ->ArgName("rows")
    ->ArgsProduct({{1, 2, 4, 8, 16, 32, 64}})
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Step, high, Precision::kHigh)
    ->ArgName("rows")
    ->ArgsProduct({{1, 8, 32}})
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

void BM_Attention(benchmark::State& state, KvType type) {
  ComputePool pool(threads());
  const auto backend = make_cpu_backend(pool, *choose_isa(std::nullopt), Precision::kDefault);
  const auto context = static_cast<uint32_t>(state.range(0));
  const auto rows = static_cast<uint32_t>(state.range(1));   // sequences
  const auto chunk = static_cast<uint32_t>(state.range(2));  // tokens of each
  const auto blocks_each = static_cast<uint32_t>(blocks_for(context));
  auto cache = backend->make_kv({kLayers, kKvHeads, kHeadDim, type}, rows * blocks_each);
  if (!cache.ok()) return state.SkipWithError(cache.message().c_str());
  // Pages that nobody wrote to are one page, which is read fast.
  std::memset(host_kv(**cache).layer(0).data, 0x3e, (*cache)->bytes());
  std::vector<BlockId> blocks;
  std::vector<Sequence> sequences;
  for (uint32_t i = 0; i < rows * blocks_each; ++i) blocks.push_back(BlockId{i});
  for (uint32_t i = 0; i < rows; ++i) {
    sequences.push_back({i * chunk, chunk, context - chunk, true,
                         std::span<const BlockId>(blocks).subspan(i * blocks_each, blocks_each)});
  }
  constexpr size_t kWidth = (kHeads + 2 * kKvHeads) * kHeadDim, kQ = kHeads * kHeadDim,
                   kKv = kKvHeads * kHeadDim;
  const size_t all = size_t{rows} * chunk;
  const Buffer memory = backend->allocate(all * (kWidth + kQ) * sizeof(float)).value();
  backend->write(memory.floats(), std::vector<float>(all * kWidth, 0.5F));
  const Rows qkv{memory.floats(), all, kWidth, kWidth};
  const Rows to{memory.floats() + all * kWidth, all, kQ, kQ};
  const std::vector<TokenId> tokens(all, 0);
  const Step step = backend->begin(tokens, sequences, {});
  for (auto _ : state) {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      backend->attend(qkv.columns(0, kQ), qkv.columns(kQ, kKv), qkv.columns(kQ + kKv, kKv), {},
                      step, **cache, layer, {kHeads, 0.125F, 0, 0, nullptr}, to);
    }
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>((*cache)->bytes()));
}
BENCHMARK_CAPTURE(BM_Attention, bf16, KvType::kBf16)
    ->ArgNames({"context", "rows", "chunk"})
    ->Args({128, 1, 1})
    ->Args({1024, 1, 1})
    ->Args({128, 8, 1})
    ->Args({192, 32, 1})
    ->Args({4096, 8, 1})
    ->Args({256, 1, 256})
    ->Args({2048, 1, 256})
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Attention, int8, KvType::kInt8)
    ->ArgNames({"context", "rows", "chunk"})
    ->Args({1024, 1, 1})
    ->Args({192, 32, 1})
    ->Args({4096, 8, 1})
    ->Args({2048, 1, 256})
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

}  // namespace
}  // namespace skein
