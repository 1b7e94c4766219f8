#include "engine/forms/form_cache.h"

#include <atomic>
#include <chrono>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/forms/form_helpers.h"
#include "engine/forms/form_place.h"

namespace skein::testing {
namespace {

using grammar::FormCode;
using grammar::FormResult;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(FormTest, TheSameFormIsCompiledOnce) {
  const auto first = form(schema_form(R"({"type":"integer"})"));
  EXPECT_EQ(form(schema_form(R"({"type":"integer"})")), first);
  EXPECT_NE(form(schema_form(R"({"type":"integer"})", true)), first) << "strict is another form";
  EXPECT_NE(form(regex_form("a|b")), form({.kind = FormSpec::Kind::kChoice, .choices = {"a|b"}}));
  // Lengths keep the choices apart.
  EXPECT_NE(form({.kind = FormSpec::Kind::kChoice, .choices = {"a", "b"}}),
            form({.kind = FormSpec::Kind::kChoice, .choices = {"ab"}}));
  const FormCounts counts = cache_.counts();
  EXPECT_EQ(counts.hits, 1U);
  EXPECT_EQ(counts.misses, 6U);
  EXPECT_GT(cache_.bytes(), 0U);
}

// Who is in a hurry can have it for nothing: the first token is drawn in a step.
TEST_F(FormTest, TheFirstMaskIsMadeWithTheForm) {
  FormPlace place(form(schema_form(R"({"type":"array","items":{"type":"string"}})")));
  const grammar::HurriedQuestions hurried(place.grammar(), 0);
  EXPECT_NE(place.mask(), nullptr);
  EXPECT_FALSE(hurried.late());
}

// Those who ask while it is being compiled wait for it.
TEST_F(FormTest, EqualFormsAtOneTimeAreCompiledOnce) {
  ASSERT_TRUE(cache_.prepare().ok());
  std::atomic<int> made = 0;
  std::atomic<int> asking = 0;
  const auto ask = [&](bool good) {
    ++asking;
    return cache_.compile("key", [&, good]() -> grammar::FormResult<FormRules> {
      ++made;
      while (asking < 4) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (!good) return grammar::FormError{FormCode::kInvalidRegex, "no", ""};
      return rules_of(regex_form("a"), {});
    });
  };
  for (const bool good : {false, true}) {  // what is refused is kept by nobody
    made = asking = 0;
    std::vector<std::thread> threads;
    std::atomic<int> served = 0;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] { served += ask(good).ok() == good ? 1 : 0; });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(served, 4);
    if (good) {
      EXPECT_EQ(made, 1);
    }
  }
}

TEST_F(FormTest, WhiteSpaceIsAPartOfAForm) {
  FormSpec spec = schema_form(R"({"type":"array"})");
  const auto usual = form(spec);
  spec.white_space = "";
  const auto none = form(spec);
  EXPECT_NE(none, usual);
  const auto takes = [](const std::shared_ptr<const Form>& form, std::string_view text) {
    grammar::Matcher matcher(form->grammar);
    return matcher.advance_bytes(text) && matcher.may_end();
  };
  EXPECT_TRUE(takes(usual, "[1, 2]"));
  EXPECT_FALSE(takes(none, "[1, 2]"));
  EXPECT_TRUE(takes(none, "[1,2]"));
  spec.white_space = "x";
  auto refused = cache_.compile(spec);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, FormCode::kInvalidRegex);
}

TEST_F(FormTest, GrammarsMayNameControlTokens) {
  constexpr auto kEnd = static_cast<TokenId>(kTinyEnd);
  const std::string name(tokenizer_.piece(kEnd));
  ASSERT_TRUE(tokenizer_.is_control(kEnd));
  for (const FormSpec& spec :
       {FormSpec{.kind = FormSpec::Kind::kGbnf, .text = "root ::= \"a\" " + name},
        FormSpec{.kind = FormSpec::Kind::kLark, .text = "start: \"a\" " + name}}) {
    const auto made = form(spec);
    ASSERT_NE(made, nullptr);
    FormPlace place(made);
    EXPECT_FALSE(place.allows(kEnd));
    EXPECT_TRUE(place.advance('a'));
    EXPECT_TRUE(place.advance(kEnd));
    EXPECT_TRUE(place.may_end());
  }
  EXPECT_FALSE(
      cache_.compile({.kind = FormSpec::Kind::kGbnf, .text = "root ::= <|nothing|>"}).ok());
}

