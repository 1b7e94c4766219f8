#include "engine/sampling/candidates.h"

#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/scans.h"
#include "engine/slow_sampling.h"

namespace skein {
namespace {

using testing::Distribution;
using testing::slow_distribution;

using testing::kOut;

double uniform(Rng& rng) {
  return static_cast<double>(rng.next() >> 11) * 0x1p-53;
}

// Rows of every kind that models and requests make: spread like a language model's, flat, one token
// far ahead, few distinct values (ties), parts impossible.
std::vector<float> random_row(Rng& rng, size_t size) {
  std::vector<float> row(size);
  const uint64_t kind = rng.below(5);
  for (float& x : row) {
    const double bell = uniform(rng) + uniform(rng) + uniform(rng) + uniform(rng) - 2;
    x = static_cast<float>(kind == 0 ? 1 : kind == 1 ? std::round(4 * bell) : 8 * bell);
  }
  if (kind == 2) row[rng.below(size)] = 60;
  if (kind == 3) {
    for (float& x : row) {
      if (rng.chance(1, 3)) x = kOut;
    }
    row[rng.below(size)] = 3;
  }
  return row;
}

// Shares near 1 as often as any: that is where a threshold can be too high.
float random_share(Rng& rng) {
  return static_cast<float>(std::max(0.05, 1 - std::pow(10.0, -3 * uniform(rng))));
}

SamplingParams random_params(Rng& rng) {
  SamplingParams params;
  const float temperatures[] = {0.1F, 0.7F, 1, 1.5F, 3, 10};
  params.temperature = temperatures[rng.below(6)];
  if (rng.chance(1, 3)) params.top_k = static_cast<uint32_t>(rng.between(1, 300));
  if (rng.chance(1, 2)) params.top_p = random_share(rng);
  if (rng.chance(1, 3)) params.min_p = static_cast<float>(std::pow(10.0, -4 * uniform(rng)));
  if (rng.chance(1, 4)) params.typical_p = random_share(rng);
  return params;
}

std::string describe(const SamplingParams& p) {
  return fmt::format("temperature {} top_k {} top_p {} min_p {} typical_p {}", p.temperature,
                     p.top_k, p.top_p, p.min_p, p.typical_p);
}

void expect_filtered(std::span<const Candidate> listed, const std::vector<float>& row,
                     const SamplingParams& params, const std::string& what) {
  const Distribution want = slow_distribution(row, params);
  uint64_t whole = 0;
  for (const Candidate& candidate : listed) whole += candidate.weight;
  Distribution got;
  for (const Candidate& candidate : listed) {
    if (candidate.weight == 0) continue;
    const double share = static_cast<double>(candidate.weight) / static_cast<double>(whole);
    const auto found = want.find(candidate.token);
    ASSERT_NE(found, want.end()) << what << ": token " << candidate.token << " should be out";
    ASSERT_NEAR(share, found->second, 1e-5 * found->second + 1e-11) << what;
    got[candidate.token] = share;
  }
  double missing = 0;  // what would weigh less than one unit adds next to nothing
  for (const auto& [token, share] : want) missing += got.count(token) == 0 ? share : 0;
  EXPECT_LT(missing, 1e-7) << what;
}

TEST(Candidates, AreThoseOfTheSlowFilters) {
  Rng rng(1);
  size_t undecidable = 0;
  for (int i = 0; i < 600; ++i) {
    const size_t size = i % 50 == 0 ? 50'000 : rng.between(1, i % 7 == 0 ? 9'000 : 400);
    const std::vector<float> row = random_row(rng, size);
    const SamplingParams params = random_params(rng);
    if (slow_distribution(row, params, 1 - 4e-6).size() !=
        slow_distribution(row, params, 1 + 4e-6).size()) {
      ++undecidable;
      continue;
    }
    for (const VocabularyScan& scan : testing::scans()) {
      CandidateSet set;
      set.prepare(size);
      const auto listed = set.filter(row, scan.argmax(row), params, scan);
      expect_filtered(listed, row, params,
                      fmt::format("row {} of {}: {}", i, size, describe(params)));
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_LT(undecidable, 40u);
}

// The same weights and the same tokens from every instruction set.
TEST(Candidates, DoNotDependOnTheInstructionSet) {
  Rng rng(2);
  for (int i = 0; i < 100; ++i) {
    const std::vector<float> row = random_row(rng, rng.between(1, 5'000));
    const SamplingParams params = random_params(rng);
    std::vector<Candidate> first;
    for (const VocabularyScan& scan : testing::scans()) {
      CandidateSet set;
      set.prepare(row.size());
      const auto listed = set.filter(row, scan.argmax(row), params, scan);
      if (first.empty()) first.assign(listed.begin(), listed.end());
      ASSERT_EQ(listed.size(), first.size());
      for (size_t j = 0; j < first.size(); ++j) {
        ASSERT_EQ(listed[j].token, first[j].token);
        ASSERT_EQ(listed[j].weight, first[j].weight);
      }
    }
  }
}

// What a mask leaves out might as well not be there: the same weights and draws as with -inf.
TEST(Candidates, OfAMaskedRowAreThoseItAllows) {
  Rng rng(6);
  for (int i = 0; i < 200; ++i) {
    std::vector<float> row = random_row(rng, rng.between(1, 5'000));
    std::vector<uint64_t> allowed((row.size() + 63) / 64);
    const uint64_t one_of = i % 3 == 0 ? 500 : i % 3 == 1 ? 10 : 2;
    row[rng.below(row.size())] = 1;  // one at least that can be drawn
    for (size_t t = 0; t < row.size(); ++t) {
      if (row[t] == 1 || rng.below(one_of) == 0) allowed[t / 64] |= uint64_t{1} << t % 64;
    }
    const std::vector<float> whole = row;
    const LogitRow masked(whole, allowed.data());
    for (size_t t = 0; t < row.size(); ++t) row[t] = masked.allows(t) ? row[t] : kOut;
    SamplingParams params = random_params(rng);
    if (i % 4 == 0) params = {};
    const uint64_t random = rng.next();
    for (const VocabularyScan& scan : testing::scans()) {
      CandidateSet set, want_set;
      set.prepare(row.size());
      want_set.prepare(row.size());
      const auto want = want_set.filter(row, scan.argmax(row), params, scan);
      const auto listed = set.filter(masked, scan.argmax(masked), params, scan);
      ASSERT_EQ(listed.size(), want.size()) << i;
      for (size_t j = 0; j < want.size(); ++j) {
        ASSERT_EQ(listed[j].token, want[j].token) << i;
        ASSERT_EQ(listed[j].weight, want[j].weight) << i;
      }
      ASSERT_EQ(set.draw(masked, scan.argmax(masked), params, scan, random),
                want_set.draw(row, scan.argmax(row), params, scan, random))
          << i;
    }
  }
}

TEST(Candidates, AmongEqualsTheLowerIdsStay) {
  const std::vector<float> row(5'000, 2.5F);
  SamplingParams params;
  params.top_k = 7;
  CandidateSet set;
  set.prepare(row.size());
  const VocabularyScan scan = testing::scans().front();
  auto listed = set.filter(row, scan.argmax(row), params, scan);
  ASSERT_EQ(listed.size(), 7u);
  EXPECT_EQ(listed.back().token, 6);
  params = {};
  params.top_p = 0.5F;
  listed = set.filter(row, scan.argmax(row), params, scan);
  ASSERT_EQ(listed.size(), 2'500u);
  EXPECT_EQ(listed.back().token, 2'499);
}

// The best so far set the threshold for what comes later, to the last bit.
TEST(Candidates, ALateTokenDisplacesTheWorst) {
  std::vector<float> row(3'000, -100.0F);
  for (size_t i = 0; i < 1'024; ++i) row[i] = -0.001F * static_cast<float>(i);
  row[2'000] = std::nextafter(row[9], 0.0F);
  row[2'001] = row[9];
  SamplingParams params;
  params.top_k = 10;
  for (const VocabularyScan& scan : testing::scans()) {
    CandidateSet set;
    set.prepare(row.size());
    const auto listed = set.filter(row, scan.argmax(row), params, scan);
    ASSERT_EQ(listed.size(), 10u);
    EXPECT_EQ(listed[8].token, 8);
    EXPECT_EQ(listed[9].token, 2'000);
  }
}

// Without filters nothing is listed: the draw goes by parts of the row. With one that leaves
// everything it does not, and draws from the same distribution.
TEST(Candidates, UnfilteredDrawsReachEveryPart) {
  std::vector<float> row(10'000, kOut);
  for (const size_t at : {0u, 1'023u, 1'024u, 5'000u, 9'999u}) row[at] = 1;
  CandidateSet set;
  set.prepare(row.size());
  const VocabularyScan scan = testing::scans().back();
  Rng rng(5);
  std::map<TokenId, int> drawn;
  for (int i = 0; i < 5'000; ++i) {
    ++drawn[set.draw(row, scan.argmax(row), SamplingParams(), scan, rng.next())];
  }
  ASSERT_EQ(drawn.size(), 5u);
  for (const auto& [token, count] : drawn) {
    EXPECT_EQ(row[static_cast<size_t>(token)], 1);
    EXPECT_NEAR(count, 1'000, 120);
  }
}

// Tokens that weigh nothing each, but something together, in a part whose first ones are ruled out.
TEST(Candidates, APartWithoutWeightyTokensGivesOneThatIsAllowed) {
  std::vector<float> row(2 * drawing::kPartTokens, -29.9F);  // less than half a unit
  row[0] = 0;
  std::vector<uint64_t> mask(row.size() / 64, ~uint64_t{0});
  mask[drawing::kPartTokens / 64] &= ~uint64_t{7};
  std::vector<float> edited = row;
  for (size_t i = 0; i < 3; ++i) edited[drawing::kPartTokens + i] = kOut;
  const TokenId expected{drawing::kPartTokens + 3};
  for (const VocabularyScan& scan : testing::scans()) {
    CandidateSet set;
    set.prepare(row.size());
    const LogitRow masked(row, mask.data());
    EXPECT_EQ(set.draw(masked, scan.argmax(masked), SamplingParams(), scan, UINT64_MAX), expected);
    EXPECT_EQ(set.draw(edited, scan.argmax(edited), SamplingParams(), scan, UINT64_MAX), expected);
  }
}

TEST(Candidates, LargestAreInOrder) {
  Rng rng(4);
  for (int i = 0; i < 50; ++i) {
    const std::vector<float> row = random_row(rng, rng.between(1, 20'000));
    std::vector<std::pair<float, TokenId>> order;
    for (size_t t = 0; t < row.size(); ++t) {
      if (row[t] > kOut) order.emplace_back(-row[t], static_cast<TokenId>(t));
    }
    std::sort(order.begin(), order.end());
    for (const VocabularyScan& scan : testing::scans()) {
      CandidateSet set;
      set.prepare(row.size());
      const auto largest = set.largest(row, 20, scan);
      ASSERT_EQ(largest.size(), std::min<size_t>(20, order.size()));
      for (size_t t = 0; t < largest.size(); ++t) ASSERT_EQ(largest[t].token, order[t].second);
    }
  }
}

}  // namespace
}  // namespace skein
