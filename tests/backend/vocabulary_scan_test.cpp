// Vocabulary scans: right, and the same bits on every instruction set.
#include "backend/vocabulary_scan.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <utility>
#include <vector>

#include "backend/arithmetic.h"
#include "backend/cpu/kernels_for.h"
#include "backend/host/flush_denormals.h"
#include "backend/isas.h"
#include "backend/same_bits.h"
#include "base/rng.h"
#include "base/special_floats.h"

namespace skein {
namespace {

using testing::kInf;
using testing::kNan;

std::vector<float> logits(size_t count, uint64_t seed) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(static_cast<int64_t>(random_at(seed, i) % 4000) - 2000) / 128;
  }
  return values;
}

class Scan : public ::testing::TestWithParam<CpuIsa> {
 protected:
  const VocabularyScan scan{cpu::kernels_for(GetParam())};
};

TEST_P(Scan, ArgmaxIsTheFirstOfTheLargest) {
  for (const size_t count : {1, 2, 15, 16, 17, 31, 100, 999}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const std::vector<float> values = logits(count, seed);
      const auto best = std::max_element(values.begin(), values.end());
      const auto got = scan.argmax(values);
      ASSERT_EQ(got.index, static_cast<size_t>(best - values.begin()));
      ASSERT_EQ(got.value, *best);
      ASSERT_TRUE(got.all_finite);
    }
  }
}

TEST_P(Scan, ArgmaxSaysWhatIsNotFinite) {
  for (const size_t at : {0, 5, 16, 20, 36}) {
    std::vector<float> values = logits(37, at);
    values[at] = -kInf;
    EXPECT_TRUE(scan.argmax(values).all_finite);
    values[at] = kInf;
    EXPECT_FALSE(scan.argmax(values).all_finite);
    values[at] = kNan;
    const auto got = scan.argmax(values);
    EXPECT_FALSE(got.all_finite);
    EXPECT_NE(got.index, at);
  }
  const auto none = scan.argmax(std::vector<float>(20, -kInf));
  EXPECT_EQ(none.index, 0U);
  EXPECT_EQ(none.value, -kInf);
  EXPECT_TRUE(none.all_finite);
  EXPECT_EQ(scan.argmax(std::vector<float>(20, kNan)).index, 0U);
}

TEST_P(Scan, SumExpIsTheDefinition) {
  for (const size_t count : {1, 7, 16, 33, 1000}) {
    std::vector<float> values = logits(count, count);
    values[count / 2] = -kInf;
    const float max = *std::max_element(values.begin(), values.end()), factor = 1.25F;
    const FlushDenormals flush;
    const float want = arithmetic::sum_of(
        count, [&](size_t i) { return arithmetic::exp((values[i] - max) * factor); });
    EXPECT_TRUE(same_bits(scan.sum_exp(values, max, factor), want)) << count;
  }
}

TEST_P(Scan, CollectsWhatIsNotBelow) {
  std::vector<float> values = logits(1003, 3);
  values[7] = kNan;
  values[8] = 10.0F;
  std::vector<TokenId> want;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= 10.0F) want.push_back(static_cast<TokenId>(i));
  }
  std::vector<TokenId> ids(values.size());
  std::vector<float> found(values.size());
  ASSERT_EQ(scan.collect_above(values, 10.0F, ids, found), want.size());
  ids.resize(want.size());
  EXPECT_EQ(ids, want);
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(found[i], values[static_cast<size_t>(ids[i])]);
  }
  // Too little room: takes what fits, counts all.
  std::vector<TokenId> two_ids(3, -1);
  std::vector<float> two(3, 0.0F);
  const size_t all =
      scan.collect_above(values, 10.0F, std::span(two_ids).first(2), std::span(two).first(2));
  EXPECT_EQ(all, want.size());
  EXPECT_EQ(two_ids[1], want[1]);
  EXPECT_EQ(two_ids[2], -1);
}

// A row of which some tokens count, and the same row with -inf for the others. Those hold what no
// scan may look at.
struct Masked {
  Masked(size_t count, uint64_t seed)
      : plain(logits(count, seed)), values(plain), words((count + 63) / 64) {
    for (size_t word = 0; word < words.size(); ++word) {
      const uint64_t random = random_at(seed, word);
      const uint64_t kinds[] = {0, ~uint64_t{0}, random, uint64_t{1} << random % 64,
                                random << 16 & 0xffff0000};
      words[word] = kinds[random_at(seed + 1, word) % 5];
    }
    if (count % 64 != 0) words.back() &= (uint64_t{1} << count % 64) - 1;
    for (size_t i = 0; i < count; ++i) {
      if (row().allows(i)) continue;
      plain[i] = -kInf;
      values[i] = i % 2 == 0 ? kNan : kInf;
    }
  }
  LogitRow row() const { return {values, words.data()}; }

  std::vector<float> plain, values;
  std::vector<uint64_t> words;
};

TEST_P(Scan, LooksAtWhatCountsAlone) {
  for (const size_t count : {1, 15, 64, 65, 100, 1024, 1003, 5000}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const Masked masked(count, seed);
      const auto want = scan.argmax(masked.plain), got = scan.argmax(masked.row());
      ASSERT_TRUE(got.all_finite) << count << " " << seed;
      ASSERT_EQ(got.value, want.value) << count << " " << seed;
      if (want.value == -kInf) {
        ASSERT_EQ(got.index, 0U);
        continue;
      }
      ASSERT_EQ(got.index, want.index) << count << " " << seed;
      ASSERT_TRUE(same_bits(scan.sum_exp(masked.row(), want.value, 1.25F),
                            scan.sum_exp(masked.plain, want.value, 1.25F)))
          << count << " " << seed;
      std::vector<TokenId> ids(count), wanted_ids(count);
      std::vector<float> found(count), wanted(count);
      const size_t listed = scan.collect_above(masked.row(), 2.0F, ids, found);
      ASSERT_EQ(listed, scan.collect_above(masked.plain, 2.0F, wanted_ids, wanted));
      ASSERT_EQ(ids, wanted_ids) << count << " " << seed;
      ASSERT_EQ(found, wanted) << count << " " << seed;
    }
  }
}

TEST_P(Scan, WhatCountsMayNotBeFinite) {
  std::vector<float> values = logits(130, 1);
  const uint64_t words[] = {0, uint64_t{1} << 20 | 1, 1};
  for (const size_t at : {64, 84, 128}) {
    for (const float bad : {kInf, kNan}) {
      const float before = std::exchange(values[at], bad);
      EXPECT_FALSE(scan.argmax(LogitRow(values, words)).all_finite) << at;
      values[at] = before;
    }
  }
  EXPECT_TRUE(scan.argmax(LogitRow(values, words)).all_finite);
}

TEST_P(Scan, ExpIsTheDefinition) {
  std::vector<float> values(100'003), got(values.size()), want(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = i % 2 == 0 ? std::bit_cast<float>(static_cast<uint32_t>(random_at(5, i)))
                           : static_cast<float>(random_at(5, i) % 20'000) / 100 - 100;
  }
  scan.exp(values, got);
  const FlushDenormals flush;
  std::transform(values.begin(), values.end(), want.begin(), arithmetic::exp);
  EXPECT_TRUE(same_bits(got, want));
}

INSTANTIATE_TEST_SUITE_P(Isas, Scan, ::testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

}  // namespace
}  // namespace skein
