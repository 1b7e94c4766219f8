// Ops one after the other, as a decoder calls them: a backend may leave to an op what the one
// before it began, and nothing of that may show.
#include <cmath>
#include <deque>

#include "backend/attention_conformance.h"

namespace skein {
namespace {

// Two layers of a Llama, with sums of several segments and rows where a decoder has them.
class OpsInARow : public AttentionOps {
 protected:
  static constexpr uint32_t kWidth = 1024, kFeedForward = 1280, kLayers = 2;
  static constexpr Shape4 kShape{128, 2, 4};
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

  // What is left everywhere after `times` runs of the same ops on the same rows.
  std::vector<std::vector<float>> results(TestBackend& b, const Weights& weights,
                                          const std::vector<float>& input,
                                          std::span<const Sequence> sequences, KvCache& cache,
                                          int times) {
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
    }
    std::vector<std::vector<float>> left;
    for (const Rows& x : {stream, qkv, attended, gate_up, delta}) {
      const HostRows read = b->read(x);
      left.emplace_back(read.data, read.data + read.rows * read.width);
    }
    return left;
  }

  std::deque<OwnedTensor> tensors_;
};

TEST_P(OpsInARow, LeaveWhatTheyLeaveOneByOne) {
  const Weights all = weights();
  const Caches caches = filled_caches(KvType::kBf16, 60, kShape);
  Shuffled blocks(60, rng_);
  const std::vector<Sequence> some = {{0, 1, 300, true, blocks.take(301)},
                                      {1, 3, 510, true, blocks.take(513)},
                                      {4, 1, 0, true, blocks.take(1)},
                                      {5, 1, 255, false, blocks.take(256)},
                                      {6, 9, 40, true, blocks.take(49)}};
  for (const size_t count : {size_t{1}, some.size()}) {
    const auto sequences = std::span(some).first(count);
    const size_t rows = sequences.back().first_row + sequences.back().rows;
    const std::vector<float> input = random_floats(rows * kWidth, rng_);
    const auto want = results(reference_, all, input, sequences, *caches.theirs, 1);
    for (const int times : {1, 3}) {
      const auto got = results(backend_, all, input, sequences, *caches.mine, times);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_TRUE(agree(got[i], want[i])) << rows << " rows, buffer " << i << ", " << times;
      }
    }
  }
}

class Peaks : public Conformance {};

TEST_P(Peaks, AreTheScans) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const OwnedRows random = OwnedRows::random(5, 20'000, rng_);
  OwnedRows rows = random;
  rows.at(1)[19'999] = rows.at(1)[77] = 9;
  std::fill_n(rows.at(2), rows.width(), -kInf);
  std::fill_n(rows.at(3), rows.width(), -kInf);
  rows.at(3)[9'000] = -1e30F;
  std::fill_n(rows.at(4), rows.width(), -0.0F);
  rows.at(4)[100] = 0.0F;
  std::vector<VocabularyScan::Argmax> peaks(rows.rows());
  if (!backend_->peaks(backend_.up(rows), peaks)) {
    EXPECT_TRUE(GetParam().backend.computes_on_host || GetParam().precision == Precision::kF32);
    return;
  }
  for (size_t i = 0; i < rows.rows(); ++i) {
    const VocabularyScan::Argmax want = backend_->scan().argmax(rows.row(i));
    EXPECT_EQ(peaks[i].index, want.index) << i;
    EXPECT_EQ(peaks[i].value, want.value) << i;
    EXPECT_TRUE(peaks[i].all_finite) << i;
  }
  for (const float bad : {kInf, std::numeric_limits<float>::quiet_NaN()}) {
    rows.at(0)[12'345] = bad;
    ASSERT_TRUE(backend_->peaks(backend_.up(rows), peaks));
    EXPECT_FALSE(peaks[0].all_finite);
    EXPECT_TRUE(peaks[1].all_finite);
  }
}

// A step's tokens may be peaks that nobody on the host has seen; searches end in their order.
TEST_P(Peaks, AreTokensOfTheNextStep) {
  constexpr uint32_t kTokens = 9'000;
  auto queue = backend_->make_draw_queue(8, kTokens, 2);
  ASSERT_TRUE(queue.ok()) << queue.message();
  if (*queue == nullptr) {
    EXPECT_TRUE(GetParam().backend.computes_on_host || GetParam().precision == Precision::kF32);
    return;
  }
  const OwnedTensor numbers = random_tensor(ElementType::kF32, kTokens, 4, rng_);
  const auto table = backend_->make_table(std::vector<WeightView>{numbers.view});
  ASSERT_TRUE(table.ok()) << table.message();
  std::vector<OwnedRows> logits;
  for (const size_t rows : {3, 8, 1, 6}) logits.push_back(OwnedRows::random(rows, kTokens, rng_));
  (*queue)->find(backend_.up(logits[0]), {});
  for (size_t i = 1; i < logits.size(); ++i) {
    // Rows of the search before, the last one twice, and a token that is known.
    const size_t found = logits[i - 1].rows();
    std::vector<TokenId> tokens = {5};
    for (size_t row = found; row-- > 0;) tokens.push_back(~static_cast<TokenId>(row));
    tokens.push_back(~static_cast<TokenId>(found - 1));
    const std::vector<BlockId> blocks(1, BlockId{0});
    const Sequence sequence{0, static_cast<uint32_t>(tokens.size()), 0, true, blocks};
    const Step step = backend_->begin(tokens, {&sequence, 1}, {}, queue->get());
    const Rows out = backend_.up(OwnedRows(tokens.size(), 4));
    backend_->run(step, 7, [&] { backend_->embed(**table, step, 1, out); });
    (*queue)->find(backend_.up(logits[i]), {});
    std::vector<VocabularyScan::Argmax> peaks(found);
    (*queue)->take(peaks);
    const HostRows got = backend_->read(out);
    for (size_t t = 0; t < tokens.size(); ++t) {
      size_t want = 5;
      if (tokens[t] < 0) {
        const auto row = static_cast<size_t>(~tokens[t]);
        want = backend_->scan().argmax(logits[i - 1].row(row)).index;
        EXPECT_EQ(peaks[row].index, want);
      }
      const auto* const values = reinterpret_cast<const float*>(numbers.bytes.data()) + 4 * want;
      EXPECT_TRUE(std::equal(values, values + 4, got.row(t).begin())) << i << " " << t;
    }
  }
}

// On hosts an op is finished when it returns: one of them stands for all.
std::vector<BackendParam> sequence_params() {
  std::vector<BackendParam> params;
  for (const BackendParam& param : backend_params_of_every_precision()) {
    if (!param.backend.computes_on_host && param.precision != Precision::kHigh) {
      params.push_back(param);
    }
  }
  params.push_back({cpu_under_test(CpuIsa::kScalar), 1, Precision::kDefault});
  return params;
}

INSTANTIATE_TEST_SUITE_P(Backends, OpsInARow, ::testing::ValuesIn(sequence_params()), param_name);
INSTANTIATE_TEST_SUITE_P(Backends, Peaks, ::testing::ValuesIn(sequence_params()), param_name);

}  // namespace
}  // namespace skein
