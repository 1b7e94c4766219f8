#include "kv/paged_block_manager.h"

#include <gtest/gtest.h>
#include <vector>

namespace skein {
namespace {

TEST(PagedBlockManager, TakesFreeBlocksFirstThenLeastRecentlyUsed) {
  PagedBlockManager manager(4);
  std::vector<BlockId> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(manager.take().id);
  EXPECT_EQ(manager.available(), 0u);
  for (int i : {1, 2, 3}) manager.mark_cached(blocks[static_cast<size_t>(i)]);
  for (int i : {2, 0, 3, 1}) manager.release(blocks[static_cast<size_t>(i)]);
  EXPECT_EQ(manager.available(), 4u);
  EXPECT_EQ(manager.cached_blocks(), 3u);
  // The free one, though it was not the first to be released; then the cached ones in their order.
  for (int i : {0, 2, 3, 1}) {
    const auto [id, evicted] = manager.take();
    EXPECT_EQ(id, blocks[static_cast<size_t>(i)]);
    EXPECT_EQ(evicted, i != 0);
    EXPECT_FALSE(manager.cached(id));
  }
}

TEST(PagedBlockManager, UseMakesABlockRecent) {
  PagedBlockManager manager(2);
  const BlockId a = manager.take().id;
  const BlockId b = manager.take().id;
  for (BlockId id : {a, b}) manager.mark_cached(id);
  for (BlockId id : {a, b}) manager.release(id);
  manager.acquire(a);
  manager.release(a);
  EXPECT_EQ(manager.take().id, b);
}

TEST(PagedBlockManager, SharedBlockComesBackWithItsLastHolder) {
  PagedBlockManager manager(1);
  const BlockId id = manager.take().id;
  manager.acquire(id);
  EXPECT_EQ(manager.refs(id), 2u);
  manager.release(id);
  EXPECT_EQ(manager.available(), 0u);
  manager.release(id);
  EXPECT_EQ(manager.available(), 1u);
  EXPECT_TRUE(manager.check_invariants().ok());
}

TEST(PagedBlockManagerDeathTest, MisuseIsABrokenInvariant) {
  PagedBlockManager manager(1);
  EXPECT_DEATH(manager.release(BlockId{0}), "release of block 0 that nobody holds");
  EXPECT_DEATH(manager.acquire(BlockId{0}), "acquire of free block 0");
  EXPECT_DEATH(manager.release(BlockId{7}), "block 7 of 1");
  manager.take();
  EXPECT_DEATH(manager.take(), "empty list of 1 blocks");
}

}  // namespace
}  // namespace skein
