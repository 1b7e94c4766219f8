#include "engine/sampling/sampling_params.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <string>

#include "base/special_floats.h"

namespace skein {
namespace {

constexpr uint32_t kVocab = 100;
using testing::kInf;
using testing::kNan;

struct Case {
  const char* message;  // a part of it: the field, the value, the range
  std::function<void(SamplingParams&)> change;
};

// A case that sets one float to each of `values`.
void expect_refused(float SamplingParams::*field, const std::vector<float>& values,
                    const std::string& name, const std::string& range) {
  for (const float value : values) {
    SamplingParams params;
    params.*field = value;
    const Status status = params.validate(kVocab);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << name << " " << value;
    EXPECT_EQ(status.message(), fmt::format("{} is {}, it must be {}", name, value, range));
  }
}

void expect_taken(float SamplingParams::*field, const std::vector<float>& values) {
  for (const float value : values) {
    SamplingParams params;
    params.*field = value;
    EXPECT_TRUE(params.validate(kVocab).ok()) << value;
  }
}

TEST(SamplingParams, NumbersHaveRanges) {
  using P = SamplingParams;
  const float least = std::numeric_limits<float>::denorm_min();
  expect_refused(&P::temperature, {-0.1F, 100.1F, kNan, kInf, -kInf}, "temperature",
                 "from 0 to 100");
  expect_refused(&P::top_p, {0, -1, 1.01F, kNan, kInf}, "top_p", "above 0 and at most 1");
  expect_refused(&P::min_p, {-0.1F, 1.1F, kNan}, "min_p", "from 0 to 1");
  expect_refused(&P::typical_p, {0, 1.5F, kNan}, "typical_p", "above 0 and at most 1");
  expect_refused(&P::repetition_penalty, {0, -1, 1e-38F, 0.0099F, 101, kNan, kInf},
                 "repetition_penalty", "from 0.01 to 100");
  expect_refused(&P::presence_penalty, {-2.1F, 2.1F, kNan}, "presence_penalty", "from -2 to 2");
  expect_refused(&P::frequency_penalty, {-2.1F, 2.1F, kNan}, "frequency_penalty", "from -2 to 2");
  expect_taken(&P::temperature, {0, 1, 100, least});
  expect_taken(&P::top_p, {1, least});
  expect_taken(&P::min_p, {0, 1});
  expect_taken(&P::typical_p, {1, least});
  expect_taken(&P::repetition_penalty, {1, 100, 0.5F, 0.01F});
  expect_taken(&P::presence_penalty, {-2, 2});
  expect_taken(&P::frequency_penalty, {-2, 2});
}

TEST(SamplingParams, ListsAndTheirIdsAreChecked) {
  const Case cases[] = {
      {"logit_bias has token 100, the vocabulary has 100 tokens",
       [](SamplingParams& p) {
         p.logit_bias = {{100, 0.0F}};
       }},
      {"logit_bias has token -1, the vocabulary has 100 tokens",
       [](SamplingParams& p) {
         p.logit_bias = {{-1, 0.0F}};
       }},
      {"logit_bias is 100.5, it must be from -100 to 100",
       [](SamplingParams& p) {
         p.logit_bias = {{5, 1.0F}, {6, 100.5F}};
       }},
      {"logit_bias is nan, it must be from -100 to 100",
       [](SamplingParams& p) {
         p.logit_bias = {{5, kNan}};
       }},
      {"allowed has token 100, the vocabulary has 100 tokens",
       [](SamplingParams& p) {
         p.allowed = {1, 100};
       }},
      {"banned has token -5, the vocabulary has 100 tokens",
       [](SamplingParams& p) { p.banned = {-5}; }},
      {"stop_ids has token 1000, the vocabulary has 100 tokens",
       [](SamplingParams& p) { p.stop_ids = {1000}; }},
      {"top_logprobs is 21, it must be from 0 to 20",
       [](SamplingParams& p) { p.logprobs = true, p.top_logprobs = 21; }},
      {"top_logprobs is 1, it needs logprobs", [](SamplingParams& p) { p.top_logprobs = 1; }},
  };
  for (const Case& c : cases) {
    SamplingParams params;
    c.change(params);
    const Status status = params.validate(kVocab);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.message(), c.message);
  }
  SamplingParams params;
  params.logit_bias = {{0, -100.0F}, {99, 100.0F}};
  params.allowed = {0, 99};
  params.banned = {5};
  params.stop_ids = {99};
  params.logprobs = true;
  params.top_logprobs = 20;
  EXPECT_TRUE(params.validate(kVocab).ok());
}

}  // namespace
}  // namespace skein
