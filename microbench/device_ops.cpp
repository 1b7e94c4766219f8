// The ops of a step of an 8B Llama, each alone: microseconds, and what they read and multiply in
// that time. Then layers as a step has them, recorded and replayed at once, and the ops of a layer
// that way, each after itself.
//
//   device_ops [device [ops|layers|once [type [1b]]]]   "cuda" and the first two if absent; once: a
//                                                       layer of few and one of many rows, for a
//                                                       profiler; layers of random weights of that
//                                                       type, bf16 if absent, or of a 1B Llama
//
// An op is queued many times and then waited for, so that a figure is the larger of what the device
// computes and what the host takes to ask for it. Weights of less than the device's cache are read
// from there, and so seem faster than memory.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/seeded_backend.h"
#include "base/check.h"
#include "base/compute_pool.h"
#include "base/resources.h"

namespace skein {
namespace {

constexpr uint32_t kWidth = 4096, kFeedForward = 14336, kHeads = 32, kKvHeads = 8, kHeadDim = 128;
constexpr uint32_t kVocabulary = 128256;

class DeviceOps {
 public:
  explicit DeviceOps(Backend& backend) : backend_(backend), one_(allocate(1)) {}

  void products(const char* name, size_t outputs, size_t inputs, const std::vector<size_t>& rows,
                bool normed, bool activated) {
    const TensorView view{ElementType::kBF16, Shape{outputs, inputs}, {}};
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

// What a layer and the output matrix are.
struct LayerShape {
  ElementType type = ElementType::kBF16, head_type = ElementType::kBF16;
  uint32_t width = kWidth, feed_forward = kFeedForward, head_dim = kHeadDim;

  size_t qkv() const { return size_t{kHeads + 2 * kKvHeads} * head_dim; }
  // Files of less than 8 bits have more for the output.
  static LayerShape of(ElementType type, bool small) {
    const bool is_fine = type == ElementType::kBF16 || type == ElementType::kQ8_0;
    const ElementType head = is_fine ? type : ElementType::kQ6_K;
    return small ? LayerShape{type, head, 2048, 8192, 64}
                 : LayerShape{.type = type, .head_type = head};
  }
};

// Layers whose weights do not fit into the device's cache, of a backend that fills them by itself.
class DeviceLayers {
 public:
  DeviceLayers(Backend& backend, uint32_t layers, const LayerShape& shape)
      : backend_(backend), shape_(shape), one_(floats(1)) {
    const auto make = [&](ElementType type, size_t outputs, size_t inputs) {
      const TensorView view{type, Shape{outputs, inputs}, {}};
      auto matrix = backend_.make_matrix(std::vector<WeightView>{view});
      SKEIN_CHECK(matrix.ok(), "{}", matrix.message());
      return std::move(*matrix);
    };
    const size_t width = shape.width, inner = shape.feed_forward;
    for (uint32_t i = 0; i < layers; ++i) {
      layers_.push_back({make(shape.type, shape.qkv(), width), make(shape.type, width, width),
                         make(shape.type, 2 * inner, width), make(shape.type, width, inner)});
    }
    head_ = make(shape.head_type, kVocabulary, width);
    ones_memory_ = floats(width);
    backend_.write(ones_memory_.floats(), std::vector<float>(width, 1.0F));
    ones_ = ones_memory_.floats();
  }

  // Every op of `rows` sequences of one row each, which see `context` tokens.
  void measure(uint32_t rows, uint32_t context) {
    prepare(rows, context);
    const auto print = [&](const char* name, double us) {
      std::printf("layer      m %5u %9.1f us %s\n", rows, us, name);
    };
    print("all", time([&](const Layer& layer, uint32_t i) { pass(layer, i); }));
    print("without attention", time([&](const Layer& layer, uint32_t) {
            qkv(layer);
            o(layer);
            feed_forward(layer);
          }));
    print("attention", time([&](const Layer&, uint32_t i) { attend(i); }));
    print("qkv", time([&](const Layer& layer, uint32_t) { qkv(layer); }));
    print("o", time([&](const Layer& layer, uint32_t) { o(layer); }));
    print("gate_up", time([&](const Layer& layer, uint32_t) { gate_up(layer); }));
    print("down", time([&](const Layer& layer, uint32_t) { down(layer); }));
    print("feed-forward", time([&](const Layer& layer, uint32_t) { feed_forward(layer); }));
    print("head", time([&](const Layer&, uint32_t) {
            backend_.linear(stream(), *head_, nullptr, logits_);
          }));
    memory_.clear();
  }

  void once(uint32_t rows, uint32_t context) {
    prepare(rows, context);
    for (uint32_t i = 0; i < layers_.size(); ++i) pass(layers_[i], i);
    wait();
    memory_.clear();
  }

  // The largest of `rows` rows of logits, found there, and all of them read.
  void logits(uint32_t rows) {
    const Rows all{filled(size_t{rows} * kVocabulary), rows, kVocabulary, kVocabulary};
    std::vector<VocabularyScan::Argmax> peaks(rows);
    const auto timed = [&](const std::function<void()>& op) {
      op();
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 10; ++i) op();
      return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
                 .count() /
             10;
    };
    std::printf("peaks      m %5u %9.1f us\n", rows, timed([&] { backend_.peaks(all, peaks); }));
    std::printf("read       m %5u %9.1f us\n", rows, timed([&] { backend_.read(all); }));
  }

 private:
  static constexpr uint32_t kTimes = 32;
  struct Layer {
    std::unique_ptr<Matrix> qkv, o, gate_up, down;
  };

  void prepare(uint32_t rows, uint32_t context) {
    const auto each = static_cast<uint32_t>(blocks_for(context));
    auto cache = backend_.make_kv(
        {static_cast<uint32_t>(layers_.size()), kKvHeads, shape_.head_dim, KvType::kBf16},
        rows * each);
    SKEIN_CHECK(cache.ok(), "{}", cache.message());
    cache_ = std::move(*cache);
    blocks_.clear();
    sequences_.clear();
    for (uint32_t i = 0; i < rows * each; ++i) blocks_.push_back(BlockId{i});
    for (uint32_t i = 0; i < rows; ++i) {
      sequences_.push_back({i, 1, context - 1, true, std::span(blocks_).subspan(i * each, each)});
    }
    tokens_.assign(rows, 0);
    step_ = backend_.begin(tokens_, sequences_, {});
    const auto make = [&](size_t width) { return Rows{filled(rows * width), rows, width, width}; };
    stream_ = make(shape_.width);
    delta_ = make(shape_.width);
    qkv_ = make(shape_.qkv());
    attended_ = make(size_t{kHeads} * shape_.head_dim);
    gate_up_ = make(size_t{2} * shape_.feed_forward);
    angles_ = make(shape_.head_dim);
    logits_ = make(kVocabulary);
  }

  LinearInput stream() {
    LinearInput in(stream_);
    in.delta = delta_;
    in.norm = &norm_;
    return in;
  }
  void qkv(const Layer& layer) {
    norm_ = {NormKind::kRms, 1e-5F, ones_, nullptr};
    backend_.linear(stream(), *layer.qkv, nullptr, qkv_);
  }
  void attend(uint32_t i) {
    AttentionParams params;
    params.heads = kHeads;
    params.scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim));
    QkTransform transform;
    transform.angles = angles_;
    const size_t kv = size_t{kKvHeads} * shape_.head_dim, first = size_t{kHeads} * shape_.head_dim;
    backend_.attend(qkv_.columns(0, first), qkv_.columns(first, kv), qkv_.columns(first + kv, kv),
                    transform, step_, *cache_, i, params, attended_);
  }
  void o(const Layer& layer) { backend_.linear(attended_, *layer.o, nullptr, delta_); }
  void gate_up(const Layer& layer) { backend_.linear(stream(), *layer.gate_up, nullptr, gate_up_); }
  void down(const Layer& layer) {
    LinearInput in(gate_up_);
    in.activation = &activation_;
    backend_.linear(in, *layer.down, nullptr, delta_);
  }
  void feed_forward(const Layer& layer) {
    gate_up(layer);
    down(layer);
  }
  void pass(const Layer& layer, uint32_t i) {
    qkv(layer);
    attend(i);
    o(layer);
    feed_forward(layer);
  }

