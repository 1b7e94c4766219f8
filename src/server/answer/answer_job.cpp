#include "server/answer/answer_job.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/rng.h"
#include "server/api/form_fields.h"
#include "server/store/random.h"

namespace skein {
namespace {

api::AnswerOptions take_options(AnswerRequest& request) {
  return std::visit([](auto& of_kind) { return std::move(of_kind.options); }, request);
}

bool streams(const AnswerRequest& request) {
  return std::visit([](const auto& of_kind) { return of_kind.options.stream; }, request);
}

}  // namespace

AnswerJob::AnswerJob(ServerContext& context, Call call, const api::AnswerKind& kind,
                     AnswerRequest request, std::unique_ptr<AnswerSink> sink)
    : Job(context, std::move(call), kind.id_prefix, sink->is_background(),
          {.streamed = streams(request)}),
      kind_(kind),
      wanted_(take_options(request)),
      request_(std::move(request)),
      output_(std::move(sink), kind, wanted_.stream, context.memory, call_.principal->key_id) {
  if (wanted_.seed) {
    seed_ = *wanted_.seed;
  } else {
    fill_random(std::as_writable_bytes(std::span(&seed_, 1)));
  }
}

void AnswerJob::open(std::function<void()> hung_up) {
  output_.open(context_.settings.keepalive_interval, std::move(hung_up),
               [self = weak_from_this(), &delivery = context_.delivery] {
                 if (auto job = self.lock()) delivery.post(std::move(job));
               });
}

// What make_shape() may have to compile.
bool AnswerJob::has_form() const {
  if (wanted_.form) return true;
  const auto* chat = std::get_if<api::ChatRequest>(&request_);
  if (chat == nullptr) return false;
  const bool calls = !chat->tools.empty() && chat->tool_choice != api::ToolChoice::kNone;
  return calls || chat->reasoning_budget;
}

std::optional<api::Error> AnswerJob::start() {
  const ServedModel& served = **lease_;
  auto prompts = make_prompts(context_, served, request_, kind_.prompt_field);
  if (!prompts.ok()) return prompts.error();
  prompts_ = std::move(*prompts);
  uint64_t prompt_tokens = 0;
  for (const PromptTokens& prompt : prompts_) prompt_tokens += prompt.ids.size();
  account_.set_text(prompt_tokens);
  if (auto error = take_shape(prompts_.front())) return error;
  count_ = static_cast<uint32_t>(prompts_.size() * wanted_.n);
  if (auto error = check(prompt_tokens)) return error;
  output_.set_writer(kind_.make_writer(
      {.identity = identity_,
       .wanted = wanted_,
       .tokenizer = served.model().tokenizer()->tokenizer,
       .choices = count_,
       .prompt_ids = prompts_.front().ids,
       .sampling = wanted_.sampling_params(served.model().sampling_defaults(), seed_)}));
  request_ = {};
  memory_.reset();
  return submit_more();
}

// Compiles what the answer must look like, and says what of it cannot be enforced.
std::optional<api::Error> AnswerJob::take_shape(const PromptTokens& prompt) {
  if (is_late()) return api::deadline_exceeded();
  auto shape = make_shape(**lease_, request_, wanted_, prompt, tenant());
  if (!shape.ok()) return shape.error();
  if (shape->thought_budget && !wanted_.sampling.allowed.empty()) {
    return api::invalid_field("allowed_token_ids",
                              "A budget of thoughts writes tokens that are not among these.");
  }
  const std::lock_guard lock(mutex_);
  shape_ = std::move(*shape);
  if (wanted_.form) wanted_.form->spec = {};  // its text is as long as the request
  wanted_.sampling.banned.insert(wanted_.sampling.banned.end(), shape_.banned.begin(),
                                 shape_.banned.end());
  if (!shape_.form || shape_.form->relaxed.empty()) return std::nullopt;
  output_.add_header({"x-skein-relaxed", api::relaxed_header(shape_.form->relaxed)});
  return std::nullopt;
}

// Before anything is queued: what can never fit says so with both numbers, and the key must have
// the tokens.
std::optional<api::Error> AnswerJob::check(uint64_t prompt_tokens) {
  const ServedModel& served = **lease_;
  if (auto error = check_ids(wanted_.sampling, served.vocab())) return error;
  const uint64_t limit = served.max_request_tokens();
  const uint64_t answer = wanted_.max_tokens.value_or(1);
  for (const PromptTokens& prompt : prompts_) {
    if (prompt.ids.size() + answer <= limit) continue;
    account_.reject(Rejection::kTooLarge);
    api::Error error = api::context_length_exceeded(prompt.ids.size(), answer, limit);
    error.param = kind_.prompt_field;
    return error;
  }
  return account_.reserve(prompt_tokens, count_, wanted_.max_tokens);
}

// As many as the door lets in. Each of the others comes when one of them has ended.
std::optional<api::Error> AnswerJob::submit_more() {
  while (choices_.size() < count_) {
    if (is_late()) return api::deadline_exceeded();
    const Status status = submit_choice(static_cast<uint32_t>(choices_.size()));
    if (status.ok()) {
      if (ended_ > 0) --ended_;
      continue;
    }
    const bool may_wait = status.code() == Code::kResourceExhausted && unfinished_ > 0;
    return may_wait ? std::nullopt : std::optional(engine_error(status));
  }
  prompts_ = {};
  return std::nullopt;
}

Status AnswerJob::submit_choice(uint32_t index) {
  ServedModel& served = **lease_;
  const PromptTokens& prompt = prompts_[index / wanted_.n];
  const std::optional<uint32_t> share = account_.answer_tokens();
  const bool on_account = share && prompt.ids.size() + *share < served.max_request_tokens();
  SKEIN_ASSIGN(auto completion,
               Completion::start(served, request_of(prompt, index, on_account),
                                 reading(shape_, wanted_, prompt, mix64(seed_ ^ index)), news()));
  const std::lock_guard lock(mutex_);
  Choice& choice = choices_.emplace_back();
  choice.completion = std::move(completion);
  choice.index = index;
  choice.counts_prompt = index % wanted_.n == 0;
  choice.on_account = on_account;
  account_.begin_choice();
  ++unfinished_;
  if (cancelled_) choice.completion->cancel();
  return {};
}

GenerationRequest AnswerJob::request_of(const PromptTokens& prompt, uint32_t index,
                                        bool on_account) const {
  GenerationRequest request = engine_request(prompt.ids);
  request.sampling = wanted_.sampling_params((*lease_)->model().sampling_defaults(), seed_);
  request.sampling.choice = index;
  request.max_tokens = on_account ? account_.answer_tokens() : wanted_.max_tokens;
  request.follows = ended_ > 0;
  request.form = shape_.form;
  request.thought_budget = shape_.thought_budget;
  request.speculation = wanted_.speculation;
  request.reports_progress = wanted_.return_progress && wanted_.stream;
  return request;
}

void AnswerJob::advance() {
  if (!submitted_ || closed_) return;
  // A reader that is behind leaves its tokens, as ids, in the engine's streams.
  if (output_.is_stalled() && !output_.flush()) return;
  for (Choice& choice : choices_) {
    if (choice.has_finished) continue;
    if (!advance_choice(choice)) return;
    if (!output_.flush_many()) break;
  }
  if (!output_.has_memory()) return fail(output_.memory_error());
  if (output_.is_stalled()) return;
  if (ended_ > 0) {
    if (const auto error = submit_more()) return fail(*error);
  }
  if (unfinished_ == 0 && used_up_) {
    const Usage& used = account_.usage();
    return fail(api::rate_limit_used_up({used.prompt_tokens, used.completion_tokens}));
  }
  if (unfinished_ == 0) return complete();
  output_.flush();
  if (!output_.has_memory()) fail(output_.memory_error());
}

// False when the whole answer has ended with this.
bool AnswerJob::advance_choice(Choice& choice) {
  while (!choice.has_finished && choice.completion->take(events_)) {
    if (choice.counts_prompt) account_.set_cached(choice.index, choice.completion->cached_tokens());
    // Its figures are known from here on, also for the content that comes with it.
    const auto* end = events_.empty() ? nullptr : std::get_if<AnswerEnd>(&events_.back());
    if (end != nullptr) account_.end_choice(choice.index, end->how, choice.counts_prompt);
    for (const AnswerEvent& event : events_) {
      if (const auto* progress = std::get_if<AnswerProgress>(&event)) {
        output_.progress(progress->computed_tokens, account_.usage().prompt_tokens);
      } else if (const auto* how = std::get_if<AnswerEnd>(&event)) {
        if (!finish_choice(choice, *how)) return false;
      } else {
        std::visit([&](const auto& part) { write_part(choice, part); }, event);
      }
    }
  }
  return true;
}

// A piece of a thought, of the content or of a call; progress and the end are not written here.
template <class Part>
void AnswerJob::write_part(const Choice& choice, const Part& part) {
  if constexpr (requires { part.tokens; }) {
    account_.add_tokens(choice.index, part.tokens.size());
    if (std::is_same_v<Part, AnswerReasoning>) account_.add_reasoning_tokens(part.tokens.size());
    if (std::is_same_v<Part, AnswerCallEnd>) account_.add_call(shape_.call_format);
    api::Figures now{account_.usage()};
    if (wanted_.timings_per_token) now.timings = account_.timings();
    output_.write(choice.index, part, now);
  }
}

// False when it did not end well, and with it the whole answer.
bool AnswerJob::finish_choice(Choice& choice, const AnswerEnd& end) {
  if (const auto error = choice_failure(end.how)) return fail(*error), false;
  choice.has_finished = true;
  choice.reason = end.how.reason;
  --unfinished_;
  ++ended_;
  if (choice.on_account && choice.reason == FinishReason::kLength) {
    used_up_ = true;  // no end of its own: the answer's is an error
  } else {
    output_.finish(choice.index, end, {account_.usage()});
  }
  return true;
}

// Why a choice did not end well; nothing when it did.
std::optional<api::Error> AnswerJob::choice_failure(const GenerationEnd& end) {
  if (shape_.form && end.reason == FinishReason::kError) {
    if (end.status.code() == Code::kInvalidArgument) {
      return api::constraint_conflict(shape_.form_field);
    }
    if (end.status.code() == Code::kOutOfRange) {
      return api::form_too_complex(shape_.form_field, end.status.message());
    }
  }
  return failure(end);
}

// False: the store has the answer, and the delivery comes again when it has said what became of it,
// or has not for too long: a disk that hangs keeps nobody. An answer that cannot be kept is none
// the worse: it says so in `store`.
bool AnswerJob::keep() {
  if (wanted_.kept == nullptr) return true;
  if (keeping_ == Keeping::kNotAsked) {
    give_to_store();
  } else if (std::chrono::steady_clock::now() >= keep_by_) {
    Keeping asked = Keeping::kAsked;
    keeping_.compare_exchange_strong(asked, Keeping::kNotKept);
  }
  return keeping_ != Keeping::kAsked;
}

void AnswerJob::give_to_store() {
  output_.flush();  // all but the end
  keeping_ = Keeping::kAsked;
  keep_by_ = std::chrono::steady_clock::now() + context_.settings.keep_patience;
  context_.delivery.remind(shared_from_this(), keep_by_);
  api::KeptAnswer answer = output_.kept({account_.usage(), account_.timings()});
  context_.store.responses().add(
      {identity_.id, call_.principal->key_id, wanted_.kept->previous, wanted_.kept->input,
       std::move(answer.output), std::move(answer.head), std::move(answer.tail)},
      [self = shared_from_this(), this](const Status& status) { on_kept(status); });
}

void AnswerJob::on_kept(const Status& status) {
  Keeping asked = Keeping::kAsked;
  const Keeping now = status.ok() ? Keeping::kKept : Keeping::kNotKept;
  if (keeping_.compare_exchange_strong(asked, now)) {
    return context_.delivery.post(shared_from_this());
  }
  // Too late: its client has been told that it is not kept.
  if (status.ok()) {
    context_.store.responses().remove(identity_.id, {call_.principal->key_id},
                                      [](const Status&) {});
  }
}

void AnswerJob::complete() {
  if (!keep()) return;
  if (wanted_.kept != nullptr) output_.set_kept(keeping_ == Keeping::kKept);
  output_.end({account_.usage(), account_.timings()});
  account_.settle(choices_.front().reason);
  if (!output_.flush()) {  // the rest goes when the reader has caught up
    if (!output_.has_memory()) fail(output_.memory_error());
    return;
  }
  output_.complete(identity_.id);
  close(200);
}

bool AnswerJob::send_error(const api::Error& error) {
  return output_.fail(identity_.id, error);
}

void AnswerJob::release() {
  output_.release();
  prompts_ = {};
  const std::lock_guard lock(mutex_);
  choices_.clear();
}

void AnswerJob::cancel_running() {
  for (Choice& choice : choices_) choice.completion->cancel();
}

void AnswerJob::describe(RequestExplanation& explanation, std::vector<Running>& running) const {
  explanation.seed = seed_;
  if (lease_) {
    explanation.sampling = wanted_.sampling_params((*lease_)->model().sampling_defaults(), seed_);
  }
  if (shape_.form) explanation.relaxed = shape_.form->relaxed;
  explanation.has_form = shape_.form != nullptr;
  explanation.call_format = shape_.call_format;
  for (const Choice& choice : choices_) running.push_back({choice.index, choice.completion->id()});
}

}  // namespace skein
