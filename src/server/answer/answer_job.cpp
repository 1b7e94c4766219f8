// From a parsed request to the engine.
#include "server/answer/answer_job.h"

#include <algorithm>
#include <ctime>
#include <span>
#include <thread>
#include <utility>

#include "base/log.h"
#include "server/api/message_stream.h"
#include "server/store/random.h"

namespace skein {
namespace {

std::string_view id_prefix(AnswerForm form) {
  switch (form) {
    case AnswerForm::kChat:
      return "chatcmpl-";
    case AnswerForm::kCompletion:
      return "cmpl-";
    case AnswerForm::kMessage:
      return "msg_";
  }
  return "";
}

api::SamplingDefaults defaults_of(const SamplingParams& params) {
  api::SamplingDefaults defaults;
  defaults.temperature = params.temperature;
  defaults.top_p = params.top_p;
  defaults.top_k = params.top_k;
  defaults.min_p = params.min_p;
  defaults.repetition_penalty = params.repetition_penalty;
  return defaults;
}

}  // namespace

api::Error AnswerJob::cancelled_error() {
  return {.status = 499, .message = "The request was cancelled.", .code = "cancelled"};
}

AnswerJob::AnswerJob(ServerContext& context, Caller caller, AnswerSpec spec)
    : context_(context),
      caller_(std::move(caller)),
      spec_(std::move(spec)),
      arrived_(context.clock.now()),
      memory_(context.memory, caller_.principal->key_id) {
  identity_.id = std::string(id_prefix(spec_.form)) + random_hex(16);
  identity_.created = static_cast<int64_t>(std::time(nullptr));
  if (spec_.generation.seed) {
    seed_ = *spec_.generation.seed;
  } else {
    fill_random(std::as_writable_bytes(std::span(&seed_, 1)));
  }
}

void AnswerJob::begin(http::Responder responder) {
  responder_ = std::move(responder);
  start();
}

void AnswerJob::begin(LineDone done) {
  done_ = std::move(done);
  start();
}

void AnswerJob::start() try {
  if (!find_model()) return;
  if (responder_) start_answer();
  acquire();
} catch (const std::exception& error) {  // memory is short
  log_error("{}: {}", identity_.id, error.what());
  give_up();
}

void AnswerJob::start_answer() {
  if (spec_.generation.stream) {
    // Keepalives go out while the model loads or the workers are busy, and from then on an error
    // has to be a frame.
    writer_ = make_stream_writer(writer_options());
    http::StreamHead head;
    head.headers = {{"Cache-Control", "no-cache"}};
    head.keepalive =
        spec_.form == AnswerForm::kMessage ? std::string(api::kPingEvent) : ": keepalive\n\n";
    head.keepalive_interval = context_.keepalive_interval;
    responder_->start(std::move(head));
    // The responder outlives its callbacks, and this must not outlive itself through them.
    responder_->on_ready([self = weak_from_this()] {
      if (auto job = self.lock()) job->context_.delivery.post(job);
    });
  }
  responder_->on_hangup([self = weak_from_this()] {
    if (auto job = self.lock()) job->cancel();
  });
}

// False: there is none, and the client knows.
bool AnswerJob::find_model() {
  api::Parsed<std::string> model = model_for(context_, *caller_.principal, spec_.generation.model);
  if (!model.ok()) return fail(model.error()), false;
  identity_.model = std::move(*model);
  return true;
}

void AnswerJob::acquire() {
  context_.live.add(identity_.id, caller_.principal->key_id, weak_from_this());
  const auto here = std::this_thread::get_id();
  context_.models.acquire(identity_.model,
                          [self = shared_from_this(), here](Result<ModelLease> lease) {
                            self->on_model(std::move(lease), std::this_thread::get_id() == here);
                          });
}

void AnswerJob::on_model(Result<ModelLease> lease, bool at_once) try {
  if (!lease.ok()) {
    context_.metrics.on_rejected(identity_.model, Rejection::kUnavailable);
    return fail(api::model_load_failed(identity_.model, lease.status()));
  }
  auto held = std::make_shared<ModelLease>(std::move(*lease));
  if (at_once && responder_) return submit(held);
  // The threads that load models and that run batches have other work: text goes elsewhere.
  const auto drop = [self = shared_from_this()] { self->fail(self->context_.no_worker()); };
  const auto run = [self = shared_from_this(), held] { self->submit(held); };
  if (!context_.workers.post(caller_.priority, run, drop)) drop();
} catch (const std::exception& error) {  // memory is short
  log_error("{}: {}", identity_.id, error.what());
  give_up();
}

void AnswerJob::submit(const std::shared_ptr<ModelLease>& lease) {
  try {
    make_requests(std::move(*lease));
  } catch (const std::exception& error) {  // memory is short
    log_error("{}: {}", identity_.id, error.what());
    give_up();
  }
}

void AnswerJob::make_requests(ModelLease lease) {
  bool cancelled = false;
  {
    const std::lock_guard lock(mutex_);
    lease_ = std::move(lease);
    cancelled = cancelled_;
  }
  if (cancelled) return fail(cancelled_error());
  api::Parsed<std::vector<PromptTokens>> prompts = spec_.make_prompts(**lease_);
  if (!prompts.ok()) return fail(prompts.error());
  if (auto error = check_ids()) return fail(*error);
  if (auto error = check_size(*prompts)) {
    context_.metrics.on_rejected(identity_.model, Rejection::kTooLarge);
    return fail(*error);
  }
  if (auto error = check_rate(*prompts)) {
    context_.metrics.on_rejected(identity_.model, Rejection::kRateLimit);
    return fail(*error);
  }
  for (const PromptTokens& prompt : *prompts) prompt_tokens_ += prompt.ids.size();
  if (!spec_.generation.stream) {
    AnswerWriter::Options options = writer_options();
    if (spec_.generation.return_token_ids) options.prompt_token_ids = prompts->front().ids;
    writer_ = make_whole_writer(std::move(options), prompts->size() * spec_.generation.n);
  }
  if (const Status status = submit_choices(std::move(*prompts)); !status.ok()) {
    return fail(submit_error(status));
  }
  spec_.make_prompts = nullptr;  // and the text that it holds
  caller_.memory.reset();
  submitted_ = true;
  context_.delivery.post(shared_from_this());
}

AnswerWriter::Options AnswerJob::writer_options() const {
  const api::Generation& wanted = spec_.generation;
  AnswerWriter::Options options;
  options.form = spec_.form;
  options.identity = identity_;
  options.extras = {wanted.include_usage, wanted.continuous_usage, wanted.return_token_ids};
  options.logprobs = wanted.sampling.logprobs;
  options.token_ids = wanted.return_token_ids;
  return options;
}

// Token ids can be checked only now that the vocabulary is known.
std::optional<api::Error> AnswerJob::check_ids() const {
  const uint32_t vocab = (*lease_)->vocab();
  const auto unknown = [&](const char* field, TokenId id) {
    return api::invalid_field(
        field, fmt::format("The vocabulary has {} tokens; {} is not one of them.", vocab, id));
  };
  const SamplingParams& sampling = spec_.generation.sampling;
  for (const auto& [id, bias] : sampling.logit_bias) {
    if (static_cast<uint32_t>(id) >= vocab) return unknown("logit_bias", id);
  }
  for (const TokenId id : sampling.stop_ids) {
    if (static_cast<uint32_t>(id) >= vocab) return unknown("stop_token_ids", id);
  }
  return std::nullopt;
}

// Before anything is queued: what can never fit says so with both numbers.
std::optional<api::Error> AnswerJob::check_size(const std::vector<PromptTokens>& prompts) const {
  const uint64_t limit = (*lease_)->max_request_tokens();
  const uint64_t answer = spec_.generation.max_tokens.value_or(1);
  for (const PromptTokens& prompt : prompts) {
    if (prompt.ids.size() + answer > limit) {
      api::Error error = api::context_length_exceeded(prompt.ids.size(), answer, limit);
      if (spec_.form == AnswerForm::kCompletion) error.param = "prompt";
      return error;
    }
  }
  return std::nullopt;
}

std::optional<api::Error> AnswerJob::check_rate(const std::vector<PromptTokens>& prompts) {
  const std::optional<uint32_t> max_tokens = spec_.generation.max_tokens;
  const uint64_t choices = uint64_t{spec_.generation.n} * prompts.size();
  uint64_t prompt_tokens = 0;
  for (const PromptTokens& prompt : prompts) prompt_tokens += prompt.ids.size();
  const Admission admission =
      context_.limiter.admit(*caller_.principal, prompt_tokens + choices * max_tokens.value_or(1),
                             max_tokens ? RateLimiter::Take::kExactly : RateLimiter::Take::kAll);
  if (!admission.admitted()) return rate_limit_error(admission);
  reserved_tokens_ = admission.reserved;
  if (reserved_tokens_ > 0 && !max_tokens) {
    const uint64_t share = (reserved_tokens_ - prompt_tokens) / choices;
    share_tokens_ = static_cast<uint32_t>(std::min<uint64_t>(share, UINT32_MAX));
  }
  return std::nullopt;
}

Status AnswerJob::submit_choices(std::vector<PromptTokens> prompts) {
  const ServedModel& served = **lease_;
  const api::Generation& wanted = spec_.generation;
  const SamplingParams& defaults = served.model().sampling_defaults();
  SamplingParams sampling = wanted.sampling_params(defaults_of(defaults), seed_, defaults.stop_ids);
  wanted_choices_ = static_cast<uint32_t>(prompts.size() * wanted.n);
  std::optional<TimeUs> timeout_us = wanted.timeout_us;
  if (!timeout_us) timeout_us = caller_.timeout_us;
  for (size_t p = 0; p < prompts.size(); ++p) {
    for (uint32_t c = 0; c < wanted.n; ++c) {
      GenerationRequest request;
      request.prompt = prompts[p].ids;
      request.sampling = sampling;
      request.sampling.choice = static_cast<uint32_t>(p * wanted.n + c);
      request.max_tokens = wanted.max_tokens;
      const bool on_account =
          share_tokens_ && prompts[p].ids.size() + *share_tokens_ < served.max_request_tokens();
      if (on_account) request.max_tokens = share_tokens_;
      request.priority = caller_.priority;
      if (!context_.share_prefixes) request.salt = caller_.principal->salt;
      request.tenant = tenant();
      request.background = done_ != nullptr;
      request.sibling = request.sampling.choice;
      request.siblings = wanted_choices_;
      if (timeout_us) request.timeout_us = *timeout_us - (context_.clock.now() - arrived_);
      request.reports_progress = wanted.return_progress && wanted.stream;
      ReadOptions read{{.skip_special = wanted.skip_special_tokens}, wanted.stop, prompts[p].echo};
      SKEIN_ASSIGN(auto completion, Completion::start(**lease_, std::move(request), std::move(read),
                                                      [self = shared_from_this()] {
                                                        self->context_.delivery.post(self);
                                                      }));
      const std::lock_guard lock(mutex_);
      Choice& choice = choices_.emplace_back();
      choice.completion = std::move(completion);
      choice.on_account = on_account;
      choice.result.index = static_cast<uint32_t>(choices_.size() - 1);
      choice.prompt = static_cast<uint32_t>(p);
      ++unfinished_;
      if (cancelled_) choice.completion->cancel();
    }
  }
  return {};
}

// Of the key's identity, whoever shares its prefixes. Lines of its batches are another tenant: they
// take nothing of what the key itself may have waiting.
uint64_t AnswerJob::tenant() const {
  const uint64_t key = caller_.principal->salt.low;
  return done_ ? ~key : key;
}

// What the engine said at its door, in the client's words.
api::Error AnswerJob::submit_error(const Status& status) {
  if (status.code() == Code::kResourceExhausted) {
    if (const auto retry_us = (*lease_)->share_retry_us(tenant(), wanted_choices_)) {
      context_.metrics.on_rejected(identity_.model, Rejection::kTenantShare);
      const auto retry_s = static_cast<uint64_t>((*retry_us + kUsPerSecond - 1) / kUsPerSecond);
      return api::share_full(status.message(), std::clamp<uint64_t>(retry_s, 1, 60));
    }
    context_.metrics.on_rejected(identity_.model, Rejection::kQueueFull);
    const EngineSnapshot snapshot = (*lease_)->snapshot();
    uint32_t waiting = 0;
    for (const uint32_t of_class : snapshot.scheduler.waiting) waiting += of_class;
    return api::queue_full(context_.metrics.retry_after_s(identity_.model, waiting));
  }
  if (status.code() == Code::kUnavailable) {
    context_.metrics.on_rejected(identity_.model, Rejection::kUnavailable);
    if ((*lease_)->snapshot().state == EngineState::kHung) return api::engine_hung(1);
  }
  // The engine's time ran out, not the client's: a step hangs.
  if (status.code() == Code::kDeadlineExceeded) return api::engine_hung(1);
  return api::from_status(status);
}

void AnswerJob::explain(std::function<void(RequestExplanation)> done) {
  RequestExplanation explanation;
  explanation.id = identity_.id;
  explanation.model = identity_.model;
  explanation.seed = seed_;
  std::vector<RequestId> ids;
  std::shared_ptr<ServedModel> served;
  {
    const std::lock_guard lock(mutex_);
    if (lease_) served = (*lease_)->shared_from_this();
    for (const Choice& choice : choices_) ids.push_back(choice.completion->id());
  }
  explanation.state = served && !ids.empty() ? "live" : "loading";
  if (!served || ids.empty()) return done(std::move(explanation));
  // One message for all choices, and the engine's thread only passes on what it said.
  served->explain(ids, [self = shared_from_this(), ids, explanation = std::move(explanation),
                        done = std::move(done)](Result<std::vector<Explanation>> found) mutable {
    explanation.status = found.status();
    const auto tell = [ids = std::move(ids), explanation = std::move(explanation), done,
                       found = std::move(found)]() mutable {
      // One that has ended meanwhile has nothing to explain.
      for (size_t i = 0; found.ok() && i < found->size(); ++i) {
        const auto at = std::find(ids.begin(), ids.end(), (*found)[i].id);
        explanation.choices.push_back({static_cast<uint32_t>(at - ids.begin()), (*found)[i]});
      }
      done(std::move(explanation));
    };
    const auto refuse = [done] {
      RequestExplanation refused;
      refused.status = unavailable("the workers are busy");
      done(std::move(refused));
    };
    if (!self->context_.workers.post(self->caller_.priority, tell, refuse)) refuse();
  });
}

void AnswerJob::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  for (Choice& choice : choices_) choice.completion->cancel();
}

}  // namespace skein
