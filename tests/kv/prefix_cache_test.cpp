#include "kv/prefix_cache.h"

#include <array>
#include <gtest/gtest.h>

namespace skein {
namespace {

using Tokens = std::array<TokenId, kBlockTokens>;

Tokens tokens_of(TokenId first) {
  Tokens tokens{};
  tokens[0] = first;
  return tokens;
}

// A pool of one block has one bucket, so everything collides: identity alone must decide.
TEST(PrefixCache, CollisionsNeverServeAnotherPrefix) {
  PrefixCache cache(1, {});
  const Hash128 key;
  const PrefixPlace alice{{1, 0}, kPrefixRoot};
  const auto [entry, inserted] = cache.insert(key, 0, alice, tokens_of(5), BlockId{0});
  ASSERT_TRUE(inserted);

  ASSERT_TRUE(cache.find(key, alice, tokens_of(5)).has_value());
  EXPECT_FALSE(cache.find(key, alice, tokens_of(6)).has_value()) << "other tokens";
  EXPECT_FALSE(cache.find(key, {{2, 0}, kPrefixRoot}, tokens_of(5)).has_value()) << "other tenant";
  EXPECT_FALSE(cache.find(key, {{1, 0}, entry.node}, tokens_of(5)).has_value()) << "other prefix";
  Tokens last_differs = tokens_of(5);
  last_differs[kBlockTokens - 1] = 1;
  EXPECT_FALSE(cache.find(key, alice, last_differs).has_value()) << "last token";
}

TEST(PrefixCache, SecondInsertOfTheSameContentsKeepsTheFirst) {
  PrefixCache cache(8, {3, 4});
  const PrefixPlace root;
  const Hash128 key = cache.chain_key(root.salt, tokens_of(1));
  const auto first = cache.insert(key, 0, root, tokens_of(1), BlockId{2});
  const auto second = cache.insert(key, 0, root, tokens_of(1), BlockId{3});
  EXPECT_FALSE(second.inserted);
  EXPECT_EQ(second.entry.node, first.entry.node);
  EXPECT_EQ(second.entry.block, BlockId{2});
  EXPECT_EQ(cache.find(key, root, tokens_of(1))->block, BlockId{2});
  EXPECT_FALSE(cache.contains(BlockId{3}));
}

TEST(PrefixCache, ErasedEntryIsNotFoundAndItsNodeNeverComesBack) {
  PrefixCache cache(2, {});
  const PrefixPlace root;
  const Hash128 key;
  const auto parent = cache.insert(key, 0, root, tokens_of(1), BlockId{0});
  const PrefixPlace below{root.salt, parent.entry.node};
  cache.insert(key, 0, below, tokens_of(2), BlockId{1});
  cache.erase(BlockId{0});
  EXPECT_FALSE(cache.find(key, root, tokens_of(1)).has_value());
  // The same contents again are another entry: what hung on the old one stays out of reach.
  const auto again = cache.insert(key, 0, root, tokens_of(1), BlockId{0});
  EXPECT_NE(again.entry.node, parent.entry.node);
  EXPECT_FALSE(cache.find(key, {root.salt, again.entry.node}, tokens_of(2)).has_value());
  EXPECT_EQ(cache.size(), 2u);
}

TEST(PrefixCache, KeysDependOnTheSecretAndTheParent) {
  PrefixCache a(1, {1, 1});
  PrefixCache b(1, {1, 2});
  EXPECT_EQ(a.chain_key({}, tokens_of(1)), a.chain_key({}, tokens_of(1)));
  EXPECT_NE(a.chain_key({}, tokens_of(1)), b.chain_key({}, tokens_of(1)));
  EXPECT_NE(a.chain_key({}, tokens_of(1)), a.chain_key({0, 1}, tokens_of(1)));
}

TEST(PrefixCache, ContentsSayWhatABlockHolds) {
  PrefixCache cache(4, {5, 6});
  const PrefixPlace root{{7, 8}, kPrefixRoot};
  const Hash128 first = cache.chain_key(root.salt, tokens_of(1));
  const Hash128 second = cache.chain_key(first, tokens_of(2));
  const auto parent = cache.insert(first, 0, root, tokens_of(1), BlockId{3});
  cache.insert(second, content_hash(first), {root.salt, parent.entry.node}, tokens_of(2),
               BlockId{1});
  const PrefixCache::Contents child = cache.contents(BlockId{1});
  EXPECT_EQ(child.hash, content_hash(second));
  EXPECT_EQ(child.parent_hash, cache.contents(BlockId{3}).hash);
  EXPECT_EQ(child.salt, root.salt);
  EXPECT_EQ(child.tokens[0], tokens_of(2)[0]);
  EXPECT_GT(child.node, parent.entry.node);
  EXPECT_EQ(content_hash({UINT64_MAX, 0}), uint64_t{INT64_MAX}) << "others keep it as a signed one";
}

}  // namespace
}  // namespace skein