  template <class Fn>
  double time(const Fn& fn) {
    const auto once = [&] {
      backend_.run(step_, keys_, [&] {
        for (uint32_t i = 0; i < kTimes; ++i) {
          const auto layer = static_cast<uint32_t>(i % layers_.size());
          fn(layers_[layer], layer);
        }
      });
    };
    ++keys_;
    constexpr int kWarmUp = 4, kCount = 10;
    for (int i = 0; i < kWarmUp; ++i) once();
    wait();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCount; ++i) once();
    wait();
    const std::chrono::duration<double, std::micro> all = std::chrono::steady_clock::now() - start;
    return all.count() / (kCount * kTimes);
  }
  void wait() { static_cast<void>(backend_.read({one_.floats(), 1, 1, 1})); }
  Buffer floats(size_t count) {
    auto memory = backend_.allocate(count * sizeof(float));
    SKEIN_CHECK(memory.ok(), "{}", memory.message());
    return std::move(*memory);
  }
  Floats filled(size_t count) {
    memory_.push_back(floats(count));
    backend_.write(memory_.back().floats(), std::vector<float>(count, 1.0F));
    return memory_.back().floats();
  }

  Backend& backend_;
  const LayerShape shape_;
  Buffer one_;
  std::vector<Layer> layers_;
  std::unique_ptr<Matrix> head_;
  std::vector<Buffer> memory_;
  Buffer ones_memory_;
  Floats ones_;
  Step step_;
  std::unique_ptr<KvCache> cache_;
  std::vector<BlockId> blocks_;
  std::vector<Sequence> sequences_;
  std::vector<TokenId> tokens_;
  Rows stream_, delta_, qkv_, attended_, gate_up_, angles_, logits_;
  NormParams norm_;
  ActivationParams activation_;
  uint64_t keys_ = 1;
};

