// RequestSampler with a form, against a sampler without one whose logits were masked by asking the
// matcher for one token after the other.
#include <chrono>
#include <cmath>
#include <future>
#include <gmock/gmock.h>
#include <limits>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "engine/forms/form_helpers.h"
#include "engine/sampling/sampler.h"
#include "engine/scans.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;

constexpr float kOut = -std::numeric_limits<float>::infinity();
constexpr auto kEnd = static_cast<TokenId>(kTinyEnd);

std::vector<float> random_row(uint64_t seed) {
  Rng rng(seed);
  std::vector<float> row(kTinyTokens);
  // Few values, so that ties are common.
  for (float& x : row) x = static_cast<float>(rng.below(40)) * 0.25F - 5;
  return row;
}

std::vector<float> row_for(std::string_view likely, float value = 9) {
  std::vector<float> row(kTinyTokens, 0);
  for (const char c : likely) row[static_cast<uint8_t>(c)] = value;
  return row;
}

class FormSamplingTest : public FormTest {
 protected:
  RequestSampler sampler(const SamplingParams& params, const FormSpec& spec) {
    return RequestSampler(params, kTinyTokens, {}, form(spec));
  }
  SampledToken sample(const RequestSampler& sampler, const std::vector<float>& row,
                      uint32_t position) {
    auto sampled = sampler.sample(row, position, scratch_);
    EXPECT_TRUE(sampled.ok()) << sampled.message();
    return sampled.ok() ? *sampled : SampledToken{};
  }
  // The text of a whole answer over random rows; '$' where a stop token ended it.
  std::string answer(const SamplingParams& params, const FormSpec& spec, uint64_t seed,
                     uint32_t most = 200);

  SamplerScratch scratch_{scans().back()};
};

std::string FormSamplingTest::answer(const SamplingParams& params, const FormSpec& spec,
                                     uint64_t seed, uint32_t most) {
  RequestSampler one = sampler(params, spec);
  std::string text;
  for (uint32_t position = 0; position < most; ++position) {
    const SampledToken token = sample(one, random_row(seed * 1000 + position), position);
    if (token.stop) return text + '$';
    text.push_back(static_cast<char>(token.token));
    if (token.last) return text;
    one.accept(token.token);
  }
  return text + "...";
}

SamplingParams params_of(float temperature) {
  SamplingParams params;
  params.temperature = temperature;
  params.stop_ids = {kEnd};
  return params;
}

const char* const kSchema =
    R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"enum":["x","yy"]},)"
    R"("c":{"type":"array","items":{"type":"boolean"},"maxItems":3}},"required":["a"]})";

std::vector<SamplingParams> many_params() {
  std::vector<SamplingParams> all;
  for (const float temperature : {0.0F, 1.2F}) {
    SamplingParams plain = params_of(temperature);
    all.push_back(plain);
    SamplingParams edited = plain;
    edited.logit_bias = {{'1', 4.0F}, {'}', -100.0F}, {kEnd, 2.0F}};
    edited.banned = {'7', '8'};
    edited.repetition_penalty = 1.3F;
    edited.presence_penalty = 0.5F;
    edited.frequency_penalty = -0.25F;
    all.push_back(edited);
    SamplingParams filtered = plain;
    filtered.top_k = 7;
    filtered.top_p = 0.8F;
    filtered.min_p = 0.05F;
    filtered.typical_p = 0.9F;
    all.push_back(filtered);
    SamplingParams ignoring = plain;
    ignoring.ignore_eos = true;
    all.push_back(ignoring);
  }
  return all;
}

// A token that takes longer than a step can wait is drawn beside it, and is the same one.
TEST_F(FormSamplingTest, WhatIsPutOffIsDrawnAllTheSame) {
  uint32_t put_off = 0, at_once = 0;
  for (const FormSpec& spec : {schema_form(kSchema), regex_form("[a-c]{0,9}[xyz]+")}) {
    for (const SamplingParams& params : many_params()) {
      RequestSampler patient = sampler(params, spec);
      RequestSampler hurried = sampler(params, spec);
      SamplerScratch hasty(scans().back(), 40);
      for (uint32_t position = 0; position < 60; ++position) {
        const std::vector<float> row = random_row(position + 77);
        if (position % 3 == 0) form(spec)->grammar->forget_all();
        SampledToken drawn = *hurried.sample(row, position, hasty);
        put_off += drawn.put_off ? 1 : 0;
        at_once += drawn.put_off ? 0 : 1;
        if (drawn.put_off) {
          EXPECT_EQ(drawn.token, kNoToken);
          hurried.begin_beside();
          EXPECT_TRUE(hurried.sample(row, position, hasty)->put_off);
          std::thread([&] { hurried.draw_beside(row, position, scratch_); }).join();
          drawn = *hurried.sample(row, position, hasty);
          ASSERT_FALSE(drawn.put_off);
        }
        const SampledToken expected = sample(patient, row, position);
        ASSERT_EQ(drawn.token, expected.token) << "position " << position;
        ASSERT_EQ(drawn.stop, expected.stop);
        ASSERT_EQ(drawn.last, expected.last);
        if (drawn.stop || drawn.last) break;
        hurried.accept(drawn.token);
        patient.accept(drawn.token);
      }
    }
  }
  EXPECT_GT(put_off, 20U);
  EXPECT_GT(at_once, 20U);
}

