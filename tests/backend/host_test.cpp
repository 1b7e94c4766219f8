// What backends share that compute in the process's memory: the memory, and the KV cache in it.
#include <gtest/gtest.h>
#include <string>

#include "backend/host/kv.h"
#include "backend/host/memory.h"

namespace skein {
namespace {

TEST(HostMemory, IsZeroedAlignedAndRefusedWithItsSize) {
  for (const size_t bytes : {size_t{1}, size_t{5000}, size_t{3} << 20, size_t{1} << 36}) {
    const auto buffer = allocate_host(bytes);  // the last is more than there is: lazy
    ASSERT_TRUE(buffer.ok()) << buffer.message();
    EXPECT_EQ(buffer->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(raw(*buffer)) % (bytes < (2U << 20) ? 64 : 2U << 20), 0U);
    EXPECT_EQ(raw(*buffer)[bytes - 1], std::byte{0});
    raw(*buffer)[bytes - 1] = std::byte{1};
  }
  EXPECT_TRUE(allocate_host(0).ok());
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX / 4}) {
    const auto refused = allocate_host(bytes);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
    EXPECT_NE(refused.message().find(std::to_string(bytes)), std::string::npos);
  }
}

TEST(HostKv, BlocksOfAllLayersLieTogether) {
  const KvSpec spec{3, 2, 16, KvType::kF32};
  EXPECT_EQ(HostKv::block_bytes(spec), 3u * 2 * 2 * 32 * 16 * 4);
  const auto cache = HostKv::make(spec, 5, 7);
  ASSERT_TRUE(cache.ok()) << cache.message();
  EXPECT_EQ((*cache)->id(), 7u);
  EXPECT_EQ((*cache)->blocks(), 5u);
  EXPECT_EQ((*cache)->bytes(), 5 * HostKv::block_bytes(spec));
  const KvLayer first = host_kv(**cache).layer(0), second = host_kv(**cache).layer(1);
  EXPECT_EQ(first.head(BlockId(1), 0) - first.data,
            static_cast<std::ptrdiff_t>(HostKv::block_bytes(spec)));
  EXPECT_EQ(second.head(BlockId(4), 1) - first.head(BlockId(4), 1), 2 * 2 * 32 * 16 * 4);
  EXPECT_EQ(HostKv::block_bytes({3, 2, 16, KvType::kBf16}), 3u * 2 * 2 * 32 * 16 * 2);
  EXPECT_EQ(HostKv::block_bytes({3, 2, 16, KvType::kInt8}), 3u * 2 * 2 * 32 * (16 + 4));
}

TEST(HostKv, RefusesWhatCannotBe) {
  EXPECT_EQ(HostKv::make({3, 2, 16}, 0, 1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(HostKv::make({1024, 4096, 4096}, UINT32_MAX, 1).status().code(),
            Code::kResourceExhausted);
}

TEST(HostKv, Int8TakesOneByteAndAScaleForEachTokenAndHead) {
  EXPECT_EQ(KvLayer::head_bytes(64, KvType::kInt8), 2u * 32 * (64 + 4));
  for (const uint32_t head_dim : {1U, 7U, 64U, 80U, 256U}) {
    EXPECT_EQ(KvLayer::head_bytes(head_dim, KvType::kInt8) % 64, 0u) << head_dim;
  }
}

}  // namespace
}  // namespace skein
