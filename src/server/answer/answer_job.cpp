#include "server/answer/answer_job.h"

#include <algorithm>
#include <ctime>
#include <span>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/patience.h"
#include "base/rng.h"
#include "server/answer/job_parts.h"
#include "server/api/form_fields.h"
#include "server/store/random.h"

namespace skein {
namespace {

api::AnswerOptions take_options(AnswerRequest& request) {
  return std::visit([](auto& of_kind) { return std::move(of_kind.options); }, request);
}

FinishedRequest describe(const Call& call, const std::string& id, bool stream) {
  FinishedRequest about = describe_call(call, id);
  about.streamed = stream;
  return about;
}

}  // namespace

AnswerJob::AnswerJob(ServerContext& context, Call call, const api::AnswerKind& kind,
                     AnswerRequest request, std::unique_ptr<AnswerSink> sink)
    : context_(context),
      call_(std::move(call)),
      kind_(kind),
      is_background_(sink->is_background()),
      wanted_(take_options(request)),
      request_(std::move(request)),
      memory_(std::move(call_.request.memory)),
      identity_{std::string(kind.id_prefix) + random_hex(16),
                static_cast<int64_t>(std::time(nullptr)),
                {}},
      arrived_us_(context.clock.now()),
      account_({context.clock, context.limiter, context.metrics, context.store.usage(),
                context.settings.log_request},
               call_.principal, describe(call_, identity_.id, wanted_.stream)),
      output_(std::move(sink), kind, wanted_.stream, context.memory, call_.principal->key_id) {
  call_.request = {};
  if (wanted_.seed) {
    seed_ = *wanted_.seed;
  } else {
    fill_random(std::as_writable_bytes(std::span(&seed_, 1)));
  }
}

void AnswerJob::begin() try {
  api::Parsed<std::string> model = model_for(context_, *call_.principal, wanted_.model);
  if (!model.ok()) return fail(model.error());
  identity_.model = std::move(*model);
  account_.set_model(identity_.model);
  // The sink outlives its callbacks, and this must not outlive itself through them.
  output_.open(
      context_.settings.keepalive_interval,
      [self = weak_from_this()] {
        if (auto job = self.lock()) job->cancel();
      },
      [self = weak_from_this()] {
        if (auto job = self.lock()) job->context_.delivery.post(job);
      });
  context_.live.add(identity_.id, call_.principal->key_id, weak_from_this());
  const auto here = std::this_thread::get_id();
  context_.models.acquire(identity_.model,
                          [self = shared_from_this(), here](Result<ModelLease> lease) {
                            self->on_model(std::move(lease), std::this_thread::get_id() == here);
                          });
} catch (const std::exception& error) {  // memory is short
  log_error("{}: {}", identity_.id, error.what());
  give_up();
}

void AnswerJob::on_model(Result<ModelLease> lease, bool at_once) try {
  if (!lease.ok()) {
    account_.reject(Rejection::kUnavailable);
    return fail(api::model_load_failed(identity_.model, lease.status()));
  }
  auto held = std::make_shared<ModelLease>(std::move(*lease));
  if (at_once && !is_background_) return submit(held);
  // The threads that load models and that run batches have other work: text goes elsewhere.
  const auto drop = [self = shared_from_this()] { self->fail(self->context_.no_worker()); };
  const auto run = [self = shared_from_this(), held] { self->submit(held); };
  if (!context_.workers.post(call_.priority, run, drop)) drop();
} catch (const std::exception& error) {  // memory is short
  log_error("{}: {}", identity_.id, error.what());
  give_up();
}

void AnswerJob::submit(const std::shared_ptr<ModelLease>& lease) try {
  bool cancelled = false;
  {
    const std::lock_guard lock(mutex_);
    lease_ = std::move(*lease);
    cancelled = cancelled_;
  }
  if (cancelled) return fail(cancelled_error());
  const ServedModel& served = **lease_;
  auto prompts = make_prompts(context_, served, request_, kind_.prompt_field);
  if (!prompts.ok()) return fail(prompts.error());
  if (const auto error = take_shape(prompts->front())) return fail(*error);
  wanted_choices_ = static_cast<uint32_t>(prompts->size() * wanted_.n);
  if (const auto error = check(*prompts)) return fail(*error);
  output_.set_writer(kind_.make_writer(
      {.identity = identity_,
       .wanted = wanted_,
       .tokenizer = served.model().tokenizer()->tokenizer,
       .choices = wanted_choices_,
       .prompt_ids = prompts->front().ids,
       .sampling = wanted_.sampling_params(served.model().sampling_defaults(), seed_)}));
  if (const Status status = submit_choices(*prompts); !status.ok()) {
    return fail(submit_error(status));
  }
  request_ = {};
  memory_.reset();
  submitted_ = true;
  context_.delivery.post(shared_from_this());
} catch (const std::exception& error) {  // memory is short
  log_error("{}: {}", identity_.id, error.what());
  give_up();
}

// Compiles what the answer must look like, and says what of it cannot be enforced.
std::optional<api::Error> AnswerJob::take_shape(const PromptTokens& prompt) {
  if (wanted_.timeout_us && context_.clock.now() - arrived_us_ >= *wanted_.timeout_us) {
    return api::deadline_exceeded();
  }
  auto shape = make_shape(**lease_, request_, wanted_, prompt, tenant());
  if (!shape.ok()) return shape.error();
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
std::optional<api::Error> AnswerJob::check(const std::vector<PromptTokens>& prompts) {
  const ServedModel& served = **lease_;
  if (auto error = check_ids(wanted_.sampling, served.vocab())) return error;
  const uint64_t limit = served.max_request_tokens();
  const uint64_t answer = wanted_.max_tokens.value_or(1);
  uint64_t prompt_tokens = 0;
  for (const PromptTokens& prompt : prompts) {
    prompt_tokens += prompt.ids.size();
    if (prompt.ids.size() + answer <= limit) continue;
    account_.reject(Rejection::kTooLarge);
    api::Error error = api::context_length_exceeded(prompt.ids.size(), answer, limit);
    error.param = kind_.prompt_field;
    return error;
  }
  return account_.reserve(prompt_tokens, wanted_choices_, wanted_.max_tokens);
}

Status AnswerJob::submit_choices(const std::vector<PromptTokens>& prompts) {
  ServedModel& served = **lease_;
  const SamplingParams sampling =
      wanted_.sampling_params(served.model().sampling_defaults(), seed_);
  const std::optional<uint32_t> share = account_.answer_tokens();
  for (uint32_t index = 0; index < wanted_choices_; ++index) {
    const PromptTokens& prompt = prompts[index / wanted_.n];
    const bool on_account = share && prompt.ids.size() + *share < served.max_request_tokens();
    SKEIN_ASSIGN(
        auto completion,
        Completion::start(served, request_of(prompt, index, sampling, on_account),
                          reading(shape_, wanted_, prompt, mix64(seed_ ^ index)),
                          [self = shared_from_this()] { self->context_.delivery.post(self); }));
    const std::lock_guard lock(mutex_);
    Choice& choice = choices_.emplace_back();
    choice.completion = std::move(completion);
    choice.index = index;
    choice.counts_prompt = index % wanted_.n == 0;
    choice.on_account = on_account;
    account_.begin_choice();
    ++unfinished_;
    if (cancelled_) choice.completion->cancel();
  }
  return {};
}

GenerationRequest AnswerJob::request_of(const PromptTokens& prompt, uint32_t index,
                                        const SamplingParams& sampling, bool on_account) const {
  GenerationRequest request;
  request.prompt = prompt.ids;
  request.sampling = sampling;
  request.sampling.choice = index;
  request.max_tokens = on_account ? account_.answer_tokens() : wanted_.max_tokens;
  request.priority = call_.priority;
  if (!context_.settings.share_prefixes) request.salt = call_.principal->salt;
  request.tenant = tenant();
  request.background = is_background_;
  request.sibling = index;
  request.siblings = wanted_choices_;
  if (wanted_.timeout_us) {
    request.timeout_us = *wanted_.timeout_us - (context_.clock.now() - arrived_us_);
  }
  request.form = shape_.form;
  request.thought_budget = shape_.thought_budget;
  request.reports_progress = wanted_.return_progress && wanted_.stream;
  return request;
}

uint64_t AnswerJob::tenant() const {
  return tenant_of(*call_.principal, is_background_);
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
  if (const auto error = failure(end.how)) return fail(*error), false;
  choice.has_finished = true;
  choice.reason = end.how.reason;
  --unfinished_;
  if (choice.on_account && choice.reason == FinishReason::kLength) {
    used_up_ = true;  // no end of its own: the answer's is an error
  } else {
    output_.finish(choice.index, end, {account_.usage()});
  }
  return true;
}

// Why a choice did not end well; nothing when it did.
std::optional<api::Error> AnswerJob::failure(const GenerationEnd& end) {
  if (auto early = early_end(end.reason)) return early;
  if (end.reason != FinishReason::kError) return std::nullopt;
  if (shape_.form && end.status.code() == Code::kInvalidArgument) {
    return api::constraint_conflict(shape_.form_field);
  }
  if (shape_.form && end.status.code() == Code::kOutOfRange) {
    return api::form_too_complex(shape_.form_field, end.status.message());
  }
  log_error("{} failed: {}", identity_.id, end.status.message());
  return submit_error(end.status);
}

// Tells the client why the engine refused the request, or failed.
api::Error AnswerJob::submit_error(const Status& status) {
  return engine_error(context_, **lease_, account_, tenant(), wanted_choices_, status);
}

// False: the store has the answer, and the delivery comes again when it has said what became of it.
// An answer that cannot be kept is none the worse: it says so in `store`.
bool AnswerJob::keep() {
  if (wanted_.kept == nullptr || store_has_answered_) return true;
  if (std::exchange(is_being_kept_, true)) return false;
  output_.flush();  // all but the end
  api::KeptAnswer answer = output_.kept({account_.usage(), account_.timings()});
  context_.store.responses().add(
      {identity_.id, call_.principal->key_id, wanted_.kept->previous, wanted_.kept->input,
       std::move(answer.output), std::move(answer.head), std::move(answer.tail)},
      [self = shared_from_this()](const Status& status) { self->on_kept(status); });
  return store_has_answered_;
}

void AnswerJob::on_kept(const Status& status) {
  if (!status.ok()) log_warning("{} is not kept: {}", identity_.id, status.message());
  was_kept_ = status.ok();
  store_has_answered_ = true;
  context_.delivery.post(shared_from_this());
}

void AnswerJob::complete() {
  if (!keep()) return;
  if (wanted_.kept != nullptr) output_.set_kept(was_kept_);
  output_.end({account_.usage(), account_.timings()});
  account_.settle(choices_.front().reason);
  if (!output_.flush()) {  // the rest goes when the reader has caught up
    if (!output_.has_memory()) fail(output_.memory_error());
    return;
  }
  output_.complete(identity_.id);
  close(200);
}

// The end of the whole answer, badly: a plain error while nothing has left, else a last frame.
void AnswerJob::fail(const api::Error& error) {
  if (closed_) return;
  cancel();
  FinishReason reason = FinishReason::kError;
  if (error.status == 408) reason = FinishReason::kTimedOut;
  if (error.status == 499) reason = FinishReason::kClient;
  account_.settle(reason);
  const bool in_stream = output_.fail(identity_.id, error);
  close(in_stream ? 200 : error.status);
}

void AnswerJob::give_up() noexcept {
  const PatientScope patient;  // a line of a batch waits for its end
  try {
    fail(api::overloaded(1));
  } catch (const std::exception&) {
    output_.abandon();  // not even that can be said
    try {
      close(500);
    } catch (const std::exception&) {  // everything was released, and could not be logged
    }
  }
}

void AnswerJob::close(int status) {
  if (std::exchange(closed_, true)) return;
  context_.live.remove(identity_.id);
  output_.release();
  memory_.reset();
  {
    const std::lock_guard lock(mutex_);
    choices_.clear();  // and with them the streams that hold this
    lease_.reset();
  }
  account_.log(status);
}

void AnswerJob::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  for (Choice& choice : choices_) choice.completion->cancel();
}

}  // namespace skein