// Asked one by one, the tokens that may come next keep their logits; of them the plain sampler
// draws the same one. So "greedy asks first" and the mask in the row are right, ties included.
TEST_F(FormSamplingTest, DrawsWhatASamplerDrawsFromMaskedLogits) {
  for (const FormSpec& spec : {schema_form(kSchema), regex_form("[a-c]{0,9}[xyz]+")}) {
    for (const SamplingParams& params : many_params()) {
      RequestSampler with = sampler(params, spec);
      RequestSampler without(params, kTinyTokens, {});
      FormPlace place(form(spec));
      for (uint32_t position = 0; position < 120; ++position) {
        std::vector<float> row = random_row(position + 77);
        const SampledToken drawn = sample(with, row, position);
        for (TokenId id = 0; id < static_cast<TokenId>(kTinyTokens); ++id) {
          const bool ends = id == kEnd && !params.ignore_eos && place.may_end();
          if (!ends && !place.allows(id)) row[static_cast<size_t>(id)] = kOut;
        }
        const SampledToken expected = sample(without, row, position);
        ASSERT_EQ(drawn.token, expected.token) << "position " << position;
        ASSERT_EQ(drawn.stop, expected.stop);
        if (drawn.stop) break;
        ASSERT_TRUE(place.advance(drawn.token));
        ASSERT_EQ(drawn.last, place.must_end());
        if (drawn.last) break;
        with.accept(drawn.token);
        without.accept(drawn.token);
      }
    }
  }
}

TEST_F(FormSamplingTest, EveryAnswerIsOfItsForm) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::string text = answer(params_of(1.2F), schema_form(kSchema), seed, 400);
    if (text.ends_with("...")) continue;
    EXPECT_TRUE(text.ends_with("}")) << text;
    EXPECT_TRUE(nlohmann::json::accept(text)) << text;
  }
}

TEST_F(FormSamplingTest, ADocumentEndsWithoutAStopTokenWhenNothingElseCanFollow) {
  RequestSampler one = sampler(params_of(0), regex_form("ab"));
  const SampledToken first = sample(one, row_for("b$"), 0);
  EXPECT_EQ(first.token, 'a') << "the likelier b may not come yet";
  EXPECT_FALSE(first.last);
  one.accept(first.token);
  const SampledToken second = sample(one, row_for("a"), 1);
  EXPECT_EQ(second.token, 'b');
  EXPECT_TRUE(second.last);
}

TEST_F(FormSamplingTest, AStopTokenMayComeExactlyWhereTheFormMayEnd) {
  std::vector<float> ends = row_for("a");
  ends[kTinyEnd] = 20;
  for (const float temperature : {0.0F, 0.01F}) {
    RequestSampler one = sampler(params_of(temperature), regex_form("a{2,5}"));
    for (uint32_t position = 0; position < 2; ++position) {
      const SampledToken token = sample(one, ends, position);
      EXPECT_EQ(token.token, 'a');
      EXPECT_FALSE(token.stop);
      one.accept(token.token);
    }
    EXPECT_TRUE(sample(one, ends, 2).stop);
  }
}

TEST_F(FormSamplingTest, MinTokensAndIgnoreEosYieldWhereNothingElseCanFollow) {
  std::vector<float> ends = row_for("");
  ends[kTinyEnd] = 20;
  SamplingParams longer = params_of(0);
  longer.min_tokens = 4;
  SamplingParams ignoring = params_of(0);
  ignoring.ignore_eos = true;
  for (const SamplingParams& params : {longer, ignoring}) {
    RequestSampler open = sampler(params, regex_form("a*"));
    for (uint32_t position = 0; position < 4; ++position) {
      const SampledToken token = sample(open, ends, position);
      EXPECT_EQ(token.token, 'a') << "something else can follow";
      EXPECT_FALSE(token.stop || token.last);
      open.accept(token.token);
    }
    EXPECT_EQ(sample(open, ends, 4).stop, !params.ignore_eos);
    RequestSampler closed = sampler(params, regex_form("aa"));
    closed.accept(sample(closed, ends, 0).token);
    EXPECT_TRUE(sample(closed, ends, 1).last) << "two tokens, whatever was asked for";
    RequestSampler nothing = sampler(params, regex_form(""));
    EXPECT_TRUE(sample(nothing, ends, 0).stop) << "only the empty text";
  }
  // What could follow is banned, so the form ends where it may.
  SamplingParams banned = longer;
  banned.banned = {'a'};
  RequestSampler open = sampler(banned, regex_form("a*"));
  EXPECT_TRUE(sample(open, ends, 0).stop);
}

