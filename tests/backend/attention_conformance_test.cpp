// Attention over a paged cache, and the stores that fill it.
#include <array>
#include <cstring>

#include "backend/arithmetic.h"
#include "backend/conformance.h"

namespace skein {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr KvType kTypes[] = {KvType::kF32, KvType::kBf16, KvType::kInt8};

// A float as a cache can hold it, all over its memory: once, or as a pair. With int8 its bytes are
// integers too.
float filler(KvType type, float x) {
  if (type != KvType::kBf16) return x;
  return arithmetic::float_of_bits(arithmetic::round_to_bf16(x) * 0x10001U);
}

// A cache whose cells are all NaN until they are stored to.
struct Cache {
  Cache(KvType type, uint32_t blocks, uint32_t heads, uint32_t head_dim)
      : floats_per_block(heads * KvLayer::head_bytes(head_dim, type) / sizeof(float) + 5),
        memory(blocks * floats_per_block, filler(type, kNan)),
        layer{reinterpret_cast<std::byte*>(memory.data()), floats_per_block * sizeof(float), heads,
              head_dim, type} {}
  Cache(const Cache&) = delete;

  void fill(Rng& rng) {
    for (float& cell : memory) cell = filler(layer.type, random_float(rng));
    if (layer.type != KvType::kInt8) return;
    for (size_t i = 0; i < memory.size() / floats_per_block * layer.heads; ++i) {
      const BlockId block{static_cast<uint32_t>(i / layer.heads)};
      auto* const head = reinterpret_cast<float*>(layer.head(block, i % layer.heads));
      for (uint32_t slot = 0; slot < kBlockTokens; ++slot) {
        head[layer.key_scale_index(slot)] /= 64;
        head[layer.value_scale_index(slot)] /= 64;
      }
    }
  }

  size_t floats_per_block;
  std::vector<float> memory;
  KvLayer layer;
};

// Distinct blocks in an order of no kind, for one sequence after the other.
class Shuffled {
 public:
  Shuffled(uint32_t blocks, Rng& rng) : ids_(blocks) {
    for (uint32_t i = 0; i < blocks; ++i) ids_[i] = BlockId{i};
    for (size_t i = blocks; i > 1; --i) std::swap(ids_[i - 1], ids_[rng.below(i)]);
  }
  std::span<const BlockId> take(uint64_t tokens) {
    const auto taken = std::span(ids_).subspan(next_, blocks_for(tokens));
    next_ += taken.size();
    return taken;
  }

 private:
  std::vector<BlockId> ids_;
  size_t next_ = 0;
};

struct Shape4 {
  uint32_t head_dim, kv_heads, shared;
};

// Keys, values and queries of one sequence, and ways to run it.
struct Story {
  Story(const Shape4& shape, uint32_t tokens, Rng& rng)
      : shape(shape),
        k(OwnedRows::random(tokens, shape.kv_heads * shape.head_dim, rng)),
        v(OwnedRows::random(tokens, shape.kv_heads * shape.head_dim, rng)),
        q(OwnedRows::random(tokens, shape.kv_heads * shape.shared * shape.head_dim, rng, 3)) {}

  // Stores and attends in chunks of `chunk` tokens; the results of all.
  std::vector<float> run(Backend& backend, const KvLayer& cache, std::span<const BlockId> blocks,
                         const AttentionParams& params, uint32_t chunk) const {
    const auto tokens = static_cast<uint32_t>(q.view().rows);
    const OwnedRows out(tokens, q.view().width);
    for (uint32_t start = 0; start < tokens; start += chunk) {
      const uint32_t rows = std::min(chunk, tokens - start);
      const Sequence sequence{0, rows, start, true, blocks};
      const auto part = [&](const OwnedRows& all) {
        return Rows{all.view().row(start), rows, all.view().width, all.view().stride};
      };
      backend.kv_store(part(k), part(v), {&sequence, 1}, cache);
      backend.attention(part(q), {&sequence, 1}, cache, params, part(out));
    }
    return out.all();
  }

