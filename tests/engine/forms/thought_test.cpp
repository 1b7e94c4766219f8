// Forms with a thought in front: where everything is allowed, and where it is ended by force.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "engine/forms/form_helpers.h"
#include "engine/forms/form_place.h"
#include "engine/sampling/sampler.h"
#include "engine/scans.h"

namespace skein::testing {
namespace {

constexpr auto kStart = static_cast<TokenId>(kTinyStart);
constexpr auto kStop = static_cast<TokenId>(kTinyEnd);

std::vector<TokenId> ids_of(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}

class ThoughtTest : public FormTest {
 protected:
  // "<t>", a thought, "</t>", and then "aaa" or "bb"; the prompt may have brought "<t>".
  std::shared_ptr<const Form> thinking(bool open, bool begins_with_token = false) {
    EXPECT_TRUE(cache_.prepare().ok());
    auto form = cache_.compile(fmt::format("thought {} {}", open, begins_with_token), [&] {
      FormRules out;
      grammar::Rules& rules = out.rules;
      const auto literal = [&](std::string_view text) {
        return grammar::Symbol::terminal(rules.add_terminal(rules.regex->literal(text)));
      };
      std::vector<grammar::Symbol> symbols;
      if (begins_with_token) symbols.push_back(grammar::Symbol::terminal(rules.add_token(kStart)));
      if (!open && !begins_with_token) symbols.push_back(literal("<t>"));
      const std::vector<std::string> markers = {"</t>"};
      symbols.push_back(grammar::free_text(rules, markers));
      symbols.push_back(literal("</t>"));
      symbols.push_back(
          grammar::Symbol::terminal(rules.add_terminal(rules.regex->literals({"aaa", "bb"}))));
      rules.start = rules.add_rule();
      rules.add(rules.start, std::move(symbols));
      out.thought = ThoughtMarkers{.open = open,
                                   .begin = begins_with_token ? kStart : kNoToken,
                                   .begin_text = begins_with_token ? "" : "<t>",
                                   .end_text = "</t>",
                                   .end_ids = ids_of("</t>")};
      return grammar::FormResult<FormRules>(std::move(out));
    });
    EXPECT_TRUE(form.ok()) << form.error().message;
    return *form;
  }

  // The tokens of an answer whose model always wants `wish`.
  std::string answer(RequestSampler sampler, char wish, uint32_t most = 60) {
    std::string text;
    std::vector<float> row(kTinyTokens, 0);
    row[static_cast<uint8_t>(wish)] = 30;
    for (uint32_t position = 0; position < most; ++position) {
      auto token = sampler.sample(row, position, scratch_);
      EXPECT_TRUE(token.ok()) << token.message();
      if (!token.ok() || token->stop) break;
      text.push_back(token->token < 256 ? static_cast<char>(token->token) : '#');
      if (token->last) break;
      sampler.accept(token->token);
    }
    return text;
  }

  SamplerScratch scratch_{scans().back()};
};

SamplingParams at(float temperature) {
  SamplingParams params;
  params.temperature = temperature;
  params.stop_ids = {kStop};
  return params;
}

TEST_F(ThoughtTest, ABudgetEndsIt) {
  for (const float temperature : {0.0F, 1.0F}) {
    for (const uint32_t budget : {0U, 1U, 7U}) {
      RequestSampler open(at(temperature), kTinyTokens, {}, thinking(true), budget);
      EXPECT_EQ(answer(std::move(open), 'a'), std::string(budget, 'a') + "</t>aaa");
      RequestSampler closed(at(temperature), kTinyTokens, {}, thinking(false), budget);
      EXPECT_EQ(answer(std::move(closed), 'a'), "<t>" + std::string(budget, 'a') + "</t>aaa");
      RequestSampler token(at(temperature), kTinyTokens, {}, thinking(false, true), budget);
      EXPECT_EQ(answer(std::move(token), 'a'), "#" + std::string(budget, 'a') + "</t>aaa");
    }
    RequestSampler without(at(temperature), kTinyTokens, {}, thinking(true));
    EXPECT_EQ(answer(std::move(without), 'a'), std::string(60, 'a'));
  }
}

TEST_F(ThoughtTest, OneThatEndsByItselfIsNotEndedAgain) {
  FormPlace place(thinking(true), 5);
  for (const TokenId id : ids_of("x</t>")) {
    EXPECT_EQ(place.forced(), kNoToken);
    ASSERT_TRUE(place.advance(id));
  }
  for (const TokenId id : ids_of("aaa")) {
    EXPECT_EQ(place.forced(), kNoToken);
    ASSERT_TRUE(place.advance(id));
  }
  EXPECT_TRUE(place.must_end());
  // A marker that has begun when the budget ends is written anew.
  FormPlace begun(thinking(true), 2);
  for (const TokenId id : ids_of("</")) ASSERT_TRUE(begun.advance(id));
  for (const TokenId id : ids_of("</t>")) {
    EXPECT_EQ(begun.forced(), id);
    ASSERT_TRUE(begun.advance(id));
  }
  EXPECT_EQ(begun.forced(), kNoToken);
}

// Where everything is allowed a draw is what it would be without a form; where the draw is a
// token that is not, it is drawn again from those that are.
TEST_F(ThoughtTest, AFreeZoneChangesNoDraw) {
  Rng rng(3);
  RequestSampler bound(at(1.2F), kTinyTokens, {}, thinking(true));
  const RequestSampler free(at(1.2F), kTinyTokens, {});
  size_t same = 0;
  for (uint32_t position = 0; position < 300; ++position) {
    std::vector<float> row(kTinyTokens);
    for (float& x : row) x = static_cast<float>(rng.below(40)) * 0.1F;
    row['<'] = -100;
    const auto token = bound.sample(row, position, scratch_);
    const auto other = free.sample(row, position, scratch_);
    ASSERT_TRUE(token.ok() && other.ok());
    ASSERT_LT(token->token, 256);
    EXPECT_TRUE(other->token >= 256 || token->token == other->token) << position;
    same += token->token == other->token ? 1 : 0;
    bound.accept(token->token);
  }
  EXPECT_GT(same, 280U);
  FormPlace place(thinking(true));
  EXPECT_TRUE(place.mask()->is_free());
  for (const TokenId id : ids_of("</t>")) ASSERT_TRUE(place.advance(id));
  EXPECT_FALSE(place.mask()->is_free());
}

}  // namespace
}  // namespace skein::testing
