#include "engine/speculation/equal_answers.h"

#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "base/rng.h"
#include "engine/drafting_runner.h"
#include "engine/loop/model_runner.h"
#include "text/text_assembler.h"

namespace skein::testing {
namespace {

constexpr uint32_t kEqualDrafts = 24;

std::vector<FormSpec> some_forms() {
  return {
      {.kind = FormSpec::Kind::kJsonObject},
      {.kind = FormSpec::Kind::kRegex, .text = "([A-Z][a-z]{1,9} )*[0-9]{3,20}\\."},
      {.kind = FormSpec::Kind::kChoice, .choices = {"yes", "no", "perhaps, but who knows"}},
  };
}

std::vector<TokenId> random_text(Rng& rng, uint64_t count, uint32_t vocab) {
  std::vector<TokenId> tokens;
  for (uint64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(rng.below(vocab)));
  return tokens;
}

// Texts that end an answer where they occur in it; of most requests none.
std::vector<std::string> stop_texts_of(uint32_t number) {
  switch (number % 9) {
    case 4:
      return {"a", "the"};
    case 7:
      return {" and", "\n", "x", "7"};
    default:
      return {};
  }
}

// As a server reads it: the token that completes a stop text is the last one, and what the engine
// says until it has heard of that is not taken.
Answer read_until(RequestHandle& handle, TextAssembler text) {
  Answer answer;
  std::string said;
  StreamChunk chunk;
  while (handle.stream().wait(chunk, 60 * kUsPerSecond)) {
    for (const TokenId token : chunk.tokens) {
      if (text.stopped()) break;
      EXPECT_TRUE(text.push(token, said).ok());
      answer.tokens.push_back(token);
      if (text.stopped()) handle.cancel(FinishReason::kStop);
    }
    if (!chunk.end) continue;
    answer.end = *chunk.end;
    if (text.stopped()) answer.end.reason = FinishReason::kStop;  // or it had ended by itself
    return answer;
  }
  ADD_FAILURE() << "request " << handle.id().value << " says nothing";
  return answer;
}

bool same(const Answer& a, const Answer& b) {
  if (a.end.status.message() != b.end.status.message()) return false;
  const auto equal = [](const TokenLogprob& x, const TokenLogprob& y) {
    return x.token == y.token && x.logprob == y.logprob;
  };
  return a.tokens == b.tokens && a.end.reason == b.end.reason &&
         std::equal(a.logprobs.begin(), a.logprobs.end(), b.logprobs.begin(), b.logprobs.end(),
                    equal);
}

void add(const SchedulerStats& more, SchedulerStats& stats) {
  stats.drafts += more.drafts;
  stats.drafted_tokens += more.drafted_tokens;
  stats.accepted_tokens += more.accepted_tokens;
  stats.preemptions += more.preemptions;
  stats.prefix_hit_tokens += more.prefix_hit_tokens;
}

}  // namespace

EqualAnswers::EqualAnswers(const std::string& model_path, std::optional<CpuIsa> isa,
                           uint32_t requests, uint32_t longest)
    : requests_(requests), longest_(longest) {
  ModelOptions options;
  if (isa) {
    // Past the check of what this machine has: tiles may be emulated.
    options.backend_maker = [isa](const BackendOptions& wanted, ComputePool& pool) {
      return Result(make_cpu_backend(pool, *isa, wanted.precision));
    };
  }
  options.limits = {.rows = kStepTokens + kBatch, .logit_rows = kBatch + kEqualDrafts};
  auto loaded = LoadedModel::load(model_path, options, pool_);
  EXPECT_TRUE(loaded.ok()) << loaded.message();
  if (!loaded.ok()) return;
  model_ = std::move(*loaded);
  options.precision = Precision::kHigh;
  auto draft = LoadedModel::load(model_path, options, pool_);
  EXPECT_TRUE(draft.ok()) << draft.message();
  if (draft.ok()) draft_ = std::move(*draft);
  if (model_->forms() == nullptr || !model_->forms()->prepare().ok()) return;
  for (const FormSpec& spec : some_forms()) {
    auto form = model_->forms()->compile(spec);
    EXPECT_TRUE(form.ok()) << form.error().message;
    if (form.ok()) forms_.push_back(*form);
  }
}

// The same for a number, whoever guesses.
GenerationRequest EqualAnswers::request(uint32_t number) const {
  Rng rng(0x5EC0 + number);
  GenerationRequest wanted;
  Rng shared(number % 5);
  if (number % 2 == 0) wanted.prompt = random_text(shared, shared.between(36, 60), model_->vocab());
  std::vector<TokenId> own = random_text(rng, rng.between(1, 12), model_->vocab());
  for (uint64_t times = number % 3 == 0 ? 4 : 1; times > 0; --times) {
    wanted.prompt.insert(wanted.prompt.end(), own.begin(), own.end());
  }
  wanted.max_tokens = static_cast<uint32_t>(rng.between(2, longest_));
  wanted.salt = {number % 10 < 6 ? 1U : 2U, 1};
  SamplingParams& sampling = wanted.sampling;
  sampling.temperature = number % 4 < 2 ? 0.0F : 0.8F;
  sampling.seed = number;
  sampling.top_p = number % 8 == 3 ? 0.9F : 1.0F;
  sampling.top_k = number % 16 == 7 ? 20 : 0;
  sampling.repetition_penalty = number % 7 == 1 ? 1.2F : 1.0F;
  sampling.presence_penalty = number % 7 == 2 ? 0.5F : 0.0F;
  sampling.frequency_penalty = number % 7 == 3 ? 0.3F : 0.0F;
  if (number % 7 == 4) sampling.logit_bias = {{5, 3.0F}, {9, -4.0F}};
  sampling.min_tokens = number % 11 == 5 ? std::min(*wanted.max_tokens, 6U) : 0;
  sampling.stop_ids = model_->sampling_defaults().stop_ids;
  sampling.stop_ids.push_back(static_cast<TokenId>(40 + number % 20));
  sampling.logprobs = number % 5 == 0;
  sampling.top_logprobs = number % 10 == 0 ? 3 : 0;
  if (number % 6 == 5 && !forms_.empty()) wanted.form = forms_[number / 6 % forms_.size()];
  // A form that some of these cannot end: what was said before the failure counts as well.
  if (number % 12 == 11) sampling.banned = {'k', 'y', '.'};
  return wanted;
}

// At what follows the token at that position; ids count from 1 in the order of the numbers.
std::vector<TokenId> EqualAnswers::guess(Guesser guesser, RequestId id, uint32_t position) const {
  const auto number = static_cast<uint32_t>(id.value - 1);
  const std::vector<TokenId>& answer = expected_[number].tokens;
  const auto prompt = static_cast<uint32_t>(request(number).prompt.size());
  Rng rng(random_at(id.value, 3, position));
  std::vector<TokenId> drafts;
  const uint64_t count = rng.below(10);
  for (uint64_t i = 0; i < count; ++i) {
    const size_t at = position + 1 - prompt + i;
    const TokenId right = at < answer.size() ? answer[at] : 0;
    const auto other = static_cast<TokenId>((right + 1) % model_->vocab());
    const bool is_right =
        guesser == Guesser::kAlwaysRight || (guesser == Guesser::kRandom && rng.chance(2, 3));
    drafts.push_back(is_right ? right : other);
  }
  return drafts;
}

std::unique_ptr<StepRunner> EqualAnswers::runner_for(Guesser guesser) {
  auto cache = model_->make_kv(kBlocks);
  EXPECT_TRUE(cache.ok()) << cache.message();
  auto real = std::make_unique<ModelRunner>(model_, std::move(*cache), pool_, clock_);
  if (guesser == Guesser::kNobody || guesser == Guesser::kNgram || guesser == Guesser::kModel) {
    return real;
  }
  return std::make_unique<DraftingRunner>(
      std::move(real),
      [this, guesser](RequestId id, uint32_t position) { return guess(guesser, id, position); });
}

std::vector<Answer> EqualAnswers::answers_of(Guesser guesser, SchedulerStats& stats) {
  EngineOptions options;
  options.scheduler.pool_blocks = kBlocks;
  options.scheduler.max_batch = kBatch;
  options.scheduler.max_queue = 2 * requests_ + 16;
  options.scheduler.step_tokens = kStepTokens;
  options.scheduler.max_context = std::min(model_->decoder().max_context(), 512U);
  options.scheduler.vocab_size = model_->vocab();
  options.scheduler.step_drafts = guesser == Guesser::kNobody ? 0 : kEqualDrafts;
  options.stall_timeout_us = 3600 * kUsPerSecond;  // the streams are read one after the other
  options.speculation = Speculation::kNgram;
  if (guesser == Guesser::kModel && draft_ != nullptr) {
    options.speculation = Speculation::kAuto;
    // A pass that costs nothing, so that as much as possible is guessed; fewer blocks than the
    // large model has.
    options.make_draft_model = [this] { return DraftModel::create(draft_, kBlocks - 2, 0, pool_); };
  }
  auto engine = BatchInferenceEngine::create(runner_for(guesser), options, clock_);
  EXPECT_TRUE(engine.ok()) << engine.message();
  std::vector<RequestHandle> handles;
  for (uint32_t i = 0; i < requests_; ++i) {
    auto handle = (*engine)->submit(request(i), {});
    EXPECT_TRUE(handle.ok()) << handle.message();
    handles.push_back(std::move(*handle));
  }
  std::vector<Answer> answers;
  for (uint32_t i = 0; i < requests_; ++i) answers.push_back(read_answer(handles[i], i));
  const SchedulerStats now = (*engine)->snapshot().scheduler;
  add(now, stats);
  EXPECT_EQ(now.held_blocks, 0U) << "blocks are left behind";
  return answers;
}

Answer EqualAnswers::read_answer(RequestHandle& handle, uint32_t number) const {
  std::vector<std::string> stops = stop_texts_of(number);
  if (stops.empty() || model_->tokenizer() == nullptr) return read(handle);
  auto text = TextAssembler::create(model_->tokenizer()->tokenizer, {}, std::move(stops));
  EXPECT_TRUE(text.ok()) << text.message();
  return read_until(handle, std::move(*text));
}

EqualReport EqualAnswers::run() {
  EqualReport report;
  if (model_ == nullptr) return report;
  SchedulerStats plain;
  expected_ = answers_of(Guesser::kNobody, plain);
  EXPECT_EQ(plain.drafted_tokens, 0U);
  for (const Guesser guesser : kGuessers) {
    SchedulerStats stats;
    const std::vector<Answer> answers = answers_of(guesser, stats);
    add(stats, report.stats);
    for (uint32_t i = 0; i < requests_; ++i) {
      const bool ended_by_text = answers[i].end.reason == FinishReason::kStop;
      report.stop_texts += !stop_texts_of(i).empty() && ended_by_text ? 1 : 0;
    }
    if (guesser == Guesser::kModel) report.by_model = stats;
    for (uint32_t i = 0; i < requests_; ++i) {
      ++report.requests;
      if (same(answers[i], expected_[i])) continue;
      if (report.different++ > 0) continue;
      report.first_difference = fmt::format(
          "guesser {}, request {}: {} tokens ({}), without guesses {} ({})",
          static_cast<int>(guesser), i, answers[i].tokens.size(), name_of(answers[i].end.reason),
          expected_[i].tokens.size(), name_of(expected_[i].end.reason));
    }
  }
  return report;
}

}  // namespace skein::testing
