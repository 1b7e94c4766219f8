// Two layers of a Llama, op after op as a decoder calls them.
#pragma once

#include <cmath>
#include <deque>
#include <utility>

#include "backend/attention_conformance.h"
#include "base/function_ref.h"

namespace skein {

// With sums of several segments and rows where a decoder has them.
class OpsInARow : public AttentionOps {
 protected:
  static constexpr uint32_t kWidth = 1024, kFeedForward = 1280, kLayers = 2;
  static constexpr Shape4 kShape{128, 4, 4};
  static constexpr size_t kQWidth = size_t{kShape.head_dim} * kShape.kv_heads * kShape.shared;
  static constexpr size_t kKvWidth = size_t{kShape.head_dim} * kShape.kv_heads;

  struct Weights {
    Both qkv, o, gate_up, down;
    std::vector<float> norm, bias;
  };
  Weights weights() {
    const auto both = [&](size_t outputs, size_t inputs) {
      tensors_.push_back(random_tensor(ElementType::kBF16, outputs, inputs, rng_));
      return matrices({tensors_.back().view});
    };
    return {both(kQWidth + 2 * kKvWidth, kWidth),
            both(kWidth, kQWidth),
            both(size_t{2} * kFeedForward, kWidth),
            both(kWidth, kFeedForward),
            random_floats(kWidth, rng_),
            random_floats(kWidth, rng_)};
  }

  // Aligned, and one row right after the other.
  static Rows rows_of(TestBackend& b, const std::vector<float>& values, size_t rows) {
    const size_t width = values.size() / rows;
    return {b.up(values), rows, width, width};
  }

  // Rows that are sequences of their own: all of them are more than a device takes one by one.
  static std::vector<Sequence> single_rows(Shuffled& blocks) {
    std::vector<Sequence> all;
    for (uint32_t i = 0; i < 34; ++i) {
      const uint32_t context = i * 37 % 700;
      all.push_back({i, 1, context, i % 5 != 0, blocks.take(context + 1)});
    }
    return all;
  }

  using Left = std::vector<std::vector<float>>;
  // See what is left everywhere after each of `times` runs of the same ops on the same rows.
  void run_ops(TestBackend& b, const Weights& weights, const std::vector<float>& input,
               std::span<const Sequence> sequences, KvCache& cache, int times,
               FunctionRef<void(Left left)> see) {
    const size_t rows = input.size() / kWidth;
    b.clear();
    const auto zeros = [&](size_t width) {
      return rows_of(b, std::vector<float>(rows * width), rows);
    };
    const Rows stream = zeros(kWidth), delta = zeros(kWidth), attended = zeros(kQWidth);
    const Rows qkv = zeros(kQWidth + 2 * kKvWidth), gate_up = zeros(size_t{2} * kFeedForward);
    const Rows angles = rows_of(b, std::vector<float>(rows * kShape.head_dim, 0.6F), rows);
    const NormParams norm{NormKind::kRms, 1e-5F, b.up(weights.norm), nullptr};
    const Floats bias = b.up(weights.bias);
    const AttentionParams params = params_for(kShape);
    const ActivationParams activation;
    QkTransform transform;
    transform.angles = angles;
    for (int i = 0; i < times; ++i) {
      b->write(stream.data, input);
      const Step step = b.begin(sequences);
      b->run(step, 1'000'000 + rows, [&] {
        for (uint32_t layer = 0; layer < kLayers; ++layer) {
          LinearInput in(stream);
          in.norm = &norm;
          if (layer > 0) in.delta = delta;
          b->linear(in, Conformance::of(b, weights.qkv), nullptr, qkv);
          b->attend(qkv.columns(0, kQWidth), qkv.columns(kQWidth, kKvWidth),
                    qkv.columns(kQWidth + kKvWidth, kKvWidth), transform, step, cache, 0, params,
                    attended);
          b->linear(attended, Conformance::of(b, weights.o), bias, delta);
          in.delta = delta;
          in.delta_scale = 0.5F;
          b->linear(in, Conformance::of(b, weights.gate_up), nullptr, gate_up);
          LinearInput activated(gate_up);
          activated.activation = &activation;
          b->linear(activated, Conformance::of(b, weights.down), nullptr, delta);
        }
      });
      Left left;
      for (const Rows& x : {stream, qkv, attended, gate_up, delta}) {
        const HostRows read = b->read(x);
        left.emplace_back(read.data, read.data + read.rows * read.width);
      }
      see(std::move(left));
    }
  }
  ::testing::AssertionResult agree_everywhere(const Left& got, const Left& want) const {
    for (size_t i = 0; i < want.size(); ++i) {
      if (auto result = agree(got[i], want[i]); !result) return result << ", buffer " << i;
    }
    return ::testing::AssertionSuccess();
  }

  std::deque<OwnedTensor> tensors_;
};

// On hosts an op is finished when it returns: one of them stands for all.
inline std::vector<BackendParam> sequence_params() {
  std::vector<BackendParam> params;
  for (const BackendParam& param : backend_params_of_every_precision()) {
    if (!param.backend.computes_on_host && param.precision != Precision::kHigh) {
      params.push_back(param);
    }
  }
  params.push_back({cpu_under_test(available_isas().back()), 1, Precision::kDefault});
  return params;
}

}  // namespace skein
