// Ops one after the other, as a decoder calls them: a backend may leave to an op what the one
// before it began, and nothing of that may show.
#include "backend/sequence_conformance.h"

namespace skein {
namespace {

TEST_P(OpsInARow, LeaveWhatTheyLeaveOneByOne) {
  const Weights all = weights();
  const Caches caches = filled_caches(KvType::kBf16, 620, kShape);
  Shuffled blocks(620, rng_);
  const std::vector<Sequence> some = {{0, 1, 300, true, blocks.take(301)},
                                      {1, 3, 510, true, blocks.take(513)},
                                      {4, 1, 0, true, blocks.take(1)},
                                      {5, 1, 255, false, blocks.take(256)},
                                      {6, 9, 40, true, blocks.take(49)}};
  const std::vector<Sequence> longs = {{0, 1, 2600, true, blocks.take(2601)},
                                       {1, 1, 1500, false, blocks.take(1501)}};
  const std::vector<Sequence> many = single_rows(blocks);
  std::vector<std::span<const Sequence>> steps = {std::span(some).first(1), std::span(some),
                                                  std::span(many).first(3)};
  // A host leaves nothing to the next op, whatever the rows, and the reference takes its time.
  if (!GetParam().backend.computes_on_host) {
    steps.insert(steps.end(), {std::span(longs).first(1), std::span(longs),
                               std::span(many).first(20), std::span(many)});
  }
  for (const std::span<const Sequence> sequences : steps) {
    const size_t rows = sequences.back().first_row + sequences.back().rows;
    const std::vector<float> input = random_floats(rows * kWidth, rng_);
    Left want;
    run_ops(reference_, all, input, sequences, *caches.theirs, 1,
            [&](Left left) { want = std::move(left); });
    for (const int times : {1, 3}) {
      int run = 0;
      run_ops(backend_, all, input, sequences, *caches.mine, times, [&](const Left& left) {
        ASSERT_TRUE(agree_everywhere(left, want)) << rows << " rows, run " << ++run << "/" << times;
      });
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

INSTANTIATE_TEST_SUITE_P(Backends, OpsInARow, ::testing::ValuesIn(sequence_params()), param_name);
INSTANTIATE_TEST_SUITE_P(Backends, Peaks, ::testing::ValuesIn(sequence_params()), param_name);

}  // namespace
}  // namespace skein
