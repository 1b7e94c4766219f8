// vLLM's requests in skein's words: what is taken, what is refused, and by which name.
#include "server/grpc/generate_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

namespace skein::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::vllm::GenerateRequest;

GenerateRequest with_ids(std::initializer_list<uint32_t> ids = {1, 2, 3}) {
  GenerateRequest message;
  for (const uint32_t id : ids) message.mutable_token_ids()->add_ids(id);
  return message;
}

api::AnswerOptions options_of(GenerateRequest message) {
  auto read = read_generate(message, true);
  EXPECT_TRUE(read.ok()) << read.error().message;
  return std::move(read->request.options);
}

// The field that a request is refused for.
std::string refused(GenerateRequest message) {
  const auto read = read_generate(message, true);
  return read.ok() ? "not refused" : read.error().param;
}

TEST(GenerateRequest, Prompts) {
  GenerateRequest message = with_ids();
  EXPECT_THAT(std::get<1>(read_generate(message, true)->request.prompts.at(0)),
              ElementsAre(1, 2, 3));
  message = with_ids();
  message.set_truncate_prompt_tokens(2);
  EXPECT_THAT(std::get<1>(read_generate(message, true)->request.prompts.at(0)), ElementsAre(2, 3));
  GenerateRequest text;
  text.set_text("Hi");
  EXPECT_EQ(std::get<0>(read_generate(text, true)->request.prompts.at(0)), "Hi");
  EXPECT_EQ(refused({}), "prompt");
  EXPECT_EQ(refused(with_ids({1, 0x80000000})), "token_ids");
}

TEST(GenerateRequest, ZeroIsTheDefault) {
  const api::AnswerOptions options = options_of(with_ids());
  EXPECT_FALSE(options.temperature || options.top_k || options.top_p || options.min_p ||
               options.repetition_penalty || options.seed || options.max_tokens);
  EXPECT_TRUE(options.pieces.text && options.skip_special_tokens && options.goes_on);
  EXPECT_FALSE(options.return_token_ids || options.sampling.logprobs || options.form);
}

TEST(GenerateRequest, OfSeveralBadIdsTheSameOneIsNamed) {
  for (uint32_t first = 0; first < 64; ++first) {
    GenerateRequest message = with_ids();
    auto& biases = *message.mutable_decoding()->mutable_logit_bias();
    for (uint32_t i = 0; i < 64; ++i) biases[0x80000000 + (first + 37 * i) % 64] = 1;
    const auto read = read_generate(message, true);
    ASSERT_FALSE(read.ok());
    EXPECT_THAT(read.error().message, HasSubstr("2147483648 is no"));
  }
}