  Shape4 shape;
  OwnedRows k, v, q;
};

class AttentionOps : public Conformance {
 protected:
  AttentionParams params_for(const Shape4& shape) {
    AttentionParams params;
    params.heads = shape.kv_heads * shape.shared;
    params.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
    return params;
  }
  std::vector<float> sinks_ = {0.5F, -3.0F, 2.0F, 30.0F, -100.0F, 0.0F,  1.0F, 4.0F, 3.0F, 2.0F,
                               1.5F, -8.0F, 9.0F, -1.0F, 6.0F,    -5.0F, 7.0F, 2.5F, 0.0F, 8.0F};
};

// A ragged batch: decodes beside chunks, one row that does not write, one sequence without rows.
TEST_P(AttentionOps, RaggedBatchesOfEveryHeadSize) {
  const Shape4 shapes[] = {{32, 2, 1},  {64, 3, 3}, {80, 1, 2}, {96, 2, 4}, {128, 1, 5},
                           {256, 1, 2}, {24, 2, 3}, {7, 2, 2},  {16, 1, 20}};
  for (size_t c = 0; c < std::size(kTypes) * std::size(shapes); ++c) {
    const Shape4& shape = shapes[c / std::size(kTypes)];
    const size_t type = c % std::size(kTypes);
    Cache cache(kTypes[type], 60, shape.kv_heads, shape.head_dim);
    cache.fill(rng_);
    Shuffled blocks(60, rng_);
    const std::vector<Sequence> sequences = {
        {0, 1, 0, true, blocks.take(1)},     {1, 7, 60, true, blocks.take(67)},
        {8, 0, 5, true, blocks.take(5)},     {8, 1, 300, false, blocks.take(301)},
        {9, 3, 510, true, blocks.take(513)}, {12, 2, 31, true, blocks.take(33)}};
    const OwnedRows k = OwnedRows::random(14, shape.kv_heads * shape.head_dim, rng_);
    const OwnedRows v = OwnedRows::random(14, shape.kv_heads * shape.head_dim, rng_);
    AttentionParams params = params_for(shape);
    const OwnedRows q = OwnedRows::random(14, params.heads * shape.head_dim, rng_, 3);

    const std::vector<float> before = cache.memory;
    backend_->kv_store(k.view(), v.view(), sequences, cache.layer);
    const std::vector<float> stored = std::exchange(cache.memory, before);
    cache.layer.data = reinterpret_cast<std::byte*>(cache.memory.data());
    reference_->kv_store(k.view(), v.view(), sequences, cache.layer);
    ASSERT_TRUE(same_bits(stored, cache.memory));

    struct Masking {
      uint32_t window;
      float softcap;
      const float* sinks;
    };
    const Masking maskings[] = {{0, 0, nullptr},
                                {0, 5, sinks_.data()},
                                {1, 0, sinks_.data()},
                                {40, 5, nullptr},
                                {290, 0, nullptr}};
    for (const Masking& masking : maskings) {
      params.window = masking.window;
      params.softcap = masking.softcap;
      params.sinks = masking.sinks;
      const auto attend = [&](Backend& b, Rows out) {
        b.attention(q.view(), sequences, cache.layer, params, out);
      };
      ASSERT_TRUE(same(OwnedRows(14, params.heads * shape.head_dim), attend))
          << shape.head_dim << " type " << type << " window " << masking.window << " softcap "
          << masking.softcap;
    }
  }
}

// Norms, rope, stores and attention in one op are the ops one after the other.
TEST_P(AttentionOps, PreparesQueriesAndKeys) {
  const Shape4 shape{32, 2, 3};
  const std::vector<float> weight = random_floats(32, rng_);
  for (const KvType type : kTypes) {
    for (const bool all : {true, false}) {
      Cache mine(type, 20, 2, 32), theirs(type, 20, 2, 32);
      mine.fill(rng_);
      std::copy(mine.memory.begin(), mine.memory.end(), theirs.memory.begin());
      Shuffled blocks(20, rng_);
      const std::vector<Sequence> sequences = {{0, 37, 11, true, blocks.take(48)},
                                               {37, 1, 40, true, blocks.take(41)},
                                               {38, 2, 31, false, blocks.take(33)}};
      const OwnedRows angles = OwnedRows::random(40, 16, rng_);
      const OwnedRows k = OwnedRows::random(40, 64, rng_), v = OwnedRows::random(40, 64, rng_);
      const OwnedRows q = OwnedRows::random(40, 192, rng_);
      const NormParams q_norm{NormKind::kRms, 1e-6F, weight.data(), nullptr, 6};
      const NormParams k_norm{NormKind::kRms, 1e-6F, weight.data(), nullptr, 2};
      QkTransform transform;
      transform.layout = RopeLayout::kPairs;
      if (all) transform = {&q_norm, &k_norm, RopeLayout::kHalves, angles.view()};
      const OwnedRows out(40, 192), want(40, 192);
      const OwnedRows q1 = q, k1 = k, q2 = q, k2 = k;
      const AttentionParams params = params_for(shape);
      backend_->attend(q1.view(), k1.view(), v.view(), transform, sequences, mine.layer, params,
                       out.view());
      reference_->attend(q2.view(), k2.view(), v.view(), transform, sequences, theirs.layer, params,
                         want.view());
      ASSERT_TRUE(same_bits(q1.all(), q2.all()));
      ASSERT_TRUE(same_bits(k1.all(), k2.all()));
      ASSERT_TRUE(same_bits(mine.memory, theirs.memory));
      ASSERT_TRUE(same_bits(out.all(), want.all())) << "all " << all;
    }
  }
}

TEST_P(AttentionOps, ALongSequenceDecodes) {
  const Shape4 shape{64, 2, 3};
  Cache caches[] = {{kTypes[0], 70, 2, 64}, {kTypes[1], 70, 2, 64}, {kTypes[2], 70, 2, 64}};
  for (Cache& cache : caches) cache.fill(rng_);
  for (const uint32_t start : {255U, 256U, 257U, 1999U, 2000U, 2001U}) {
    const Cache& cache = caches[start % 3];
    Shuffled blocks(70, rng_);
    const Sequence sequence{0, 1, start, true, blocks.take(start + 1)};
    AttentionParams params = params_for(shape);
    for (const uint32_t window : {0U, 600U}) {
      params.window = window;
      const OwnedRows q = OwnedRows::random(1, 6 * 64, rng_, 3);
      const auto attend = [&](Backend& b, Rows out) {
        b.attention(q.view(), {&sequence, 1}, cache.layer, params, out);
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
    const Cache cache(type, 10, 2, 32);
    const std::vector<float> whole = story.run(*backend_, cache.layer, contiguous, params, 290);
    for (const uint32_t chunk : {1U, 7U, 32U, 33U, 256U}) {
      const Cache paged(type, 40, 2, 32);
      Shuffled blocks(40, rng_);
      EXPECT_TRUE(
          same_bits(story.run(*backend_, paged.layer, blocks.take(290), params, chunk), whole))
          << chunk;
    }
  }
}

// Every cell that no token was stored to is NaN (Cache), in the last block too; here the cells
// beyond the context and all other blocks change to infinities, and nothing may notice.
TEST_P(AttentionOps, WhatLiesBeyondTheContextHasNoInfluence) {
  const Shape4 shape{48, 1, 2};
  const Story story(shape, 75, rng_);
  const AttentionParams params = params_for(shape);
  const float garbages[] = {kNan, std::numeric_limits<float>::infinity()};
  for (size_t c = 0; c < 2 * std::size(kTypes); ++c) {
    const KvType type = kTypes[c / 2];
    Cache cache(type, 20, 1, 48);
    std::fill(cache.memory.begin(), cache.memory.end(), filler(type, garbages[c % 2]));
    Shuffled blocks(20, rng_);
    const std::vector<float> got = story.run(*backend_, cache.layer, blocks.take(75), params, 20);
    Cache zeros(type, 3, 1, 48);
    std::fill(zeros.memory.begin(), zeros.memory.end(), 0.0F);
    const std::vector<BlockId> plain = {BlockId{0}, BlockId{1}, BlockId{2}};
    EXPECT_TRUE(same_bits(got, story.run(*backend_, zeros.layer, plain, params, 75)));
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
    const Story story(shape, 40, rng_);
    (c / 2 % 2 == 0 ? story.k : story.v).view().row(place.token)[0] = bad;
    const Cache mine(type, 2, 1, 32), theirs(type, 2, 1, 32);
    const std::vector<BlockId> blocks = {BlockId{0}, BlockId{1}};
    const std::vector<float> got = story.run(*backend_, mine.layer, blocks, params, 40);
    EXPECT_TRUE(same_bits(got, story.run(*reference_, theirs.layer, blocks, params, 40)));
    const size_t stride = story.q.view().stride;
    EXPECT_TRUE(std::isnan(got[1 + place.row_that_sees * stride]) || !std::isnan(bad));
    EXPECT_TRUE(std::isfinite(got[1 + place.row_that_does_not * stride]));
  }
}

// Of every row and head, what a cache of int8 holds of it.
void quantize_heads(Rows x, uint32_t head_dim) {
  for (size_t i = 0; i < x.rows * (x.width / head_dim); ++i) {
    float* const head = x.row(i % x.rows) + i / x.rows * head_dim;
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
  const Story story(shape, 80, rng_);
  const float factors[] = {0x1p-20F, 0x1p-125F, 0x1p20F, 0.0F};  // towards the ends of the range
  for (size_t i = 0; i < std::size(factors); ++i) {
    for (float* x : {story.k.view().row(5 + 9 * i), story.v.view().row(7 + 18 * i)}) {
      for (size_t d = 0; d < 50; ++d) x[d] *= factors[i];
    }
  }
  const std::vector<BlockId> blocks = {BlockId{1}, BlockId{2}, BlockId{0}};
  const AttentionParams params = params_for(shape);
  const Cache int8(KvType::kInt8, 3, 2, 40), bf16(KvType::kBf16, 3, 2, 40);
  const std::vector<float> got = story.run(*backend_, int8.layer, blocks, params, 33);
  quantize_heads(story.k.view(), 40);
  quantize_heads(story.v.view(), 40);
  EXPECT_TRUE(same_bits(got, story.run(*reference_, bf16.layer, blocks, params, 80)));
}

TEST(KvLayer, Int8TakesOneByteAndAScaleForEachTokenAndHead) {
  EXPECT_EQ(KvLayer::head_bytes(64, KvType::kInt8), 2u * 32 * (64 + 4));
  for (const uint32_t head_dim : {1U, 7U, 64U, 80U, 256U}) {
    EXPECT_EQ(KvLayer::head_bytes(head_dim, KvType::kInt8) % 64, 0u) << head_dim;
  }
}

// The reference itself against the textbook, in double.
TEST(ReferenceAttention, IsASoftmaxOverWhatIsVisible) {
  Rng rng(5);
  const Shape4 shape{16, 1, 2};
  const uint32_t tokens = 300;
  const Story story(shape, tokens, rng);
  const float sinks[] = {0.3F, 1.5F};
  for (const uint32_t window : {0U, 270U}) {
    const AttentionParams params{2, 0.25F, 4.0F, window, sinks};
    const Cache cache(KvType::kF32, 10, 1, 16);
    std::vector<BlockId> blocks;
    for (uint32_t i = 0; i < 10; ++i) blocks.push_back(BlockId{9 - i});
    const auto reference = make_reference_backend(Precision::kF32);
    const std::vector<float> got = story.run(*reference, cache.layer, blocks, params, 64);
    for (const uint32_t position : {0U, 5U, 255U, 256U, 299U}) {
      for (uint32_t head = 0; head < 2; ++head) {
        std::vector<double> want(16, 0.0);
        double weight = std::exp(static_cast<double>(sinks[head]));
        for (uint32_t t = window == 0 || position < window ? 0 : position - window + 1;
             t <= position; ++t) {
          double score = 0;
          for (size_t d = 0; d < 16; ++d) {
            score += static_cast<double>(story.q.view().row(position)[head * 16 + d]) *
                     story.k.view().row(t)[d];
          }
          const double p = std::exp(4 * std::tanh(score * 0.25 / 4));
          weight += p;
          for (size_t d = 0; d < 16; ++d) want[d] += p * story.v.view().row(t)[d];
        }
        for (size_t d = 0; d < 16; ++d) {
          EXPECT_NEAR(got[1 + position * story.q.view().stride + head * 16 + d], want[d] / weight,
                      2e-6);
        }
      }
    }
  }
}

// The emulator takes about 10 us for an instruction: one number of threads, with a thread whose
// tiles are its own.
std::vector<BackendParam> attention_params() {
  std::vector<BackendParam> params = backend_params();
  if (is_emulated(CpuIsa::kAmx)) {
    emulate_amx();
    params.push_back({CpuIsa::kAmx, 2});
  }
  return params;
}

#if defined(__x86_64__)
// Else the other tests might compare the kernels of AVX-512 alone.
TEST(AmxAttention, GoesThroughTilesWhereTheyAreWorthIt) {
  if (!is_emulated(CpuIsa::kAmx)) GTEST_SKIP() << "counts what the emulator does";
  emulate_amx();
  ComputePool pool(1);
  const auto backend = make_cpu_backend(pool, CpuIsa::kAmx, Precision::kDefault);
  const auto instructions = [&](uint32_t heads, uint32_t head_dim, uint32_t tokens) {
    Cache cache(KvType::kBf16, 4, 1, head_dim);
    std::fill(cache.memory.begin(), cache.memory.end(), 0.0F);
    const std::vector<BlockId> blocks = {BlockId{3}, BlockId{0}, BlockId{2}, BlockId{1}};
    const Sequence sequence{0, 1, tokens - 1, true, blocks};
    AttentionParams params;
    params.heads = heads;
    Rng rng(1);
    const OwnedRows q = OwnedRows::random(1, size_t{heads} * head_dim, rng),
                    out(1, size_t{heads} * head_dim);
    const uint64_t before = emulated_amx_instructions();
    backend->attention(q.view(), {&sequence, 1}, cache.layer, params, out.view());
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
