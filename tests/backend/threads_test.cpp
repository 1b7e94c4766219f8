// The CPU backend's threads: any number of them gives the bits of one. Small, for ThreadSanitizer;
// backend_conformance_test compares with the reference.
#include "backend/attention_conformance.h"

namespace skein {
namespace {

// One layer's ops on `rows` rows of a sequence that has `start` tokens behind it.
std::vector<float> run_layer(Precision precision, KvType kv_type, size_t threads, uint32_t rows,
                             uint32_t start) {
  ComputePool pool(threads);
  TestBackend backend(make_cpu_backend(pool, *choose_isa(std::nullopt), precision));
  Rng rng(rows);
  const OwnedTensor w = random_tensor(ElementType::kQ4_1, 3 * 128, 128, rng);
  const auto matrix = backend.matrix({w.view});
  const auto cache = make_cache(backend, kv_type, 40, 2, 64);
  const OwnedRows kv = OwnedRows::random(40 * kBlockTokens, 128, rng);
  fill(backend, *cache, kv, kv);
  std::vector<BlockId> blocks;
  for (uint32_t i = 0; i < 40; ++i) blocks.push_back(BlockId{39 - i});
  const Sequence sequence{0, rows, start, true, blocks};

  const Rows x = backend.up(OwnedRows::random(rows, 128, rng)),
             qkv = backend.up(OwnedRows(rows, 384)), out = backend.up(OwnedRows(rows, 128));
  backend->norm(x, {}, x);
  backend->linear(x, *matrix, nullptr, qkv);
  backend.attend(qkv.columns(0, 128), qkv.columns(128, 128), qkv.columns(256, 128), {},
                 {&sequence, 1}, *cache, {2, 0.125F, 0, 0, nullptr}, out);
  backend->activate(qkv.columns(0, 256), {}, x);
  backend->add(out, x, 1.0F);
  return backend.down(out).all();
}

TEST(CpuThreads, AnyNumberGivesTheSameBits) {
  const std::pair<Precision, KvType> settings[] = {{Precision::kF32, KvType::kF32},
                                                   {Precision::kDefault, KvType::kBf16},
                                                   {Precision::kDefault, KvType::kInt8},
                                                   {Precision::kHigh, KvType::kF32}};
  for (const auto& [precision, kv_type] : settings) {
    for (const uint32_t rows : {1U, 65U}) {
      const std::vector<float> one = run_layer(precision, kv_type, 1, rows, 1100);
      for (const size_t threads : {2, 3, 5}) {
        EXPECT_TRUE(same_bits(run_layer(precision, kv_type, threads, rows, 1100), one)) << threads;
      }
    }
  }
}

}  // namespace
}  // namespace skein