TEST_F(FormTest, AsManyFormsAreKeptAsIsSaid) {
  FormCache cache(tokenizer_, kTinyTokens,
                  {.cache_bytes = uint64_t{1} << 40, .live_bytes = uint64_t{1} << 40});
  ASSERT_TRUE(cache.prepare().ok());
  std::vector<std::weak_ptr<const Form>> forms;
  for (uint32_t i = 0; i < FormLimits{}.cached_forms; ++i) {
    forms.emplace_back(cache.compile(regex_form(std::to_string(i))).value());
  }
  EXPECT_EQ(forms.size(), 256U);
  EXPECT_FALSE(forms[0].expired());
  (void)cache.compile(regex_form("one more"));
  EXPECT_TRUE(forms[0].expired());
  EXPECT_FALSE(forms[1].expired());
}

TEST_F(FormTest, WhatIsNotEnforcedIsNamedOrRefused) {
  const char* schema = R"({"type":"array","items":{"type":"object"},"contains":{"minimum":5}})";
  const auto relaxed = form(schema_form(schema));
  ASSERT_NE(relaxed, nullptr);
  EXPECT_THAT(relaxed->relaxed, ElementsAre("/contains"));
  auto refused = cache_.compile(schema_form(schema, true));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, FormCode::kUnsupportedSchema);
  EXPECT_EQ(refused.error().where, "/contains");
  EXPECT_EQ(cache_.counts().refused[static_cast<size_t>(FormCode::kUnsupportedSchema)], 1U);
}

TEST_F(FormTest, AFormGoesWhenItIsTheOldestOfTooMany) {
  FormCache cache(tokenizer_, kTinyTokens, {.cached_forms = 2});
  ASSERT_TRUE(cache.prepare().ok());
  const auto compile = [&](const char* text) { return cache.compile(regex_form(text)).value(); };
  const std::weak_ptr<const Form> a = compile("a");
  const std::weak_ptr<const Form> b = compile("b");
  EXPECT_EQ(compile("a"), a.lock()) << "at the limit both are kept";
  compile("c");
  EXPECT_FALSE(a.expired());
  EXPECT_TRUE(b.expired()) << "a was used after it";
}

TEST_F(FormTest, BytesOfTheCacheAreBounded) {
  FormCache probe(tokenizer_, kTinyTokens);
  ASSERT_TRUE(probe.prepare().ok());
  const uint64_t tries = probe.bytes();
  const auto held = probe.compile(regex_form("a"));
  const uint64_t one = probe.bytes() - tries;
  for (const uint64_t missing : {0, 1}) {
    FormCache cache(tokenizer_, kTinyTokens, {.cache_bytes = 2 * one - missing});
    ASSERT_TRUE(cache.prepare().ok());
    const std::weak_ptr<const Form> a = cache.compile(regex_form("a")).value();
    (void)cache.compile(regex_form("b"));
    EXPECT_EQ(a.expired(), missing == 1);
  }
  FormCache none(tokenizer_, kTinyTokens, {.cache_bytes = one - 1});
  ASSERT_TRUE(none.prepare().ok());
  const std::weak_ptr<const Form> a = none.compile(regex_form("a")).value();
  EXPECT_TRUE(a.expired()) << "larger than the whole cache, so it is its request's alone";
}

TEST_F(FormTest, WhatRequestsHoldIsBoundedToo) {
  FormCache cache(tokenizer_, kTinyTokens, {.cache_bytes = 0, .live_bytes = 1});
  ASSERT_TRUE(cache.prepare().ok());
  auto held = cache.compile(regex_form("a")).value();
  const Status full = cache.prepare();
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("at most 1"));
  held.reset();
  EXPECT_TRUE(cache.prepare().ok());
}

// The engine's thread may be the last to hold one.
TEST_F(FormTest, WhatIsLargeIsGivenBackByAThreadOfItsOwn) {
  const auto here = std::this_thread::get_id();
  std::thread::id where;
  const auto noted = [&] {
    return std::shared_ptr<const void>(&where, [&](auto*) { where = std::this_thread::get_id(); });
  };
  FormDisposal disposal;
  disposal.add(noted());
  disposal.stop();
  EXPECT_NE(where, std::thread::id());
  EXPECT_NE(where, here);
  disposal.add(noted());
  EXPECT_EQ(where, here) << "there is no other any more";
}

