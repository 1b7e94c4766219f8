// The CPU backend's threads: any number of them gives the bits of one. Small, for ThreadSanitizer;
// backend_conformance_test compares with the reference.
#include "backend/arithmetic.h"
#include "backend/conformance.h"

namespace skein {
namespace {

// One layer's ops on `rows` rows of a sequence that has `start` tokens behind it.
std::vector<float> run_layer(Precision precision, KvType kv_type, size_t threads, uint32_t rows,
                             uint32_t start) {
  ComputePool pool(threads);
  const auto backend = make_cpu_backend(pool, *choose_isa(std::nullopt), precision);
  Rng rng(rows);
  const OwnedTensor w = random_tensor(ElementType::kQ4_1, 3 * 128, 128, rng);
  const WeightView part = w.view;
  const auto matrix = backend->make_matrix({&part, 1}).value();
  const size_t head_bytes = KvLayer::head_bytes(64, kv_type);
  std::vector<float> memory = random_floats(40 * 2 * head_bytes / sizeof(float), rng);
  if (kv_type == KvType::kBf16) {  // pairs of zero and a number
    for (float& x : memory) x = arithmetic::float_of_bf16(arithmetic::round_to_bf16(x));
  }
  const KvLayer cache{reinterpret_cast<std::byte*>(memory.data()), 2 * head_bytes, 2, 64, kv_type};
  std::vector<BlockId> blocks;
  for (uint32_t i = 0; i < 40; ++i) blocks.push_back(BlockId{39 - i});
  const Sequence sequence{0, rows, start, true, blocks};

  const OwnedRows x = OwnedRows::random(rows, 128, rng), qkv(rows, 384), out(rows, 128);
  backend->norm(x.view(), {}, x.view());
  backend->linear(x.view(), *matrix, nullptr, qkv.view());
  backend->kv_store(qkv.view().columns(128, 128), qkv.view().columns(256, 128), {&sequence, 1},
                    cache);
  backend->attention(qkv.view().columns(0, 128), {&sequence, 1}, cache, {2, 0.125F, 0, 0, nullptr},
                     out.view());
  backend->activate(qkv.view().columns(0, 256), {}, x.view());
  backend->add(out.view(), x.view(), 1.0F);
  return out.all();
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
