#include "server/vectors/vector_job.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/patience.h"
#include "server/answer/job_parts.h"
#include "server/answer/prompts.h"
#include "server/api/vector_requests.h"
#include "server/store/random.h"

namespace skein {
namespace {

// So that a step's places are filled while the vectors of the step before are taken.
constexpr uint32_t kBatchesAtATime = 2;

FinishedRequest describe_vectors(const Call& call, const std::string& id) {
  FinishedRequest about = describe_call(call, id);
  about.has_vectors = true;
  return about;
}

}  // namespace

VectorJob::VectorJob(ServerContext& context, Call call, std::unique_ptr<VectorWork> work,
                     std::unique_ptr<AnswerSink> sink)
    : context_(context),
      call_(std::move(call)),
      work_(std::move(work)),
      sink_(std::move(sink)),
      is_background_(sink_->is_background()),
      memory_(std::move(call_.request.memory)),
      id_(std::string(work_->id_prefix()) + random_hex(16)),
      arrived_us_(context.clock.now()),
      account_({context.clock, context.limiter, context.metrics, context.store.usage(),
                context.settings.log_request},
               call_.principal, describe_vectors(call_, id_)),
      hold_(context.memory, call_.principal->key_id) {
  call_.request = {};
}

void VectorJob::begin() try {
  api::Parsed<std::string> model = model_for(context_, *call_.principal, work_->model());
  if (!model.ok()) return fail(model.error());
  model_ = std::move(*model);
  account_.set_model(model_);
  // The sink outlives its callback, and this must not outlive itself through it.
  sink_->on_hangup([self = weak_from_this()] {
    if (auto job = self.lock()) job->cancel();
  });
  context_.live.add(id_, call_.principal->key_id, weak_from_this());
  const auto here = std::this_thread::get_id();
  context_.models.acquire(model_, [self = shared_from_this(), here](Result<ModelLease> lease) {
    self->on_model(std::move(lease), std::this_thread::get_id() == here);
  });
} catch (const std::exception& error) {  // memory is short
  log_error("{}: {}", id_, error.what());
  give_up();
}

void VectorJob::on_model(Result<ModelLease> lease, bool at_once) try {
  if (!lease.ok()) {
    account_.reject(Rejection::kUnavailable);
    return fail(api::model_load_failed(model_, lease.status()));
  }
  auto held = std::make_shared<ModelLease>(std::move(*lease));
  if (at_once && !is_background_) return submit(held);
  // The threads that load models and that run batches have other work: text goes elsewhere.
  const auto drop = [self = shared_from_this()] { self->fail(self->context_.no_worker()); };
  const auto run = [self = shared_from_this(), held] { self->submit(held); };
  if (!context_.workers.post(call_.priority, run, drop)) drop();
} catch (const std::exception& error) {  // memory is short
  log_error("{}: {}", id_, error.what());
  give_up();
}

void VectorJob::submit(const std::shared_ptr<ModelLease>& lease) try {
  {
    const std::lock_guard lock(mutex_);
    lease_ = std::move(*lease);
  }
  if (is_cancelled()) return fail(cancelled_error());
  if (const auto error = prepare()) return fail(*error);
  if (const auto error = submit_more()) return fail(*error);
  submitted_ = true;
  context_.delivery.post(shared_from_this());
} catch (const std::exception& error) {  // memory is short
  log_error("{}: {}", id_, error.what());
  give_up();
}

// Before anything is queued: the prompts, memory for the answer, and the key's tokens.
std::optional<api::Error> VectorJob::prepare() {
  if (auto error = hold_memory(work_->prompt_bytes())) return error;
  api::Parsed<std::vector<std::vector<TokenId>>> prompts = work_->make_prompts(context_, **lease_);
  if (!prompts.ok()) {
    if (prompts.error().code == "context_length_exceeded") account_.reject(Rejection::kTooLarge);
    return prompts.error();
  }
  prompts_ = std::move(*prompts);
  uint64_t tokens = 0;
  for (const std::vector<TokenId>& prompt : prompts_) tokens += prompt.size();
  const uint64_t width = (*lease_)->model().spec().hidden;
  if (auto error = hold_memory(tokens * sizeof(TokenId) + prompts_.size() * width * sizeof(float) +
                               work_->answer_bytes(**lease_))) {
    return error;
  }
  vectors_.resize(prompts_.size());
  return account_.reserve(tokens, prompts_.size(), 0);
}

std::optional<api::Error> VectorJob::hold_memory(uint64_t bytes) {
  if (hold_.resize(bytes)) return std::nullopt;
  const uint64_t limit = context_.memory.account_limit_bytes();
  if (bytes > limit) return api::vectors_too_large(bytes, limit);
  return api::overloaded(1);
}

// As many as may be under way. What the door refuses is tried again when one of them has ended.
std::optional<api::Error> VectorJob::submit_more() {
  ServedModel& served = **lease_;
  const uint32_t window = std::max(1U, kBatchesAtATime * served.max_batch());
  while (next_ < prompts_.size()) {
    const std::lock_guard lock(mutex_);
    if (cancelled_ || running_.size() >= window) return std::nullopt;
    GenerationRequest request = request_of(prompts_[next_]);
    if (request.timeout_us <= 0) return api::deadline_exceeded();
    auto handle = served.submit(
        std::move(request), [self = shared_from_this()] { self->context_.delivery.post(self); });
    if (!handle.ok()) {
      const bool may_wait = handle.status().code() == Code::kResourceExhausted;
      if (may_wait && !running_.empty()) return std::nullopt;
      return engine_error(context_, served, account_, tenant_of(*call_.principal, is_background_),
                          1, handle.status());
    }
    account_.begin_choice();
    prompts_[next_] = {};
    running_.emplace(static_cast<uint32_t>(next_++), std::move(*handle));
  }
  memory_.reset();
  return std::nullopt;
}

GenerationRequest VectorJob::request_of(const std::vector<TokenId>& prompt) const {
  GenerationRequest request;
  request.prompt = prompt;
  request.pooling = pooling_of(*(*lease_)->model().vectors().kind);
  request.priority = call_.priority;
  if (!context_.settings.share_prefixes) request.salt = call_.principal->salt;
  request.tenant = tenant_of(*call_.principal, is_background_);
  request.background = is_background_;
  if (const auto timeout_us = work_->timeout_us()) {
    request.timeout_us = *timeout_us - (context_.clock.now() - arrived_us_);
  }
  return request;
}

void VectorJob::advance() {
  if (!submitted_ || closed_) return;
  if (const auto error = take_ended()) return fail(*error);
  if (const auto error = submit_more()) return fail(*error);
  if (ended_ < vectors_.size()) {
    // Nothing brings it back here once nothing is under way.
    if (is_cancelled()) fail(cancelled_error());
    return;
  }
  submitted_ = false;  // nothing more is to come
  const auto drop = [self = shared_from_this()] { self->fail(self->context_.no_worker()); };
  const auto run = [self = shared_from_this()] { self->write(); };
  if (!context_.workers.post(call_.priority, run, drop)) drop();
}

std::optional<api::Error> VectorJob::take_ended() {
  const std::lock_guard lock(mutex_);
  for (auto it = running_.begin(); it != running_.end();) {
    if (!it->second.stream().take(chunk_) || !chunk_.end) {
      ++it;
      continue;
    }
    GenerationEnd& end = *chunk_.end;
    vectors_[it->first] = std::move(end.hidden);
    end.hidden = {};
    account_.end_choice(it->first, end, true);
    if (auto error = failure(end)) return error;
    ++ended_;
    it = running_.erase(it);
  }
  return std::nullopt;
}

std::optional<api::Error> VectorJob::failure(const GenerationEnd& end) {
  if (auto early = early_end(end.reason)) return early;
  if (end.reason != FinishReason::kError) return std::nullopt;
  log_error("{} failed: {}", id_, end.status.message());
  return engine_error(context_, **lease_, account_, tenant_of(*call_.principal, is_background_), 1,
                      end.status);
}

void VectorJob::write() try {
  Result<std::string> body =
      work_->write(**lease_, id_, account_.usage().prompt_tokens, std::move(vectors_));
  if (!body.ok()) {
    log_error("{}: {}", id_, body.message());
    return fail(api::internal_failure());
  }
  account_.settle(FinishReason::kStop);
  hold_.resize(0);  // whoever takes the body accounts for it
  sink_->send(id_, std::move(*body));
  close(200);
} catch (const std::exception& error) {  // memory is short
  log_error("{}: {}", id_, error.what());
  give_up();
}

void VectorJob::fail(const api::Error& error) {
  if (closed_) return;
  cancel();
  FinishReason reason = FinishReason::kError;
  if (error.status == 408) reason = FinishReason::kTimedOut;
  if (error.status == 499) reason = FinishReason::kClient;
  account_.settle(reason);
  sink_->fail(id_, error, {});
  close(error.status);
}

void VectorJob::give_up() noexcept {
  const PatientScope patient;  // a line of a batch waits for its end
  try {
    fail(api::overloaded(1));
  } catch (const std::exception&) {
    sink_.reset();  // not even that can be said
    try {
      close(500);
    } catch (const std::exception&) {  // everything was released, and could not be logged
    }
  }
}

void VectorJob::close(int status) {
  if (std::exchange(closed_, true)) return;
  context_.live.remove(id_);
  hold_.resize(0);
  memory_.reset();
  prompts_ = {};
  vectors_ = {};
  std::map<uint32_t, RequestHandle> running;
  {
    const std::lock_guard lock(mutex_);
    running.swap(running_);  // and with them the streams that hold this
    lease_.reset();
  }
  account_.log(status);
}

bool VectorJob::is_cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

void VectorJob::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  for (auto& [index, handle] : running_) handle.cancel(FinishReason::kClient);
}

void VectorJob::explain(std::function<void(RequestExplanation)> done) {
  RequestExplanation explanation;
  explanation.id = id_;
  explanation.model = model_;
  std::vector<LiveChoice> choices;
  std::shared_ptr<ServedModel> served;
  {
    const std::lock_guard lock(mutex_);
    if (lease_) served = (*lease_)->shared_from_this();
    for (const auto& [index, handle] : running_) choices.push_back({index, handle.id()});
  }
  explanation.state = served && !choices.empty() ? "live" : "loading";
  if (!served || choices.empty()) return done(std::move(explanation));
  explain_choices(context_, call_.priority, *served, std::move(choices), std::move(explanation),
                  std::move(done));
}

}  // namespace skein
