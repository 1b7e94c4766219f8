// The ops of a step of an 8B Llama, each alone: microseconds, and what they read and multiply in
// that time.
//
//   device_ops [device]      "cuda" if absent
//
// An op is queued many times and then waited for, so that a figure is the larger of what the device
// computes and what the host takes to ask for it. Weights of less than the device's cache are read
// from there, and so seem faster than memory.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "backend/registry.h"
#include "base/check.h"
#include "base/compute_pool.h"
#include "base/resources.h"
#include "base/rng.h"

namespace skein {
namespace {

constexpr uint32_t kWidth = 4096, kFeedForward = 14336, kHeads = 32, kKvHeads = 8, kHeadDim = 128;
constexpr uint32_t kVocabulary = 128256;

class DeviceOps {
 public:
  explicit DeviceOps(Backend& backend) : backend_(backend), one_(allocate(1)) {}

  void products(const char* name, size_t outputs, size_t inputs, const std::vector<size_t>& rows,
                bool normed, bool activated) {
    std::vector<uint16_t> bits(outputs * inputs);
    Rng rng(1);
    for (uint16_t& x : bits) x = static_cast<uint16_t>(0x3c00 + (rng.next() & 0x80ff));
    const TensorView view{ElementType::kBF16, Shape{outputs, inputs},
                          std::as_bytes(std::span<const uint16_t>(bits))};
    const auto matrix = backend_.make_matrix(std::vector<WeightView>{view});
    SKEIN_CHECK(matrix.ok(), "{}", matrix.message());
    const Buffer ones = allocate(inputs);
    backend_.write(ones.floats(), std::vector<float>(inputs, 1.0F));
    const NormParams norm{NormKind::kRms, 1e-5F, ones.floats(), nullptr};
    const ActivationParams activation;
    for (const size_t m : rows) {
      LinearInput in(rows_of(m, activated ? 2 * inputs : inputs));
      if (normed) {
        in.norm = &norm;
        in.delta = rows_of(m, inputs);
      }
      if (activated) in.activation = &activation;
      const Rows out = rows_of(m, outputs);
      const double us = time([&] { backend_.linear(in, **matrix, nullptr, out); }, m);
      const double weights = static_cast<double>(outputs) * static_cast<double>(inputs);
      std::printf("%-10s m %5zu %9.1f us %7.0f GB/s %7.1f TFLOP/s\n", name, m, us,
                  2 * weights / us / 1e3, 2 * weights * static_cast<double>(m) / us / 1e6);
      memory_.clear();
    }
  }

  // `sequences` of `rows` rows each, the last of which see `context` tokens.
  void attention(uint32_t sequences, uint32_t rows, uint32_t context) {
    const auto each = static_cast<uint32_t>(blocks_for(context));
    auto cache = backend_.make_kv({1, kKvHeads, kHeadDim, KvType::kBf16}, sequences * each);
    SKEIN_CHECK(cache.ok(), "{}", cache.message());
    std::vector<BlockId> blocks;
    for (uint32_t i = 0; i < sequences * each; ++i) blocks.push_back(BlockId{i});
    std::vector<Sequence> all;
    for (uint32_t i = 0; i < sequences; ++i) {
      all.push_back(
          {i * rows, rows, context - rows, true, std::span(blocks).subspan(i * each, each)});
    }
    const size_t m = size_t{sequences} * rows;
    const std::vector<TokenId> tokens(m, 0);
    const Step step = backend_.begin(tokens, all, {});
    AttentionParams params;
    params.heads = kHeads;
    params.scale = 1 / std::sqrt(static_cast<float>(kHeadDim));
    QkTransform transform;
    transform.angles = rows_of(m, kHeadDim);
    const Rows q = rows_of(m, size_t{kHeads} * kHeadDim), out = rows_of(m, q.width);
    const Rows k = rows_of(m, size_t{kKvHeads} * kHeadDim), v = rows_of(m, k.width);
    const double us =
        time([&] { backend_.attend(q, k, v, transform, step, **cache, 0, params, out); }, m);
    const double bytes = 2.0 * sequences * context * kKvHeads * kHeadDim * 2;
    std::printf("attention  m %5zu %9.1f us %7.0f GB/s, context %u\n", m, us, bytes / us / 1e3,
                context);
    memory_.clear();
  }

  void small_ops() {
    for (const size_t m : {1, 64}) {
      const Rows a = rows_of(m, kWidth), b = rows_of(m, kWidth);
      std::printf("add        m %5zu %9.1f us\n", m, time([&] { backend_.add(a, b, 1); }, m));
      memory_.clear();
    }
  }

 private:
  Buffer allocate(size_t floats) {
    auto memory = backend_.allocate(floats * sizeof(float));
    SKEIN_CHECK(memory.ok(), "{}", memory.message());
    return std::move(*memory);
  }
  Floats filled(size_t count) {
    memory_.push_back(allocate(count));
    backend_.write(memory_.back().floats(), std::vector<float>(count, 1.0F));
    return memory_.back().floats();
  }
  Rows rows_of(size_t rows, size_t width) { return {filled(rows * width), rows, width, width}; }

  double time(const std::function<void()>& op, size_t rows) {
    const int count = rows > 256 ? 10 : 100;
    const auto wait = [&] { static_cast<void>(backend_.read({one_.floats(), 1, 1, 1})); };
    for (int i = 0; i < 3; ++i) op();
    wait();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) op();
    wait();
    const std::chrono::duration<double, std::micro> all = std::chrono::steady_clock::now() - start;
    return all.count() / count;
  }

  Backend& backend_;
  Buffer one_;
  std::vector<Buffer> memory_;
};

int run(const std::string& device) {
  ComputePool pool(usable_cpus());
  const auto backend = make_backend({.device = device}, pool);
  if (!backend.ok()) {
    std::fprintf(stderr, "device_ops: %s\n", backend.message().c_str());
    return 1;
  }
  DeviceOps ops(**backend);
  ops.small_ops();
  const std::vector<size_t> rows = {1, 8, 64, 256, 2048};
  ops.products("qkv", 6144, kWidth, rows, true, false);
  ops.products("o", kWidth, kWidth, rows, false, false);
  ops.products("gate_up", size_t{2} * kFeedForward, kWidth, rows, true, false);
  ops.products("down", kWidth, kFeedForward, rows, false, true);
  ops.products("head", kVocabulary, kWidth, {1, 64}, true, false);
  ops.attention(1, 1, 320);
  ops.attention(8, 1, 320);
  ops.attention(64, 1, 320);
  ops.attention(64, 1, 2048);
  ops.attention(1, 1, 8192);
  ops.attention(8, 256, 256);
  ops.attention(1, 2048, 2048);
  return 0;
}

}  // namespace
}  // namespace skein

int main(int argc, char** argv) {
  return skein::run(argc > 1 ? argv[1] : "cuda");
}