TEST_F(FormSamplingTest, WithNoTokenLeftThatTheFormAllowsTheRequestFails) {
  SamplingParams banned = params_of(0);
  banned.banned = {'a'};
  SamplingParams allowed = params_of(1);
  allowed.allowed = {'b', 'c'};
  for (const SamplingParams& params : {banned, allowed}) {
    RequestSampler one = sampler(params, regex_form("a+"));
    const auto sampled = one.sample(row_for(""), 0, scratch_);
    ASSERT_FALSE(sampled.ok());
    EXPECT_EQ(sampled.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(sampled.message(), HasSubstr("the form allows"));
  }
  // A bias of -100 makes a token unlikely; the only one that may come still comes.
  SamplingParams biased = params_of(0);
  biased.logit_bias = {{'a', -100.0F}};
  RequestSampler one = sampler(biased, regex_form("a+"));
  EXPECT_EQ(sample(one, row_for(""), 0).token, 'a');
}

TEST_F(FormSamplingTest, AStopIdThatIsTextEndsAnAnswerOnlyWhereTheFormMayEnd) {
  SamplingParams params = params_of(0);
  params.stop_ids = {'a', kEnd};
  RequestSampler one = sampler(params, regex_form("(ba?)+"));
  EXPECT_EQ(sample(one, row_for("a"), 0).token, 'b');
  one.accept('b');
  EXPECT_TRUE(sample(one, row_for("a"), 1).stop);
}

TEST_F(FormSamplingTest, LogprobsAreOfTheRawLogits) {
  SamplingParams params = params_of(0);
  params.logprobs = true;
  params.top_logprobs = 2;
  RequestSampler one = sampler(params, regex_form("ab"));
  const SampledToken token = sample(one, row_for("z", 3), 0);
  EXPECT_EQ(token.token, 'a');
  EXPECT_EQ(token.top[0].token, 'z');
  EXPECT_NEAR(token.logprob, -std::log(std::exp(3.0) + kTinyTokens - 1), 1e-5);
}

// What is no number counts only where it may be drawn.
TEST_F(FormSamplingTest, ANanOutsideTheFormIsNobodysBusiness) {
  std::vector<float> row = row_for("a");
  row['z'] = std::numeric_limits<float>::quiet_NaN();
  for (const float temperature : {0.0F, 1.0F}) {
    RequestSampler one = sampler(params_of(temperature), regex_form("ab"));
    EXPECT_EQ(sample(one, row, 0).token, 'a');
    RequestSampler inside = sampler(params_of(temperature), regex_form("az"));
    inside.accept('a');
    EXPECT_EQ(inside.sample(row, 1, scratch_).status().code(), Code::kInternal);
  }
}

TEST_F(FormSamplingTest, DraftsAreFollowedAndForgotten) {
  RequestSampler one = sampler(params_of(0), regex_form("abc"));
  const std::vector<TokenId> drafts = {'a', 'b'};
  for (uint32_t n = 0; n < 3; ++n) {
    const auto token = one.sample(row_for(""), n, scratch_, std::span(drafts).first(n));
    ASSERT_TRUE(token.ok()) << token.message();
    EXPECT_EQ(token->token, "abc"[n]);
    EXPECT_EQ(token->last, n == 2);
  }
  EXPECT_EQ(sample(one, row_for("c"), 0).token, 'a') << "nothing was accepted";
  for (const TokenId token : drafts) one.accept(token);
  EXPECT_TRUE(sample(one, row_for(""), 2).last);
}

// Whoever accepts is waited for by everybody, and the form may be with a thread that takes its
// time.
TEST_F(FormSamplingTest, DraftsThatCameTrueAreAcceptedWithoutTheForm) {
  const std::shared_ptr<const Form> shared = form(regex_form("abc"));
  RequestSampler one(params_of(0), kTinyTokens, {}, shared);
  const std::vector<TokenId> drafts = {'a', 'b'};
  for (uint32_t n = 0; n < 3; ++n) {
    ASSERT_TRUE(one.sample(row_for(""), n, scratch_, std::span(drafts).first(n)).ok());
  }
  std::promise<void> taken, done;
  std::thread other([&] {
    const grammar::HurriedQuestions questions(*shared->grammar, UINT64_MAX);
    taken.set_value();
    EXPECT_EQ(done.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  });
  taken.get_future().wait();
  for (const char token : {'a', 'b', 'c'}) one.accept(token);
  done.set_value();
  other.join();
  EXPECT_TRUE(sample(one, row_for(""), 3).stop) << "all of them were";
}

// A step that is run again samples the same rows once more.
TEST_F(FormSamplingTest, SamplingChangesNothingUntilATokenIsAccepted) {
  RequestSampler one = sampler(params_of(1), schema_form(kSchema));
  for (uint32_t position = 0; position < 20; ++position) {
    const std::vector<float> row = random_row(position);
    const SampledToken first = sample(one, row, position);
    EXPECT_EQ(sample(one, row, position).token, first.token);
    if (first.stop || first.last) break;
    one.accept(first.token);
  }
}

}  // namespace
}  // namespace skein::testing
