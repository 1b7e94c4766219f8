#include "engine/speculation/drafter.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>

#include "base/rng.h"
#include "engine/speculation/speculation.h"

namespace skein {
namespace {

using Tokens = std::vector<TokenId>;

Tokens numbers(TokenId first, size_t count) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Speculation, AnIndexFindsTheLongestPlaceAndTheLatestAmongEquals) {
  TokenIndex index;
  index.append(Tokens{1, 2, 3, 4, 50, 9, 2, 3, 4, 60, 7, 2, 3, 4, 70, 0});
  EXPECT_EQ(index.find(Tokens{8, 2, 3, 4}).end, 14U) << "the latest";
  EXPECT_EQ(index.find(Tokens{9, 2, 3, 4}).end, 9U) << "the longest";
  EXPECT_EQ(index.find(Tokens{9, 2, 3, 4}).length, 4U);
  EXPECT_EQ(index.find(Tokens{1, 2, 3, 4}).end, 4U);
  EXPECT_EQ(index.find(Tokens{3, 4}).length, 2U);
  EXPECT_EQ(index.find(Tokens{4}).length, 0U) << "too short";
  EXPECT_EQ(index.find(Tokens{5, 4}).length, 0U) << "too little of it";
  EXPECT_EQ(index.find(Tokens{5, 5, 5}).length, 0U);
  EXPECT_EQ(index.find(index.tokens()).length, 0U) << "nothing follows the end itself";
}

TEST(Speculation, NothingMatchesAcrossTwoTexts) {
  TokenIndex index;
  index.append(Tokens{1, 2, kNoToken, 3, 4, 5, kNoToken, 6, 7, 8, 9});
  EXPECT_EQ(index.find(Tokens{2, 3, 4}).length, 2U);
  EXPECT_EQ(index.find(Tokens{2, 3}).length, 0U);
  EXPECT_EQ(index.find(Tokens{3, 4, 5}).length, 0U) << "what follows is another text";
  EXPECT_EQ(index.find(Tokens{5, 6, 7, 8}).length, 3U);
}

TEST(Speculation, AnIndexAgreesWithASearchOfEverything) {
  Rng rng(7);
  for (int round = 0; round < 20; ++round) {
    TokenIndex index;
    for (int i = 0; i < 400; ++i) {
      const TokenIndex::Match match = index.find(index.tokens());
      const std::span<const TokenId> text = index.tokens();
      uint32_t longest = 0;
      for (uint32_t end = TokenIndex::kLeastMatch; end < text.size(); ++end) {
        longest = std::max(longest, index.length_at(text, end));
      }
      if (longest < TokenIndex::kLeastMatch) longest = 0;
      // With few tokens a chain is longer than what is looked at.
      if (round < 10) {
        ASSERT_EQ(match.length, longest);
      } else {
        ASSERT_LE(match.length, longest);
      }
      if (match.length > 0) {
        ASSERT_EQ(index.length_at(text, match.end), match.length);
      }
      index.append(static_cast<TokenId>(rng.below(round < 10 ? 12 : 2)));
    }
  }
}

TEST(Speculation, WhatThePromptSaidIsGuessedAndWhatWasRightBecomesLikelier) {
  DraftMemory memory;
  Drafter drafter(numbers(100, 50) + Tokens{1, 2, 3}, memory.of(0, {}));
  Tokens drafts;
  std::vector<uint16_t> odds;
  drafter.follow(Tokens{110}, drafts, odds);
  EXPECT_TRUE(drafts.empty()) << "one token is no match";
  drafter.follow(Tokens{111, 112}, drafts, odds);
  EXPECT_EQ(Tokens(drafts.begin(), drafts.begin() + 2), (Tokens{113, 114}));
  ASSERT_EQ(odds.size(), drafts.size());
  EXPECT_TRUE(std::is_sorted(odds.rbegin(), odds.rend()));
  const uint16_t at_first = odds[0];
  EXPECT_LT(at_first, 500);
  for (TokenId token = 113; token < 140; ++token) drafter.follow(Tokens{token}, drafts, odds);
  EXPECT_EQ(drafts.size(), size_t{Drafter::kMostDrafts});
  EXPECT_EQ(drafts[0], 140);
  EXPECT_GT(odds[0], 900);
  EXPECT_LT(odds[0], 1000);
}

// Follows 100, 101, ... with that many of them, then goes elsewhere.
class Copying {
 public:
  explicit Copying(const Tokens& prompt) : drafter_(prompt, memory_.of(0, {})) {}

