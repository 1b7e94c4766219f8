#include "kv/kv_allocator.h"

#include <gtest/gtest.h>
#include <numeric>
#include <vector>

#include "base/rng.h"

namespace skein {
namespace {

std::vector<TokenId> counting(size_t n, TokenId first = 0) {
  std::vector<TokenId> tokens(n);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// A request's tokens and table, as far as the allocator is concerned.
struct Holder {
  std::vector<TokenId> tokens;
  BlockTable table;

  explicit Holder(std::vector<TokenId> t, uint64_t salt = 0) : tokens(std::move(t)) {
    table.reset({salt, 0}, tokens.size());
  }
  void compute(KvAllocator& kv) {
    kv.take_cached(table, tokens);
    ASSERT_TRUE(kv.grow(table, tokens.size()));
    kv.publish(table, tokens, tokens.size());
  }
};

TEST(KvAllocator, GrowIsAllOrNothing) {
  KvAllocator kv({4, true, {}});
  Holder a(counting(6 * kBlockTokens));
  EXPECT_FALSE(kv.grow(a.table, a.tokens.size()));
  EXPECT_EQ(a.table.size(), 0u);
  EXPECT_EQ(kv.available(), 4u);
  EXPECT_TRUE(kv.grow(a.table, 4 * kBlockTokens));
  EXPECT_FALSE(kv.grow(a.table, 4 * kBlockTokens + 1));
  EXPECT_TRUE(kv.grow(a.table, 1)) << "it has that already";
  kv.release(a.table);
  EXPECT_EQ(kv.available(), 4u);
}

TEST(KvAllocator, SharesFullBlocksOnly) {
  KvAllocator kv({16, true, {}});
  Holder a(counting(80));
  a.compute(kv);
  Holder b(counting(80));
  EXPECT_EQ(kv.take_cached(b.table, b.tokens), 2u);
  EXPECT_EQ(kv.refs(b.table.blocks()[0]), 2u);
  EXPECT_EQ(b.table.blocks()[1], a.table.blocks()[1]);
  ASSERT_TRUE(kv.grow(b.table, 80));
  EXPECT_NE(b.table.blocks()[2], a.table.blocks()[2]);
  const BlockTable* tables[] = {&a.table, &b.table};
  EXPECT_TRUE(kv.check_invariants(tables).ok());
}

TEST(KvAllocator, TenantsShareNothing) {
  KvAllocator kv({16, true, {}});
  Holder alice(counting(64), 1);
  alice.compute(kv);
  Holder bob(counting(64), 2);
  EXPECT_EQ(kv.take_cached(bob.table, bob.tokens), 0u);
}

TEST(KvAllocator, TailsAreEvictedBeforeHeads) {
  KvAllocator kv({4, true, {}});
  Holder a(counting(4 * kBlockTokens));
  a.compute(kv);
  kv.release(a.table);
  Holder other(counting(kBlockTokens, 5000));
  other.compute(kv);
  EXPECT_EQ(kv.evictions(), 1u);
  Holder again(counting(4 * kBlockTokens));
  EXPECT_EQ(kv.take_cached(again.table, again.tokens), 3u) << "the head of the chain survived";
}

TEST(KvAllocator, OffMeansOff) {
  KvAllocator kv({4, false, {}});
  Holder a(counting(64));
  a.compute(kv);
  kv.release(a.table);
  EXPECT_EQ(kv.cached_blocks(), 0u);
  Holder b(counting(64));
  EXPECT_EQ(kv.take_cached(b.table, b.tokens), 0u);
}

TEST(KvAllocator, ConcurrentDuplicateGivesWayAndChainsOn) {
  KvAllocator kv({8, true, {}});
  Holder a(counting(64));
  Holder b(counting(64));
  ASSERT_TRUE(kv.grow(a.table, 64) && kv.grow(b.table, 64));
  kv.publish(a.table, a.tokens, 32);
  kv.publish(b.table, b.tokens, 64, true);  // its first block is a's by content
  EXPECT_EQ(b.table.linked_blocks(), 0u) << "a step still reads b's own";
  kv.publish(b.table, b.tokens, 64);
  EXPECT_EQ(b.table.blocks()[0], a.table.blocks()[0]) << "one of the two is enough";
  EXPECT_EQ(kv.available(), 5u);
  kv.release(b.table);
  EXPECT_EQ(kv.cached_blocks(), 1u) << "only the second block was new";
  Holder c(counting(64));
  EXPECT_EQ(kv.take_cached(c.table, c.tokens), 2u) << "a's first, b's second";
}

TEST(KvAllocator, MatchSaysWhatAdoptWouldTake) {
  KvAllocator kv({8, true, {}});
  Holder a(counting(100));
  a.compute(kv);
  Holder b(counting(100));
  std::vector<BlockId> hits;
  kv.match(b.table, b.tokens, hits);
  ASSERT_EQ(hits.size(), 3u);
  EXPECT_EQ(b.table.size(), 0u);
  kv.take_cached(b.table, b.tokens);
  EXPECT_TRUE(std::equal(hits.begin(), hits.end(), b.table.blocks().begin()));
}

TEST(KvAllocator, ParentOutlivesChildrenOfARequestThatComputedItToo) {
  KvAllocator kv({5, true, {}});
  Holder a(counting(kBlockTokens));
  Holder b(counting(3 * kBlockTokens));
  ASSERT_TRUE(kv.grow(a.table, kBlockTokens) && kv.grow(b.table, 3 * kBlockTokens));
  kv.publish(a.table, a.tokens, kBlockTokens);
  kv.publish(b.table, b.tokens, 3 * kBlockTokens);
  kv.release(a.table);
  Holder other(counting(2 * kBlockTokens, 900));
  other.compute(kv);
  Holder c(counting(3 * kBlockTokens));
  EXPECT_EQ(kv.take_cached(c.table, c.tokens), 3u) << "b holds the first block, so it stayed";
}

TEST(KvAllocator, EventsTellWhatComesAndGoes) {
  const HashKey key{1, 2};
  KvAllocator kv({3, true, key, true});
  KvAllocator elsewhere({9, true, key, true});
  Holder a(counting(2 * kBlockTokens));
  Holder b(counting(2 * kBlockTokens));
  a.compute(kv);
  b.compute(elsewhere);
  ASSERT_EQ(kv.events().size(), 2u);
  EXPECT_EQ(kv.events()[1].kind, KvEvent::Kind::kStored);
  EXPECT_EQ(kv.events()[1].hash, elsewhere.events()[1].hash) << "contents have one hash everywhere";
  EXPECT_EQ(kv.contents(kv.events()[1].block).parent_hash, kv.events()[0].hash);
  const uint64_t tail = kv.events()[1].hash;
  kv.clear_events();
  kv.release(a.table);
  Holder other(counting(2 * kBlockTokens, 900));
  other.compute(kv);
  ASSERT_EQ(kv.events().size(), 3u);
  EXPECT_EQ(kv.events()[0].kind, KvEvent::Kind::kRemoved);
  EXPECT_EQ(kv.events()[0].hash, tail) << "tails go first";
  KvAllocator silent({3, true, key});
  Holder c(counting(2 * kBlockTokens));
  c.compute(silent);
  EXPECT_TRUE(silent.events().empty());
}

// Random holders over a small pool and few distinct contents: counts and references always add up,
// and a hit always names a block whose last publisher wrote these very tokens after this prefix.
TEST(KvAllocator, RandomOperationsKeepTheInvariants) {
  Rng rng(11);
  KvAllocator kv({24, true, {rng.next(), rng.next()}});
  std::vector<std::vector<TokenId>> written(24);  // by block: the whole prefix that it stands for
  std::vector<Holder> holders;
  for (int step = 0; step < 20'000; ++step) {
    if (holders.size() < 6 && rng.chance(1, 2)) {
      auto tokens = counting(1 + rng.below(160), static_cast<TokenId>(rng.below(3)));
      if (rng.chance(1, 2)) tokens[rng.below(tokens.size())] = -1;
      Holder h(std::move(tokens), rng.below(2));
      const uint32_t hits = kv.take_cached(h.table, h.tokens);
      for (uint32_t i = 0; i < hits; ++i) {
        const std::vector<TokenId> prefix(h.tokens.begin(),
                                          h.tokens.begin() + (i + 1) * kBlockTokens);
        ASSERT_EQ(written[h.table.blocks()[i].value], prefix);
      }
      if (kv.grow(h.table, h.tokens.size())) {
        for (uint32_t i = hits; i < h.tokens.size() / kBlockTokens; ++i) {
          written[h.table.blocks()[i].value].assign(h.tokens.begin(),
                                                    h.tokens.begin() + (i + 1) * kBlockTokens);
        }
        kv.publish(h.table, h.tokens, h.tokens.size());
        holders.push_back(std::move(h));
      } else {
        kv.release(h.table);
      }
    } else if (!holders.empty()) {
      const size_t i = rng.below(holders.size());
      kv.release(holders[i].table);
      holders.erase(holders.begin() + static_cast<ptrdiff_t>(i));
    }
    std::vector<const BlockTable*> tables;
    for (const Holder& h : holders) tables.push_back(&h.table);
    const Status status = kv.check_invariants(tables);
    ASSERT_TRUE(status.ok()) << step << ": " << status.message();
  }
  EXPECT_GT(kv.evictions(), 100u);
}

}  // namespace
}  // namespace skein
