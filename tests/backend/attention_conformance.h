// What tests of attention share: caches with something in them, sequences of blocks in no order,
// and the fixture.
#pragma once

#include <cmath>
#include <cstring>

#include "backend/conformance.h"
#include "backend/host/kv.h"

namespace skein {

inline constexpr KvType kTypes[] = {KvType::kF32, KvType::kBf16, KvType::kInt8};

// A cache of one layer. Where it is in host memory, its cells are all NaN until they are stored to.
inline std::unique_ptr<KvCache> make_cache(TestBackend& b, KvType type, uint32_t blocks,
                                           uint32_t heads, uint32_t head_dim, bool on_host = true) {
  auto made = b->make_kv({1, heads, head_dim, type}, blocks);
  EXPECT_TRUE(made.ok()) << made.message();
  // NaN in every format.
  if (on_host) std::memset(host_kv(**made).layer(0).data, 0xff, (*made)->bytes());
  return std::move(*made);
}

// Stores a token into every cell. Rows that see themselves alone cost little.
inline void fill(TestBackend& b, KvCache& cache, const OwnedRows& k, const OwnedRows& v) {
  const KvSpec& spec = cache.spec();
  std::vector<BlockId> blocks;
  for (uint32_t i = 0; i < cache.blocks(); ++i) blocks.push_back(BlockId{i});
  const auto rows = static_cast<uint32_t>(k.rows());
  const Sequence all{0, rows, 0, true, blocks};
  const Rows q = b.up(OwnedRows::filled(rows, k.width(), 0));
  b.attend(q, b.up(k), b.up(v), {}, {&all, 1}, cache, {spec.heads, 1, 0, 1, nullptr}, q);
}

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
      : k(OwnedRows::random(tokens, shape.kv_heads * shape.head_dim, rng)),
        v(OwnedRows::random(tokens, shape.kv_heads * shape.head_dim, rng)),
        q(OwnedRows::random(tokens, shape.kv_heads * shape.shared * shape.head_dim, rng, 3)) {}

  // Stores and attends in chunks of `chunk` tokens; the results of all.
  OwnedRows run(TestBackend& backend, KvCache& cache, std::span<const BlockId> blocks,
                const AttentionParams& params, uint32_t chunk) const {
    const auto tokens = static_cast<uint32_t>(q.rows());
    OwnedRows results(tokens, q.width());
    for (uint32_t start = 0; start < tokens; start += chunk) {
      const uint32_t rows = std::min(chunk, tokens - start);
      const Sequence sequence{0, rows, start, true, blocks};
      backend.clear();
      const Rows out = backend.up(OwnedRows(rows, q.width()));
      backend.attend(backend.up(q.part(start, rows)), backend.up(k.part(start, rows)),
                     backend.up(v.part(start, rows)), {}, {&sequence, 1}, cache, params, out);
      const OwnedRows part = backend.down(out);
      std::copy(part.all().begin() + OwnedRows::kOffset, part.all().end(), results.at(start));
    }
    return results;
  }

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
  std::unique_ptr<KvCache> cache(TestBackend& b, KvType type, uint32_t blocks,
                                 const Shape4& shape) {
    const bool on_host = &b == &reference_ || GetParam().backend.computes_on_host;
    return make_cache(b, type, blocks, shape.kv_heads, shape.head_dim, on_host);
  }
  // A cache of each backend, filled with the same random tokens.
  struct Caches {
    std::unique_ptr<KvCache> mine, theirs;
  };
  Caches filled_caches(KvType type, uint32_t blocks, const Shape4& shape) {
    Caches made{cache(backend_, type, blocks, shape), cache(reference_, type, blocks, shape)};
    const size_t tokens = size_t{blocks} * kBlockTokens, width = shape.kv_heads * shape.head_dim;
    const OwnedRows k = OwnedRows::random(tokens, width, rng_);
    const OwnedRows v = OwnedRows::random(tokens, width, rng_);
    fill(backend_, *made.mine, k, v);
    fill(reference_, *made.theirs, k, v);
    return made;
  }
  KvCache& of(const TestBackend& b, const Caches& caches) const {
    return &b == &backend_ ? *caches.mine : *caches.theirs;
  }

  std::vector<float> sinks_ = {0.5F, -3.0F, 2.0F, 30.0F, -100.0F, 0.0F,  1.0F, 4.0F, 3.0F, 2.0F,
                               1.5F, -8.0F, 9.0F, -1.0F, 6.0F,    -5.0F, 7.0F, 2.5F, 0.0F, 8.0F};
};

}  // namespace skein
