// Ops allocate nothing once they have seen their largest shape.
#include <gtest/gtest.h>

#include "backend/conformance.h"
#include "sim/allocation_hooks.h"

namespace skein {
namespace {

void check_precision(Precision precision, KvType kv_type) {
  ComputePool pool(1);  // everything on this thread, whose allocations are counted
  TestBackend backend(make_cpu_backend(pool, *choose_isa(std::nullopt), precision));
  Rng rng(1);
  const OwnedTensor w = random_tensor(ElementType::kQ4_1, 96, 64, rng);
  const OwnedTensor reference_path = random_tensor(ElementType::kQ3_K, 1, 256, rng);
  std::vector<std::unique_ptr<Matrix>> matrices;
  for (int i = 0; i < 3; ++i) matrices.push_back(backend.matrix({w.view}));
  const auto other = backend.matrix({reference_path.view});
  const auto table = backend.table({w.view});

  const auto cache = backend->make_kv({1, 2, 32, kv_type}, 40).value();
  const auto rope = backend->make_rope(std::vector<float>(8, 0.5F), 1).value();
  const auto routes = backend->make_routes(33, 2).value();
  std::vector<BlockId> blocks;
  for (uint32_t i = 0; i < 40; ++i) blocks.push_back(BlockId{i});
  const auto rows_of = [&](size_t width) { return backend.up(OwnedRows::random(33, width, rng)); };
  const Rows x = rows_of(64), out = rows_of(96), q = rows_of(128), k = rows_of(64),
             attended = rows_of(128), wide = rows_of(256), one = rows_of(1), angles = rows_of(16),
             last = rows_of(64), expert_out = backend.up(OwnedRows::random(66, 96, rng));
  const std::vector<TokenId> ids(33, 5);

  const auto step = [&](size_t rows, uint32_t start) {
    const Sequence sequence{0, static_cast<uint32_t>(rows), start, true, blocks};
    const auto wanted = static_cast<uint32_t>(rows - 1);
    const Step s = backend->begin(std::span(ids).first(rows), {&sequence, 1}, {&wanted, 1});
    backend->run(s, 0, [&] {
      backend->embed(*table, s, 1.0F, x.first(rows));
      backend->norm(x.first(rows), {}, x.first(rows));
      backend->linear(x.first(rows), *matrices[1], nullptr, out.first(rows));
      backend->linear(wide.first(rows), *other, nullptr, one.first(rows));
      backend->rope_angles(s, *rope, angles.first(rows));
      backend->attend(q.first(rows), k.first(rows), k.first(rows),
                      {nullptr, nullptr, RopeLayout::kHalves, angles.first(rows)}, s, *cache, 0,
                      {4, 1, 0, 0, nullptr}, attended.first(rows));
      backend->route(out.columns(0, 3).first(rows), RouterKind::kTopThenSoftmax, *routes);
      backend->expert_linear(x.first(rows), matrices, nullptr, *routes, expert_out.first(2 * rows));
      backend->combine(expert_out.first(2 * rows), *routes, out.first(rows));
      backend->gather(x.first(rows), s, last.first(1));
      backend->finish_logits(out.first(rows), 0.5F, 30.0F);
    });
    (void)backend->read(out.first(rows));
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
