// Ops allocate nothing once they have seen their largest shape.
#include <gtest/gtest.h>

#include "backend/conformance.h"
#include "sim/allocation_hooks.h"

namespace skein {
namespace {

void check_precision(Precision precision, KvType kv_type) {
  ComputePool pool(1);  // everything on this thread, whose allocations are counted
  const auto backend = make_cpu_backend(pool, *choose_isa(std::nullopt), precision);
  Rng rng(1);
  const OwnedTensor w = random_tensor(ElementType::kQ4_1, 96, 64, rng);
  const OwnedTensor reference_path = random_tensor(ElementType::kQ3_K, 1, 256, rng);
  std::vector<std::unique_ptr<Matrix>> matrices;
  for (const TensorView& view : {w.view, w.view, w.view}) {
    const WeightView part = view;
    matrices.push_back(backend->make_matrix({&part, 1}).value());
  }
  const WeightView part = reference_path.view;
  const auto other = backend->make_matrix({&part, 1}).value();
  const WeightView rows = w.view;
  const auto table = backend->make_table({&rows, 1}).value();

  const size_t head_bytes = KvLayer::head_bytes(32, kv_type);
  std::vector<std::byte> memory(100 * head_bytes);
  const KvLayer cache{memory.data(), 2 * head_bytes, 2, 32, kv_type};
  std::vector<BlockId> blocks;
  for (uint32_t i = 0; i < 40; ++i) blocks.push_back(BlockId{i});
  const OwnedRows x = OwnedRows::random(33, 64, rng), out(33, 96), expert_out(66, 96), q(33, 128),
                  k(33, 64), attended(33, 128), wide = OwnedRows::random(33, 256, rng), one(33, 1);
  std::vector<uint32_t> experts(66);
  std::vector<float> weights(66);
  const std::vector<TokenId> ids(33, 5);

  const auto step = [&](size_t rows, uint32_t start) {
    const Sequence sequence{0, static_cast<uint32_t>(rows), start, true, blocks};
    const Routes routes{2, std::span(experts).first(2 * rows), std::span(weights).first(2 * rows)};
    backend->embed(*table, std::span(ids).first(rows), 1.0F, x.view().first(rows));
    backend->norm(x.view().first(rows), {}, x.view().first(rows));
    backend->linear(x.view().first(rows), *matrices[1], nullptr, out.view().first(rows));
    backend->linear(wide.view().first(rows), *other, nullptr, one.view().first(rows));
    backend->kv_store(k.view().first(rows), k.view().first(rows), {&sequence, 1}, cache);
    backend->attention(q.view().first(rows), {&sequence, 1}, cache, {4, 1, 0, 0, nullptr},
                       attended.view().first(rows));
    backend->route(out.view().columns(0, 3).first(rows), RouterKind::kTopThenSoftmax, routes);
    backend->expert_linear(x.view().first(rows), matrices, nullptr, routes,
                           expert_out.view().first(2 * rows));
    backend->combine(expert_out.view().first(2 * rows), routes, out.view().first(rows));
    backend->finish_logits(out.view().first(rows), 0.5F, 30.0F);
  };
  step(33, 1000);
  step(1, 1200);  // by span
  const uint64_t before = sim::allocations();
  for (const size_t rows : {1, 7, 33, 2}) {
    for (const uint32_t start : {0U, 700U, 1000U}) step(rows, start);
  }
  EXPECT_EQ(sim::allocations(), before);
}

TEST(Allocation, NoneAfterTheLargestShape) {
  for (const Precision precision : {Precision::kF32, Precision::kDefault, Precision::kHigh}) {
    check_precision(precision, default_kv_type(precision));
  }
  check_precision(Precision::kDefault, KvType::kInt8);
}

}  // namespace
}  // namespace skein
