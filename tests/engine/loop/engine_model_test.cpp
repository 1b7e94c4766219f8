// The engine over a real model: what it shares, what it repeats, where it stops, and that no
// leftover of one request reaches another.
#include <cstring>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "backend/host/kv.h"
#include "base/rng.h"
#include "engine/answer.h"
#include "engine/loop/batch_inference_engine.h"
#include "engine/loop/model_runner.h"
#include "engine/manager/direct_inference.h"
#include "format/test_folder.h"

namespace skein {
namespace {

using ::testing::Each;
using ::testing::Not;

class EngineModelTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kBlocks = 96;

  static void SetUpTestSuite() {
    const std::string path = testing::default_model_path();
    if (!std::filesystem::exists(path)) return;
    pool_ = new ComputePool(2);
    ModelOptions options;
    options.limits = {.rows = 256 + 8, .logit_rows = 8};
    auto loaded = LoadedModel::load(path, options, *pool_);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    model_ = new std::shared_ptr<LoadedModel>(std::move(*loaded));
  }
  static void TearDownTestSuite() {
    delete model_;
    delete pool_;
    model_ = nullptr;
    pool_ = nullptr;
  }

  void SetUp() override { SKEIN_NEEDS_DEFAULT_MODEL(); }

  LoadedModel& model() { return **model_; }

  void start(bool prefix_cache = true) {
    auto cache = model().make_kv(kBlocks);
    ASSERT_TRUE(cache.ok()) << cache.message();
    kv_ = host_kv(**cache).layer(0);
    kv_bytes_ = (*cache)->bytes();
    EngineOptions options;
    options.scheduler.pool_blocks = kBlocks;
    options.scheduler.max_batch = 8;
    options.scheduler.max_context = 2048;
    options.scheduler.vocab_size = model().vocab();
    options.scheduler.prefix_cache = prefix_cache;
    auto engine = BatchInferenceEngine::create(
        std::make_unique<ModelRunner>(*model_, std::move(*cache), *pool_, clock_), options, clock_);
    ASSERT_TRUE(engine.ok()) << engine.message();
    engine_ = std::move(*engine);
  }

  std::vector<TokenId> words(uint32_t count, uint64_t seed) {
    Rng rng(seed);
    std::vector<TokenId> tokens;
    for (uint32_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<TokenId>(rng.below(model().vocab())));
    }
    return tokens;
  }
  static GenerationRequest greedy(std::vector<TokenId> prompt, uint32_t max_tokens) {
    GenerationRequest request;
    request.prompt = std::move(prompt);
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    return request;
  }
  RequestHandle submit(GenerationRequest request) {
    auto handle = engine_->submit(std::move(request), {});
    if (!handle.ok()) ADD_FAILURE() << handle.message();
    return std::move(handle).value();
  }
  Answer ask(GenerationRequest request) {
    RequestHandle handle = submit(std::move(request));
    return read(handle);
  }

  static ComputePool* pool_;
  static std::shared_ptr<LoadedModel>* model_;
  SystemClock clock_;
  KvLayer kv_;
  uint64_t kv_bytes_ = 0;
  InferenceService::Owned<BatchInferenceEngine> engine_;
};
ComputePool* EngineModelTest::pool_ = nullptr;
std::shared_ptr<LoadedModel>* EngineModelTest::model_ = nullptr;

TEST_F(EngineModelTest, TimeOfTheModelIsPartOfTheLoopsTime) {
  start();
  (void)ask(greedy(words(64, 9), 8));
  const EngineSnapshot snapshot = engine_->snapshot();
  EXPECT_GT(snapshot.model_time_us, 0U);
  EXPECT_LT(snapshot.model_time_us, snapshot.loop_time_us);
}