void measure_layers(Backend& backend, const LayerShape& shape) {
  DeviceLayers layers(backend, shape.width == kWidth ? 4 : 16, shape);
  layers.measure(1, 320);
  layers.measure(8, 320);
  layers.measure(64, 320);
  layers.logits(1);
  layers.logits(64);
}

int run(const std::string& device, const std::string& what, const LayerShape& shape) {
  ComputePool pool(usable_cpus());
  const auto backend = make_seeded_backend({.device = device}, pool, 1);
  if (!backend.ok()) {
    std::fprintf(stderr, "device_ops: %s\n", backend.message().c_str());
    return 1;
  }
  if (what == "once") {
    DeviceLayers layers(**backend, 1, shape);
    layers.once(1, 320);
    layers.once(64, 320);
    return 0;
  }
  if (what != "ops") measure_layers(**backend, shape);
  if (what == "layers") return 0;
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
  ops.attention(1, 1, 32768);
  ops.attention(8, 1, 32768);
  ops.attention(64, 1, 32768);
  ops.attention(8, 256, 256);
  ops.attention(1, 2048, 2048);
  return 0;
}

}  // namespace
}  // namespace skein

int main(int argc, char** argv) {
  const auto type = skein::element_type_of_name(argc > 3 ? argv[3] : "BF16");
  if (!type) return 2;
  return skein::run(argc > 1 ? argv[1] : "cuda", argc > 2 ? argv[2] : "",
                    skein::LayerShape::of(*type, argc > 4));
}