  // The first guess at what follows; kNoToken: none.
  TokenId after(const Tokens& sampled) {
    drafter_.follow(sampled, drafts_, odds_);
    return drafts_.empty() ? kNoToken : drafts_[0];
  }

 private:
  DraftMemory memory_;
  Drafter drafter_;
  Tokens drafts_;
  std::vector<uint16_t> odds_;
};

TEST(Speculation, APlaceThatIsLostIsLookedForNearby) {
  Copying copying(numbers(100, 60) + Tokens{1, 2, 3});
  EXPECT_EQ(copying.after(numbers(100, 10)), 110);
  EXPECT_EQ(copying.after({900}), 111) << "a token in the place of one";
  EXPECT_EQ(copying.after({901}), 112) << "and another";
  EXPECT_EQ(copying.after({112}), 113);
  EXPECT_EQ(copying.after({113, 114, 115}), 116);
  EXPECT_EQ(copying.after({120}), 121) << "some are left out";
  EXPECT_EQ(copying.after({121, 122, 123}), 124);
  EXPECT_EQ(copying.after({150}), 125) << "too far to be the same place";
}

TEST(Speculation, APlaceThatStaysLostIsGivenUp) {
  Copying copying(numbers(100, 60) + Tokens{1, 2, 3});
  EXPECT_EQ(copying.after(numbers(100, 10)), 110);
  TokenId guess = 0;
  int guesses = 0;
  for (TokenId other = 900; other < 920; ++other) {
    guess = copying.after({other});
    guesses += guess == kNoToken ? 0 : 1;
  }
  EXPECT_EQ(guess, kNoToken);
  EXPECT_EQ(guesses, 8);
  Copying barely(numbers(100, 60) + Tokens{1, 2, 3});
  EXPECT_EQ(barely.after({110, 111}), 112);
  EXPECT_EQ(barely.after({900}), kNoToken) << "two tokens alike are no place to come back to";
}

TEST(Speculation, NoPlaceIsLookedForInAnotherAnswer) {
  EarlierAnswers answers;
  answers.add(numbers(100, 10));
  answers.add(numbers(200, 10));
  const auto shared = std::make_shared<EarlierAnswers>(answers);
  Drafter drafter(Tokens{1, 2, 3}, shared);
  Tokens drafts;
  std::vector<uint16_t> odds;
  drafter.follow(numbers(100, 8), drafts, odds);
  ASSERT_FALSE(drafts.empty());
  EXPECT_EQ(drafts, numbers(108, 2)) << "and no further than its answer";
  drafter.follow(Tokens{205}, drafts, odds);
  EXPECT_NE(drafts, numbers(206, 4));
}

TEST(Speculation, WhatIsWrongBecomesUnlikelierAlsoWhereNobodyComputedIt) {
  DraftMemory memory;
  Tokens text;
  for (TokenId i = 0; i < 60; ++i) text = text + Tokens{1, 2, 3, 100 + i};
  Drafter drafter(text, memory.of(0, {}));
  Tokens drafts;
  std::vector<uint16_t> odds;
  drafter.follow(Tokens{1, 2, 3}, drafts, odds);
  ASSERT_FALSE(odds.empty());
  uint16_t last = odds[0];
  for (TokenId i = 0; i < 30; ++i) {
    drafter.follow(Tokens{900 + i, 1, 2, 3}, drafts, odds);
    if (odds.empty()) break;
    EXPECT_LE(odds[0], last);
    last = odds[0];
  }
  EXPECT_LT(last, 60);
}

TEST(Speculation, ATextThatRepeatsItselfIsGuessedBeyondItsEnd) {
  DraftMemory memory;
  Drafter drafter(Tokens{9, 4, 5, 4, 5, 4, 5}, memory.of(0, {}));
  Tokens drafts;
  std::vector<uint16_t> odds;
  for (int i = 0; i < 40; ++i) drafter.follow(Tokens{4, 5}, drafts, odds);
  ASSERT_EQ(drafts.size(), size_t{Drafter::kMostDrafts});
  for (size_t i = 0; i < drafts.size(); ++i) EXPECT_EQ(drafts[i], i % 2 == 0 ? 4 : 5);
}

TEST(Speculation, EarlierAnswersAreOneTenantsOwn) {
  DraftMemory memory;
  const Hash128 salt{1, 2};
  const Tokens answer = numbers(500, 30);
  Tokens drafts;
  std::vector<uint16_t> odds;
  Drafter first(Tokens{1, 2, 3}, memory.of(7, salt));
  first.follow(answer, drafts, odds);
  first.remember_answer();
  const auto guesses = [&](uint64_t tenant, const Hash128& whose) {
    Drafter next(Tokens{4, 5, 6}, memory.of(tenant, whose));
    next.follow(Tokens{500, 501, 502}, drafts, odds);
    return drafts.empty() ? kNoToken : drafts[0];
  };
  EXPECT_EQ(guesses(7, salt), 503);
  EXPECT_EQ(guesses(8, salt), kNoToken) << "another tenant's";
  EXPECT_EQ(guesses(7, {1, 3}), kNoToken) << "another salt's";
  EXPECT_EQ(guesses(7, salt), 503) << "what has only begun is not remembered";
}

TEST(Speculation, NoGuessGoesOnFromOneAnswerToTheNext) {
  EarlierAnswers answers;
  answers.add(Tokens{1, 2, 3, 4});
  answers.add(Tokens{5, 6, 7, 8});
  EXPECT_EQ(answers.halves()[0]->find(Tokens{2, 3, 4}).length, 0U);
  EXPECT_EQ(answers.halves()[0]->find(Tokens{1, 2, 3}).length, 3U);
}

TEST(Speculation, MemoryIsBounded) {
  DraftMemory memory;
  const std::shared_ptr<EarlierAnswers> mine = memory.of(1, {});
  for (int i = 0; i < 100; ++i) {
    mine->add(numbers(1000 * i, 900));
    for (const auto& half : mine->halves()) {
      EXPECT_LE(half->size(), EarlierAnswers::kMostTokens);
    }
  }
  mine->add(numbers(0, 50'000));
  EXPECT_LE(mine->halves()[0]->size(), EarlierAnswers::kMostTokens);
  const Tokens latest = numbers(49'000, 10);
  EXPECT_EQ(mine->halves()[0]->find(latest).length, 10U) << "the end of a long answer stays";
  for (uint64_t other = 2; other < 2 + DraftMemory::kMostTenants; ++other) memory.of(other, {});
  EXPECT_NE(memory.of(1, {}), mine) << "who asked longest ago is forgotten";
  EXPECT_EQ(memory.of(33, {}), memory.of(33, {}));
}

TEST(Speculation, WordsOfOptionsAndRequests) {
  EXPECT_EQ(speculation_of("off"), Speculation::kOff);
  EXPECT_EQ(speculation_of("ngram"), Speculation::kNgram);
  EXPECT_EQ(speculation_of("auto"), Speculation::kAuto);
  EXPECT_EQ(speculation_of("on"), std::nullopt);
  EXPECT_EQ(speculation_of(""), std::nullopt);
}

}  // namespace
}  // namespace skein
