#include <array>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/rng.h"
#include "base/status.h"

namespace skein {
namespace {

TEST(Ids, BlockArithmetic) {
  static_assert(kBlockTokens == 32);
  EXPECT_EQ(blocks_for(0), 0u);
  EXPECT_EQ(blocks_for(1), 1u);
  EXPECT_EQ(blocks_for(32), 1u);
  EXPECT_EQ(blocks_for(33), 2u);
  EXPECT_LT(RequestId{1}, RequestId{2});
  EXPECT_NE(kNoBlock, BlockId{0});
}

Result<int> half(int x) {
  if (x % 2 != 0) return invalid_argument("{} is odd; an even number is needed", x);
  return x / 2;
}

Result<int> quarter(int x) {
  SKEIN_ASSIGN(const int h, half(x));
  SKEIN_ASSIGN(const int q, half(h));
  return q;
}

TEST(Status, CarriesValueOrReason) {
  EXPECT_EQ(*quarter(12), 3);
  const Result<int> bad = quarter(6);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(bad.message(), "3 is odd; an even number is needed");
  EXPECT_TRUE(Status{}.ok());
}

TEST(CheckDeathTest, AbortsWithBothNumbers) {
  EXPECT_DEATH(SKEIN_CHECK(1 > 2, "{} is not over {}", 1, 2), "1 > 2: 1 is not over 2");
  EXPECT_DEATH((void)half(3).value(), "3 is odd");
}

// The reference implementation's own vectors: key 00..0f, input 00, 00 01, ...
TEST(Hash, MatchesSipHash128Vectors) {
  const HashKey key{0x0706050403020100U, 0x0f0e0d0c0b0a0908U};
  std::vector<std::byte> input;
  const std::map<size_t, Hash128> expected = {
      {0, {0xe6a825ba047f81a3U, 0x930255c71472f66dU}},
      {1, {0x44af996bd8c187daU, 0x45fc229b11597634U}},
      {7, {0x53c1dbd8beebf1a1U, 0x3982f01fa64ab8c0U}},
      {8, {0x61f55862baa9623bU, 0xb49714f364e2830fU}},
      {9, {0xabbad90a06994426U, 0xed716dbb028b7fc4U}},
      {15, {0x11a8b03399e99354U, 0xd9c3cf970fec087eU}},
      {16, {0xbb54b067caa4e26eU, 0x77052385bf1533fdU}},
      {31, {0xfcfa233218b03929U, 0x353dc4524fde2317U}},
      {63, {0x4a83502f77d15051U, 0x7cbd3f979a063e50U}},
      {64, {0x3fcdd4c07d07af1eU, 0x4ba75836384dad8cU}},
      {144, {0x2f85523acbdf6761U, 0x5afe5254c668f177U}},
  };
  for (size_t n = 0; n <= 144; ++n) {
    if (auto it = expected.find(n); it != expected.end()) {
      EXPECT_EQ(keyed_hash(key, input), it->second) << n;
    }
    input.push_back(static_cast<std::byte>(n & 0xff));
  }
}

TEST(Rng, IsAPureFunctionOfSeedAndCounter) {
  static_assert(mix64(0) == 0xe220a8397b1dcdafU);  // the first output of splitmix64 with state 0
  Rng a(7), b(7), c(8);
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t x = a.next();
    EXPECT_EQ(x, b.next());
    EXPECT_NE(x, c.next());
    EXPECT_EQ(x, random_at(7, static_cast<uint64_t>(i)));
    seen.insert(x);
  }
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(Rng, BelowIsUniform) {
  Rng rng(1);
  std::array<int, 10> count{};
  for (int i = 0; i < 100'000; ++i) ++count[rng.below(10)];
  double chi2 = 0;
  for (int c : count) chi2 += (c - 10'000.0) * (c - 10'000.0) / 10'000.0;
  EXPECT_LT(chi2, 27.88);  // 9 degrees of freedom, p = 0.001
  Rng wide(2);
  for (int i = 0; i < 1000; ++i) EXPECT_LT(wide.below(1ULL << 63), 1ULL << 63);
  EXPECT_EQ(Rng(3).below(1), 0u);
}

}  // namespace
}  // namespace skein