TEST_F(EngineModelTest, SharedPrefixIsComputedOnceAndHeldTwice) {
  start();
  const std::vector<TokenId> prefix = words(320, 1);
  std::vector<TokenId> one = prefix, two = prefix;
  one.push_back(5);
  const std::vector<TokenId> tail = words(7, 2);
  two.insert(two.end(), tail.begin(), tail.end());

  RequestHandle first = submit(greedy(one, 40));
  StreamChunk chunk;
  first.stream().wait(chunk);  // its prompt is computed
  RequestHandle second = submit(greedy(two, 12));
  std::vector<TokenId> tokens;
  while (tokens.size() < 2) {  // with the second token the step of the first one is published
    second.stream().wait(chunk);
    tokens.insert(tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
  }
  const SchedulerStats both = engine_->snapshot().scheduler;
  EXPECT_EQ(both.prefix_hit_tokens, 320U);
  // Ten blocks that both hold, and one or two of each one's own.
  EXPECT_LE(both.held_blocks, 10U + 2 * 2U);
  // The whole of the first, the tail of the second, and a token a step.
  EXPECT_LE(both.computed_tokens, 321U + 7U + 2 * 40U);
  const Answer rest = read(second);
  tokens.insert(tokens.end(), rest.tokens.begin(), rest.tokens.end());
  EXPECT_EQ(rest.end.cached_tokens, 320U);
  engine_.reset();
  start(false);
  EXPECT_EQ(ask(greedy(two, 12)).tokens, tokens);
}

TEST_F(EngineModelTest, FullyCachedPromptRecomputesOneToken) {
  start();
  const std::vector<TokenId> prompt = words(64, 3);
  const Answer cold = ask(greedy(prompt, 8));
  const Answer warm = ask(greedy(prompt, 8));
  EXPECT_EQ(warm.tokens, cold.tokens);
  EXPECT_EQ(cold.end.cached_tokens, 0U);
  EXPECT_EQ(warm.end.cached_tokens, 63U);
}

TEST_F(EngineModelTest, SameSeedSameTokensWhateverElseRuns) {
  start();
  const auto request = [&](uint64_t seed, uint32_t choice) {
    GenerationRequest wanted;
    wanted.prompt = words(20, 4);
    wanted.max_tokens = 24;
    wanted.sampling.seed = seed;
    wanted.sampling.choice = choice;
    return wanted;
  };
  const std::vector<TokenId> alone = ask(request(7, 0)).tokens;
  std::vector<RequestHandle> others;
  for (uint64_t i = 0; i < 5; ++i) others.push_back(submit(greedy(words(50, 100 + i), 30)));
  EXPECT_EQ(ask(request(7, 0)).tokens, alone);
  EXPECT_NE(ask(request(8, 0)).tokens, alone);
  EXPECT_NE(ask(request(7, 1)).tokens, alone);
  GenerationRequest zero = request(7, 0), zero_again = request(9, 3);
  zero.sampling.temperature = zero_again.sampling.temperature = 0;
  const std::vector<TokenId> cold = ask(std::move(zero)).tokens;
  EXPECT_EQ(ask(std::move(zero_again)).tokens, cold);
  EXPECT_EQ(ask(greedy(words(20, 4), 24)).tokens, cold);
}

TEST_F(EngineModelTest, SiblingsShareTheirPromptAndDrawDifferently) {
  start();
  std::vector<RequestHandle> siblings;
  for (uint32_t choice = 0; choice < 4; ++choice) {
    GenerationRequest wanted;
    wanted.prompt = words(100, 5);
    wanted.max_tokens = 12;
    wanted.sampling.seed = 1;
    wanted.sampling.choice = choice;
    siblings.push_back(submit(std::move(wanted)));
  }
  std::vector<std::vector<TokenId>> answers;
  uint32_t cached = 0;
  for (RequestHandle& sibling : siblings) {
    const Answer answer = read(sibling);
    cached += answer.end.cached_tokens;
    for (const std::vector<TokenId>& other : answers) EXPECT_NE(answer.tokens, other);
    answers.push_back(answer.tokens);
  }
  EXPECT_EQ(cached, 3U * 96U);  // three of four found the full blocks of the first
}

TEST_F(EngineModelTest, StopTokensEndChatsAndPlainTextAndAreNotEmitted) {
  start();
  nlohmann::ordered_json context;
  context["messages"] = {{{"role", "user"}, {"content", "What is 2+2?"}}};
  context["add_generation_prompt"] = true;
  const auto rendered = model().chat_template()->render(context, {});
  ASSERT_TRUE(rendered.ok()) << rendered.message();
  const Tokenizer& tokenizer = model().tokenizer()->tokenizer;
  const auto chat = tokenizer.encode(rendered->text(), {.parse_special = true});
  ASSERT_TRUE(chat.ok()) << chat.message();
  const std::vector<TokenId> stops = model().sampling_defaults().stop_ids;
  ASSERT_FALSE(stops.empty());

  GenerationRequest request = greedy(*chat, 200);
  request.sampling.stop_ids = stops;
  const Answer answer = ask(std::move(request));
  EXPECT_EQ(answer.end.reason, FinishReason::kStop);
  for (const TokenId stop : stops) EXPECT_THAT(answer.tokens, Each(Not(stop)));
  const auto text = tokenizer.decode(answer.tokens, {.skip_special = false});
  EXPECT_THAT(*text, ::testing::HasSubstr("4"));
  EXPECT_THAT(*text, Not(::testing::HasSubstr("<|im_end|>")));

  // Plain text: the same stops count, unless they are told not to.
  GenerationRequest plain = greedy(*chat, 60);
  plain.sampling.stop_ids = stops;
  plain.sampling.ignore_eos = true;
  const Answer on = ask(std::move(plain));
  EXPECT_EQ(on.end.reason, FinishReason::kLength);
  EXPECT_EQ(on.tokens.size(), 60U);
}

// What a request left in its blocks, were it NaN, is never multiplied by the next one.
TEST_F(EngineModelTest, NanInReusedBlocksReachesNobody) {
  start(false);
  const std::vector<TokenId> expected = ask(greedy(words(45, 6), 30)).tokens;
  std::memset(kv_.data, 0xff, kv_bytes_);  // NaN in every format
  std::vector<RequestHandle> handles;
  for (int i = 0; i < 4; ++i) handles.push_back(submit(greedy(words(45, 6), 30)));
  for (RequestHandle& handle : handles) {
    const Answer answer = read(handle);
    EXPECT_EQ(answer.end.reason, FinishReason::kLength) << answer.end.status.message();
    EXPECT_EQ(answer.tokens, expected);
  }
}

// NaN in the blocks of one running request is that request's end and nobody else's.
TEST_F(EngineModelTest, NanInOneRequestEndsThatOneAlone) {
  start(false);
  const std::vector<TokenId> expected = ask(greedy(words(45, 6), 30)).tokens;
  engine_.reset();
  start(false);
  RequestHandle victim = submit(greedy(words(64, 7), 200));
  StreamChunk chunk;
  victim.stream().wait(chunk);
  // A pool that was never used gives out its blocks in order, so block 0 is the victim's.
  std::memset(kv_.head(BlockId(0), 0), 0xff, 4);
  RequestHandle neighbour = submit(greedy(words(45, 6), 30));
  const Answer hurt = read(victim);
  EXPECT_EQ(hurt.end.reason, FinishReason::kError);
  EXPECT_FALSE(hurt.end.status.ok());
  EXPECT_EQ(read(neighbour).tokens, expected);
}

TEST_F(EngineModelTest, LogprobsComeWithTheTokens) {
  start();
  GenerationRequest wanted = greedy(words(20, 8), 6);
  wanted.sampling.logprobs = true;
  wanted.sampling.top_logprobs = 3;
  RequestHandle handle = submit(std::move(wanted));
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;
  StreamChunk chunk;
  do {
    handle.stream().wait(chunk);
    tokens.insert(tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
    logprobs.insert(logprobs.end(), chunk.logprobs.begin(), chunk.logprobs.end());
  } while (!chunk.end);
  ASSERT_EQ(logprobs.size(), 4 * tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(logprobs[4 * i].token, tokens[i]);
    EXPECT_EQ(logprobs[4 * i + 1].token, tokens[i]);  // greedy: it is the likeliest
    EXPECT_LE(logprobs[4 * i].logprob, 0);
    EXPECT_GE(logprobs[4 * i + 1].logprob, logprobs[4 * i + 2].logprob);
  }
}

}  // namespace
}  // namespace skein
