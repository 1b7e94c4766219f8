// Attention over a paged cache, and the stores that fill it.
#include "backend/attention_conformance.h"

#include <array>

#include "backend/arithmetic.h"
#include "base/special_floats.h"

namespace skein {
namespace {

using testing::kNan;

// A ragged batch: decodes beside chunks, one row that does not write, one sequence without rows.
TEST_P(AttentionOps, RaggedBatchesOfEveryHeadSize) {
  const Shape4 shapes[] = {{32, 2, 1},  {64, 3, 3}, {80, 1, 2}, {96, 2, 4}, {128, 1, 5},
                           {256, 1, 2}, {24, 2, 3}, {7, 2, 2},  {16, 1, 20}};
  for (size_t c = 0; c < std::size(kTypes) * std::size(shapes); ++c) {
    const Shape4& shape = shapes[c / std::size(kTypes)];
    const size_t type = c % std::size(kTypes);
    const Caches caches = filled_caches(kTypes[type], 60, shape);
    Shuffled blocks(60, rng_);
    const std::vector<Sequence> sequences = {
        {0, 1, 0, true, blocks.take(1)},     {1, 7, 60, true, blocks.take(67)},
        {8, 0, 5, true, blocks.take(5)},     {8, 1, 300, false, blocks.take(301)},
        {9, 3, 510, true, blocks.take(513)}, {12, 2, 31, true, blocks.take(33)}};
    const OwnedRows k = OwnedRows::random(14, shape.kv_heads * shape.head_dim, rng_);
    const OwnedRows v = OwnedRows::random(14, shape.kv_heads * shape.head_dim, rng_);
    const OwnedRows q =
        OwnedRows::random(14, shape.kv_heads * shape.shared * shape.head_dim, rng_, 3);
    struct Masking {
      uint32_t window;
      float softcap;
      bool sinks;
    };
    const Masking maskings[] = {
        {0, 0, false}, {0, 5, true}, {1, 0, true}, {40, 5, false}, {290, 0, false}};
    for (const Masking& masking : maskings) {
      const auto attend = [&](TestBackend& b, Rows out) {
        AttentionParams params = params_for(shape);
        params.window = masking.window;
        params.softcap = masking.softcap;
        if (masking.sinks) params.sinks = b.up(sinks_);
        b.attend(b.up(q), b.up(k), b.up(v), {}, sequences, of(b, caches), params, out);
      };
      ASSERT_TRUE(same(OwnedRows(14, q.width()), attend))
          << shape.head_dim << " type " << type << " window " << masking.window << " softcap "
          << masking.softcap;
    }
  }
}

// Every row sees all of its sequence: texts of any length beside each other, in blocks that held
// something else before.
TEST_P(AttentionOps, RowsThatSeeAll) {
  if (!backend_->runs_encoders()) GTEST_SKIP() << "it runs no encoders";
  const Shape4 shapes[] = {{32, 2, 1}, {24, 1, 3}, {7, 1, 1}};
  for (size_t c = 0; c < std::size(kTypes) * std::size(shapes); ++c) {
    const Shape4& shape = shapes[c / std::size(kTypes)];
    const KvType type = kTypes[c % std::size(kTypes)];
    const Caches caches = filled_caches(type, 40, shape);
    Shuffled blocks(40, rng_);
    std::vector<Sequence> sequences;
    uint32_t rows = 0;
    for (const uint32_t length : {1U, 2U, 17U, 33U, 270U}) {
      sequences.push_back({rows, length, 0, true, blocks.take(length)});
      rows += length;
    }
    const OwnedRows k = OwnedRows::random(rows, shape.kv_heads * shape.head_dim, rng_);
    const OwnedRows v = OwnedRows::random(rows, shape.kv_heads * shape.head_dim, rng_);
    const size_t width = shape.kv_heads * shape.shared * shape.head_dim;
    const OwnedRows q = OwnedRows::random(rows, width, rng_, 3);
    AttentionParams params = params_for(shape);
    params.sees_all = true;
    const auto attend = [&](TestBackend& b, Rows out) {
      b.attend(b.up(q), b.up(k), b.up(v), {}, sequences, of(b, caches), params, out);
    };
    ASSERT_TRUE(same(OwnedRows(rows, width), attend)) << shape.head_dim << " type " << c % 3;
    // The last row of a causal sequence sees all of it too.
    const OwnedRows got = run(backend_, OwnedRows(rows, width), attend);
    params.sees_all = false;
    const OwnedRows causal = run(backend_, OwnedRows(rows, width), attend);
    for (const Sequence& sequence : sequences) {
      const size_t last = sequence.first_row + sequence.rows - 1;
      EXPECT_EQ(got.row(last), causal.row(last));
      if (sequence.rows == 1) continue;
      EXPECT_NE(got.row(last - 1), causal.row(last - 1));
    }
  }
}

// Norms and ropes of both layouts, what is left of q and k, and what was stored: a step that does
// not write sees it.
TEST_P(AttentionOps, PreparesQueriesAndKeys) {
  const Shape4 shape{32, 2, 3};
  const std::vector<float> weight = random_floats(32, rng_);
  for (const KvType type : kTypes) {
    for (const size_t rotary : {0, 16, 20, 32}) {
      const Caches caches = filled_caches(type, 20, shape);
      Shuffled blocks(20, rng_);
      std::vector<Sequence> sequences = {{0, 37, 11, true, blocks.take(48)},
                                         {37, 1, 40, true, blocks.take(41)},
                                         {38, 2, 31, false, blocks.take(33)}};
      const OwnedRows angles = OwnedRows::random(40, rotary, rng_);
      const OwnedRows k = OwnedRows::random(40, 64, rng_), v = OwnedRows::random(40, 64, rng_);
      const OwnedRows q = OwnedRows::random(40, 192, rng_);
      const AttentionParams params = params_for(shape);
      std::vector<OwnedRows> results[2];
      for (TestBackend* const b : {&backend_, &reference_}) {
        b->clear();
        const NormParams q_norm{NormKind::kRms, 1e-6F, b->up(weight), nullptr, 6};
        const NormParams k_norm{NormKind::kRms, 1e-6F, b->up(weight), nullptr, 2};
        QkTransform transform;
        if (rotary > 0) transform = {&q_norm, &k_norm, RopeLayout::kHalves, b->up(angles)};
        if (rotary == 20) transform.layout = RopeLayout::kPairs;
        const Rows out = b->up(OwnedRows(40, 192)), seen = b->up(OwnedRows(40, 192));
        const Rows q_rows = b->up(q), k_rows = b->up(k), v_rows = b->up(v);
        b->attend(q_rows, k_rows, v_rows, transform, sequences, of(*b, caches), params, out);
        std::vector<Sequence> reading = sequences;
        for (Sequence& sequence : reading) sequence.writes_kv = false;
        b->attend(b->up(q), b->up(k), b->up(v), {}, reading, of(*b, caches), params, seen);
        for (const Rows& rows : {q_rows, k_rows, v_rows, out, seen}) {
          results[b == &reference_].push_back(b->down(rows));
        }
      }
      for (size_t i = 0; i < results[0].size(); ++i) {
        ASSERT_TRUE(agree(results[0][i], results[1][i])) << "rotary " << rotary << " rows " << i;
      }
    }
  }
}

TEST_P(AttentionOps, ALongSequenceDecodes) {
  const Shape4 shape{64, 2, 3};
  Caches caches[std::size(kTypes)];
  for (size_t i = 0; i < std::size(kTypes); ++i) caches[i] = filled_caches(kTypes[i], 70, shape);
  for (const uint32_t start : {255U, 256U, 257U, 1999U, 2000U, 2001U}) {
    Shuffled blocks(70, rng_);
    const Sequence sequence{0, 1, start, true, blocks.take(start + 1)};
    AttentionParams params = params_for(shape);
    for (const uint32_t window : {0U, 600U}) {
      params.window = window;
      const OwnedRows q = OwnedRows::random(1, 6 * 64, rng_, 3);
      const OwnedRows k = OwnedRows::random(1, 2 * 64, rng_), v = OwnedRows::random(1, 128, rng_);
      const auto attend = [&](TestBackend& b, Rows out) {
        b.attend(b.up(q), b.up(k), b.up(v), {}, {&sequence, 1}, of(b, caches[start % 3]), params,
                 out);
      };
      EXPECT_TRUE(same(OwnedRows(1, 6 * 64), attend)) << start << " " << window;
    }
  }
}

TEST_P(AttentionOps, AnyChunksAndAnyBlocksGiveTheSameBits) {
  const Shape4 shape{32, 2, 3};
  const Story story(shape, 290, rng_);
  AttentionParams params = params_for(shape);
  for (const KvType type : kTypes) {
    params.window = type == KvType::kF32 ? 0 : 100;
    std::vector<BlockId> contiguous;
    for (uint32_t i = 0; i < 10; ++i) contiguous.push_back(BlockId{i});
    const auto plain = cache(backend_, type, 10, shape);
    const OwnedRows whole = story.run(backend_, *plain, contiguous, params, 290);
    for (const uint32_t chunk : {1U, 7U, 32U, 33U, 256U}) {
      const auto paged = cache(backend_, type, 40, shape);
      Shuffled blocks(40, rng_);
      const OwnedRows got = story.run(backend_, *paged, blocks.take(290), params, chunk);
      EXPECT_TRUE(same_bits(got.all(), whole.all())) << chunk;
    }
  }
}

TEST_P(AttentionOps, LayersAreApart) {
  const Shape4 shape{32, 1, 1};
  const Story stories[] = {Story(shape, 40, rng_), Story(shape, 40, rng_)};
  const AttentionParams params = params_for(shape);
  const std::vector<BlockId> blocks = {BlockId{1}, BlockId{0}};
  const Sequence sequence{0, 40, 0, true, blocks};
  for (const KvType type : kTypes) {
    auto both = backend_->make_kv({2, 1, 32, type}, 2);
    ASSERT_TRUE(both.ok()) << both.message();
    EXPECT_EQ((*both)->bytes(), 2 * backend_->kv_block_bytes({2, 1, 32, type}));
    for (const bool writes : {true, false}) {  // the second time each finds what it stored
      for (uint32_t layer = 0; layer < 2; ++layer) {
        const Story& story = stories[layer];
        const auto alone = cache(backend_, type, 2, shape);
        const OwnedRows want = story.run(backend_, *alone, blocks, params, 40);
        Sequence again = sequence;
        again.writes_kv = writes;
        backend_.clear();
        const Rows out = backend_.up(OwnedRows(40, 32));
        const Rows q = backend_.up(story.q), k = backend_.up(story.k), v = backend_.up(story.v);
        const Step step = backend_.begin({&again, 1});
        backend_->attend(q, k, v, {}, step, **both, layer, params, out);
        EXPECT_TRUE(same_bits(backend_.down(out).all(), want.all())) << layer << " " << writes;
      }
    }
  }
}

// Cells beyond the context and all other blocks hold what is not finite, and nothing may notice.
TEST_P(AttentionOps, WhatLiesBeyondTheContextHasNoInfluence) {
  const Shape4 shape{48, 1, 2};
  const Story story(shape, 75, rng_);
  const AttentionParams params = params_for(shape);
  const float garbages[] = {kNan, std::numeric_limits<float>::infinity()};
  for (size_t c = 0; c < 2 * std::size(kTypes); ++c) {
    const KvType type = kTypes[c / 2];
    const auto dirty = cache(backend_, type, 20, shape);
    const OwnedRows garbage = OwnedRows::filled(20 * kBlockTokens, 48, garbages[c % 2]);
    fill(backend_, *dirty, garbage, garbage);
    Shuffled blocks(20, rng_);
    const OwnedRows got = story.run(backend_, *dirty, blocks.take(75), params, 20);
    const auto clean = cache(backend_, type, 3, shape);
    const OwnedRows zeros = OwnedRows::filled(3 * kBlockTokens, 48, 0);
    fill(backend_, *clean, zeros, zeros);
    const std::vector<BlockId> plain = {BlockId{0}, BlockId{1}, BlockId{2}};
    const OwnedRows want = story.run(backend_, *clean, plain, params, 75);
    EXPECT_TRUE(same_bits(got.all(), want.all()));
  }
}

// By those rows alone that see it, though rows beside them see all of its block.
TEST_P(AttentionOps, WhatIsNotFiniteInsideTheContextIsSeen) {
  const Shape4 shape{32, 1, 1};
  AttentionParams params = params_for(shape);
  const float bads[] = {kNan, std::numeric_limits<float>::infinity()};
  struct Place {
    uint32_t token, window;
    size_t row_that_sees, row_that_does_not;
  };
  const Place places[] = {{35, 0, 39, 34}, {20, 0, 20, 19}, {2, 33, 34, 35}};
  for (size_t c = 0; c < 4 * std::size(kTypes) * std::size(places); ++c) {
    const Place& place = places[c / 4 / std::size(kTypes)];
    params.window = place.window;
    const float bad = bads[c % 2];
    const KvType type = kTypes[c / 4 % std::size(kTypes)];
    Story story(shape, 40, rng_);
    (c / 2 % 2 == 0 ? story.k : story.v).at(place.token)[0] = bad;
    const auto mine = cache(backend_, type, 2, shape), theirs = cache(reference_, type, 2, shape);
    const std::vector<BlockId> blocks = {BlockId{0}, BlockId{1}};
    const OwnedRows got = story.run(backend_, *mine, blocks, params, 40);
    EXPECT_TRUE(agree(got, story.run(reference_, *theirs, blocks, params, 40)));
    EXPECT_TRUE(std::isnan(got.row(place.row_that_sees)[0]) || !std::isnan(bad));
    EXPECT_TRUE(std::isfinite(got.row(place.row_that_does_not)[0]));
  }
}

// Of every row and head, what a cache of int8 holds of it.
void quantize_heads(OwnedRows& x, uint32_t head_dim) {
  for (size_t i = 0; i < x.rows() * (x.width() / head_dim); ++i) {
    float* const head = x.at(i % x.rows()) + i / x.rows() * head_dim;
    const arithmetic::Int8Scale scale = arithmetic::int8_scale(head, head_dim);
    for (uint32_t d = 0; d < head_dim; ++d) {
      const auto q = static_cast<float>(arithmetic::to_int8(head[d], scale.inverse));
      head[d] = arithmetic::float_of_bf16(arithmetic::round_to_bf16(scale.scale * q));
    }
  }
}

// With int8, attention is that over a cache of bfloat16 which was given the quantized numbers.
TEST_P(AttentionOps, Int8IsBf16OfQuantizedNumbers) {
  const Shape4 shape{40, 2, 3};
  Story story(shape, 80, rng_);
  const float factors[] = {0x1p-20F, 0x1p-125F, 0x1p20F, 0.0F};  // towards the ends of the range
  for (size_t i = 0; i < std::size(factors); ++i) {
    for (float* x : {story.k.at(5 + 9 * i), story.v.at(7 + 18 * i)}) {
      for (size_t d = 0; d < 50; ++d) x[d] *= factors[i];
    }
  }
  const std::vector<BlockId> blocks = {BlockId{1}, BlockId{2}, BlockId{0}};
  const AttentionParams params = params_for(shape);
  const auto int8 = cache(backend_, KvType::kInt8, 3, shape);
  const auto bf16 = cache(reference_, KvType::kBf16, 3, shape);
  const OwnedRows got = story.run(backend_, *int8, blocks, params, 33);
  quantize_heads(story.k, 40);
  quantize_heads(story.v, 40);
  EXPECT_TRUE(agree(got, story.run(reference_, *bf16, blocks, params, 80)));
}

// The reference itself against the textbook, in double.
TEST(ReferenceAttention, IsASoftmaxOverWhatIsVisible) {
  Rng rng(5);
  const Shape4 shape{16, 1, 2};
  const uint32_t tokens = 300;
  Story story(shape, tokens, rng);
  const float sinks[] = {0.3F, 1.5F};
  for (const uint32_t window : {0U, 270U}) {
    TestBackend reference(make_reference_backend(Precision::kF32));
    const std::unique_ptr<KvCache> cache = make_cache(reference, KvType::kF32, 10, 1, 16);
    std::vector<BlockId> blocks;
    for (uint32_t i = 0; i < 10; ++i) blocks.push_back(BlockId{9 - i});
    const Buffer memory = reference->allocate(sizeof sinks).value();
    reference->write(memory.floats(), sinks);
    const AttentionParams params{2, 0.25F, 4.0F, window, memory.floats()};
    const OwnedRows got = story.run(reference, *cache, blocks, params, 64);
    for (const uint32_t position : {0U, 5U, 255U, 256U, 299U}) {
      for (uint32_t head = 0; head < 2; ++head) {
        std::vector<double> want(16, 0.0);
        double weight = std::exp(static_cast<double>(sinks[head]));
        for (uint32_t t = window == 0 || position < window ? 0 : position - window + 1;
             t <= position; ++t) {
          double score = 0;
          for (size_t d = 0; d < 16; ++d) {
            score += static_cast<double>(story.q.at(position)[head * 16 + d]) * story.k.at(t)[d];
          }
          const double p = std::exp(4 * std::tanh(score * 0.25 / 4));
          weight += p;
          for (size_t d = 0; d < 16; ++d) want[d] += p * story.v.at(t)[d];
        }
        for (size_t d = 0; d < 16; ++d) {
          EXPECT_NEAR(got.row(position)[head * 16 + d], want[d] / weight, 2e-6);
        }
      }
    }
  }
}

// Whatever has the sums, the numbers are the same but for roundings.
TEST(ReferenceAttention, OnTensorCoresIsNearTheHosts) {
  Rng rng(6);
  const Shape4 shape{40, 2, 2};
  const uint32_t tokens = 300;
  const Story story(shape, tokens, rng);
  std::vector<BlockId> blocks;
  for (uint32_t i = 0; i < 10; ++i) blocks.push_back(BlockId{9 - i});
  AttentionParams params;
  params.heads = 4;
  params.scale = 0.2F;
  for (const KvType type : {KvType::kBf16, KvType::kInt8}) {
    std::vector<OwnedRows> results;
    for (const Profile profile : {Profile::kHost, Profile::kHopper}) {
      TestBackend reference(make_reference_backend(Precision::kDefault, profile));
      const std::unique_ptr<KvCache> cache = make_cache(reference, type, 10, 2, 40);
      results.push_back(story.run(reference, *cache, blocks, params, 64));
    }
    EXPECT_TRUE(within(results[1].all(), results[0].all(), 0x1p-7F));
    EXPECT_FALSE(same_bits(results[1].all(), results[0].all()));
  }
}

// The emulator takes about 10 us for an instruction: one number of threads, with a thread whose
// tiles are its own.
std::vector<BackendParam> attention_params() {
  std::vector<BackendParam> params = backend_params();
  for (const BackendUnderTest& backend : backends_under_test()) {
    // On hosts attention is the same at every precision.
    if (backend.profile == Profile::kHost || backend.has_f32_only) continue;
    params.push_back({backend, 1, Precision::kDefault});
  }
  if (is_emulated(CpuIsa::kAmx)) {
    emulate_amx();
    params.push_back({cpu_under_test(CpuIsa::kAmx), 2});
  }
  return params;
}

#if defined(__x86_64__)
// Else the other tests might compare the kernels of AVX-512 alone.
TEST(AmxAttention, GoesThroughTilesWhereTheyAreWorthIt) {
  if (!is_emulated(CpuIsa::kAmx)) GTEST_SKIP() << "counts what the emulator does";
  emulate_amx();
  ComputePool pool(1);
  TestBackend backend(make_cpu_backend(pool, CpuIsa::kAmx, Precision::kDefault));
  const auto instructions = [&](uint32_t heads, uint32_t head_dim, uint32_t tokens) {
    const auto cache = backend->make_kv({1, 1, head_dim, KvType::kBf16}, 4).value();  // zeros
    const std::vector<BlockId> blocks = {BlockId{3}, BlockId{0}, BlockId{2}, BlockId{1}};
    const Sequence sequence{0, 1, tokens - 1, true, blocks};
    AttentionParams params;
    params.heads = heads;
    Rng rng(1);
    const Rows q = backend.up(OwnedRows::random(1, size_t{heads} * head_dim, rng)),
               kv = backend.up(OwnedRows::random(1, head_dim, rng)),
               out = backend.up(OwnedRows(1, size_t{heads} * head_dim));
    const uint64_t before = emulated_amx_instructions();
    backend.attend(q, kv, kv, {}, {&sequence, 1}, *cache, params, out);
    return emulated_amx_instructions() - before;
  };
  constexpr uint64_t kAround = 2, kZeros = 4;
  // Two blocks: 9 instructions for each 32 dimensions of keys and for each block's values.
  EXPECT_EQ(instructions(3, 64, 64), kAround + (kZeros + 2 * 9 + 4) + (4 + 2 * 9 + 4));
  // Of the second block the row does not see all: its values are no work for tiles.
  EXPECT_EQ(instructions(3, 64, 63), kAround + (kZeros + 2 * 9 + 4) + (4 + 9 + 4));
  EXPECT_EQ(instructions(1, 64, 128), kAround + 2 * (kZeros + 2 * 9 + 4) + (4 + 4 * 9 + 4));
  EXPECT_EQ(instructions(1, 64, 96), 0U);
  EXPECT_EQ(instructions(3, 24, 64), 0U);
  alignas(64) std::array<uint8_t, 64> configuration;
  asm volatile("sttilecfg %0" : "=m"(configuration));
  EXPECT_EQ(configuration, (std::array<uint8_t, 64>{}));
}
#endif

INSTANTIATE_TEST_SUITE_P(Backends, AttentionOps, ::testing::ValuesIn(attention_params()),
                         param_name);

}  // namespace
}  // namespace skein