TEST_F(FormTest, ALargeFormIsOnTheAccountUntilItIsGone) {
  FormCache cache(tokenizer_, kTinyTokens, {.cache_bytes = 0});
  ASSERT_TRUE(cache.prepare().ok());
  const uint64_t tries = cache.bytes();
  std::string words = R"({"enum":["x")";
  for (int i = 0; i < 5000; ++i) words += ",\"word " + std::to_string(i * 7919) + "\"";
  auto held = cache.compile(schema_form(words + "]}")).value();
  EXPECT_GT(cache.bytes(), tries + (uint64_t{2} << 20));
  held.reset();
  for (int i = 0; i < 20'000 && cache.bytes() > tries; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(cache.bytes(), tries);
}

// One who has no memory for a form spoils it for nobody else.
TEST_F(FormTest, AfterACompilationThatThrewTheNextOneTriesAgain) {
  ASSERT_TRUE(cache_.prepare().ok());
  const auto rules = [] { return rules_of(regex_form("a")); };
  EXPECT_THROW(
      (void)cache_.compile("key", []() -> FormResult<FormRules> { throw std::bad_alloc(); }),
      std::bad_alloc);
  EXPECT_TRUE(cache_.compile("key", rules).ok());
}

TEST_F(FormTest, OneTenantCannotHoldAllThatFormsMayTake) {
  FormCache cache(tokenizer_, kTinyTokens, {.cache_bytes = 0, .live_bytes = uint64_t{4} << 20});
  ASSERT_TRUE(cache.prepare(1).ok());
  auto held = cache.compile(regex_form("a"), 1).value();
  const Status own = cache.prepare(1);
  EXPECT_EQ(own.code(), Code::kResourceExhausted);
  EXPECT_THAT(own.message(), HasSubstr("a tenant's"));
  EXPECT_TRUE(cache.prepare(2).ok()) << "what one holds is not taken from another";
  held.reset();
  EXPECT_TRUE(cache.prepare(1).ok());
}

TEST(FormCacheTest, AVocabularyThatCannotWriteEveryByteHasNoForms) {
  nlohmann::json tokenizer = nlohmann::json::parse(tiny_tokenizer());
  nlohmann::json& vocab = tokenizer["model"]["vocab"];
  vocab["zz"] = vocab["{"];
  vocab.erase("{");
  auto spec = parse_tokenizer_json(tokenizer.dump());
  ASSERT_TRUE(spec.ok()) << spec.message();
  auto made = Tokenizer::create(std::move(*spec));
  ASSERT_TRUE(made.ok()) << made.message();
  FormCache cache(*made, kTinyTokens);
  const Status status = cache.prepare();
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("0x7b"));
}

// A SentencePiece vocabulary, whose text loses a space at the very start.
TEST(FormCacheTest, AnAnswerMayBeginWithTheSpaceThatItsTextLoses) {
  TokenizerSpec spec;
  spec.model = TokenizerSpec::Model::kSpmBpe;
  spec.decoder = TokenizerSpec::Decoder::kMetaspace;
  spec.strip_leading_space = true;
  const auto add = [&](std::string_view piece, TokenType type) {
    spec.pieces.push_back(piece);
    spec.scores.push_back(0);
    spec.types.push_back(type);
  };
  for (int b = 0; b < 256; ++b) add(fmt::format("<0x{:02X}>", b), TokenType::kByte);
  constexpr TokenId kSpace = 256, kSpaceA = 257, kA = 258, kTwoSpacesA = 259;
  for (const char* piece : {"\u2581", "\u2581a", "a", "\u2581\u2581a"}) {
    add(piece, TokenType::kNormal);
  }
  auto tokenizer = Tokenizer::create(std::move(spec));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  FormCache cache(*tokenizer, 260);
  ASSERT_TRUE(cache.prepare().ok());
  FormPlace place(cache.compile(regex_form("a(a| a)*")).value());
  const std::vector<std::pair<TokenId, bool>> begins = {
      {kSpace, true}, {kSpaceA, true}, {kA, true}, {kTwoSpacesA, false}};
  for (const auto& [token, first] : begins) {
    EXPECT_EQ(place.allows(token), first) << token;
    EXPECT_EQ(place.mask()->has(token), first) << token;
    FormPlace fork = place;
    EXPECT_EQ(fork.advance(token), first) << token;
  }
  ASSERT_TRUE(place.advance(kSpaceA));
  EXPECT_TRUE(place.may_end());
  EXPECT_TRUE(place.allows(kSpace)) << "the second one is text";
  EXPECT_TRUE(place.allows(kSpaceA));
  EXPECT_FALSE(place.allows(kTwoSpacesA));
}

}  // namespace
}  // namespace skein::testing