TEST(GenerateRequest, Sampling) {
  GenerateRequest message = with_ids();
  message.set_temperature(0);
  auto& sampling = *message.mutable_sampling();
  sampling.set_num_sequences(1);
  sampling.set_top_k(5);
  sampling.set_top_p(0.5F);
  sampling.set_min_p(0.25F);
  sampling.set_seed(-1);
  auto& decoding = *message.mutable_decoding();
  decoding.set_presence_penalty(1);
  decoding.set_frequency_penalty(-1);
  decoding.set_repetition_penalty(1.5F);
  (*decoding.mutable_logit_bias())[9] = 1;
  (*decoding.mutable_logit_bias())[7] = -1;
  decoding.add_allowed_token_ids(4);
  auto& stopping = *message.mutable_stopping();
  stopping.set_max_new_tokens(10);
  stopping.set_min_new_tokens(2);
  stopping.add_stop_token_ids(6);
  stopping.add_stop_strings("###");
  stopping.set_include_stop_strings(true);
  stopping.set_ignore_eos(true);
  message.mutable_response()->set_output_token_ids(true);
  message.mutable_response()->mutable_output_candidates()->set_top_n(3);
  const api::AnswerOptions options = options_of(message);
  EXPECT_EQ(options.temperature, 0);
  EXPECT_EQ(options.top_k, 5);
  EXPECT_EQ(options.top_p, 0.5F);
  EXPECT_EQ(options.min_p, 0.25F);
  EXPECT_EQ(options.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(options.repetition_penalty, 1.5F);
  EXPECT_EQ(options.sampling.presence_penalty, 1);
  EXPECT_EQ(options.sampling.frequency_penalty, -1);
  EXPECT_THAT(options.sampling.logit_bias, ElementsAre(Pair(7, -1), Pair(9, 1)));
  EXPECT_THAT(options.sampling.allowed, ElementsAre(4));
  EXPECT_EQ(options.max_tokens, 10);
  EXPECT_EQ(options.sampling.min_tokens, 2);
  EXPECT_THAT(options.sampling.stop_ids, ElementsAre(6));
  EXPECT_THAT(options.stop, ElementsAre("###"));
  EXPECT_TRUE(options.pieces.stop_text && options.sampling.ignore_eos && options.return_token_ids);
  EXPECT_TRUE(options.sampling.logprobs);
  EXPECT_EQ(options.sampling.top_logprobs, 3);
}

TEST(GenerateRequest, Forms) {
  using Kind = FormSpec::Kind;
  const auto form_of = [](const auto& set) {
    GenerateRequest message = with_ids();
    set(*message.mutable_decoding());
    return options_of(message).form.value().spec;
  };
  EXPECT_EQ(form_of([](auto& d) { d.set_json("{}"); }), (FormSpec{Kind::kJsonSchema, "{}"}));
  EXPECT_EQ(form_of([](auto& d) { d.set_regex("a+"); }), (FormSpec{Kind::kRegex, "a+"}));
  EXPECT_EQ(form_of([](auto& d) { d.set_json_object(true); }).kind, Kind::kJsonObject);
  EXPECT_EQ(form_of([](auto& d) { d.set_grammar("root ::= \"a\""); }).kind, Kind::kGbnf);
  EXPECT_EQ(form_of([](auto& d) { d.set_grammar("start: \"a\""); }).kind, Kind::kLark);
  const FormSpec choice = form_of([](auto& d) { d.mutable_choice()->add_choices("yes"); });
  EXPECT_THAT(choice.choices, ElementsAre("yes"));
  GenerateRequest message = with_ids();
  message.mutable_decoding()->set_json_object(false);
  EXPECT_FALSE(options_of(message).form);
  message.mutable_decoding()->mutable_choice();
  EXPECT_EQ(refused(message), "decoding.choice");
}

TEST(GenerateRequest, WhatCannotBeHadIsRefusedByName) {
  const auto with = [](const auto& set) {
    GenerateRequest message = with_ids();
    set(message);
    return refused(message);
  };
  EXPECT_EQ(with([](auto& m) { m.mutable_sampling()->set_num_sequences(2); }),
            "sampling.num_sequences");
  EXPECT_EQ(with([](auto& m) { m.add_media(); }), "media");
  EXPECT_EQ(with([](auto& m) { m.set_lora_name("x"); }), "lora_name");
  EXPECT_EQ(with([](auto& m) { m.set_native_sampling_params_json("{}"); }),
            "native_sampling_params_json");
  EXPECT_EQ(with([](auto& m) { m.mutable_kv()->mutable_kv_transfer_params(); }),
            "kv.kv_transfer_params");
  EXPECT_EQ(with([](auto& m) { m.mutable_kv()->mutable_ec_transfer_params(); }),
            "kv.ec_transfer_params");
  EXPECT_EQ(with([](auto& m) { m.mutable_kv()->set_cache_salt(std::string(513, 'x')); }),
            "kv.cache_salt");
  EXPECT_EQ(with([](auto& m) { m.mutable_response()->set_prompt_logprobs(true); }),
            "response.prompt_logprobs");
  EXPECT_EQ(with([](auto& m) { m.mutable_response()->mutable_output_candidates()->set_all(true); }),
            "response.output_candidates");
  EXPECT_EQ(with([](auto& m) { m.mutable_response()->mutable_output_candidates()->set_top_n(21); }),
            "response.output_candidates");
  EXPECT_EQ(with([](auto& m) { m.mutable_decoding()->set_structural_tag("x"); }),
            "decoding.structural_tag");
  EXPECT_EQ(with([](auto& m) { m.mutable_stopping()->add_stop_strings(""); }),
            "stopping.stop_strings");
  EXPECT_EQ(with([](auto& m) {
              for (int i = 0; i < 17; ++i) m.mutable_stopping()->add_stop_strings("x");
            }),
            "stopping.stop_strings");
  EXPECT_EQ(with([](auto& m) {
              for (int i = 0; i < 1025; ++i) m.mutable_stopping()->add_stop_token_ids(1);
            }),
            "stopping.stop_token_ids");
  EXPECT_EQ(with([](auto& m) {
              for (uint32_t i = 0; i < 1025; ++i)
                (*m.mutable_decoding()->mutable_logit_bias())[i] = 1;
            }),
            "decoding.logit_bias");
  EXPECT_EQ(with([](auto& m) {
              m.mutable_stopping()->set_max_new_tokens(1);
              m.mutable_stopping()->set_min_new_tokens(2);
            }),
            "stopping.min_new_tokens");
}

// As vLLM counts. Dynamo's own numbers are turned over by its sidecar, which fleet_dynamo_test.py
// holds it to.
TEST(GenerateRequest, ClassBySign) {
  EXPECT_EQ(class_of(-1), Priority::HIGH);
  EXPECT_EQ(class_of(0), Priority::NORMAL);
  EXPECT_EQ(class_of(1), Priority::LOW);
}

TEST(GenerateRequest, TenantsAreTheirNames) {
  const HashKey salt_key{1, 2};
  KeyRing keys(salt_key);
  KeyRecord key;
  key.id = "key-1";
  key.name = "alice";
  key.models = {"m"};
  key.requests_per_minute = 5;
  key.tokens_per_minute = 7;
  key.admin = true;
  keys.replace({key});
  const auto nobody = principal_of({}, keys, salt_key);
  const auto other = principal_of({.cache_salt = "dynamo-cache-salt:who"}, keys, salt_key);
  const auto alice = principal_of({.cache_salt = "dynamo-cache-salt:key-1"}, keys, salt_key);
  EXPECT_TRUE(nobody->is_anonymous() && other->is_anonymous());
  EXPECT_NE(nobody->salt, other->salt);
  EXPECT_NE(other->salt, alice->salt);
  EXPECT_EQ(alice->salt,
            principal_of({.cache_salt = "dynamo-cache-salt:key-1"}, keys, salt_key)->salt);
  EXPECT_NE(alice->salt,
            principal_of({.cache_salt = "dynamo-cache-salt:key-1"}, keys, {1, 3})->salt);
  EXPECT_NE(alice->salt, keys.find("key-1")->salt)
      << "who is only named does not find what a key was shown for";
  EXPECT_EQ(alice->key_id, "key-1");
  EXPECT_EQ(alice->tokens_per_minute, 7);
  EXPECT_EQ(alice->requests_per_minute, 0) << "it was counted when it was checked";
  EXPECT_FALSE(alice->admin);
  EXPECT_FALSE(alice->may_use("another"));
  const auto apart = principal_of({.cache_salt = "x", .bypasses_cache = true}, keys, salt_key);
  EXPECT_NE(apart->salt,
            principal_of({.cache_salt = "x", .bypasses_cache = true}, keys, salt_key)->salt);
}

}  // namespace
}  // namespace skein::rpc
