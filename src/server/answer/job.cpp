#include "server/answer/job.h"

#include <algorithm>
#include <ctime>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/patience.h"
#include "server/answer/prompts.h"
#include "server/store/random.h"

namespace skein {
namespace {

constexpr size_t kMaxTraceParent = 64;  // longer ones mean nothing

// What the log and the metrics know of a call from the start.
FinishedRequest describe_call(FinishedRequest about, const Call& call, const std::string& id) {
  about.id = id;
  about.request_id = call.request.request_id;
  about.route = call.route->pattern;
  about.key_name = call.principal->name;
  about.priority = call.priority;
  if (const std::string* parent = call.request.head.header("traceparent")) {
    about.trace_parent = parent->substr(0, kMaxTraceParent);
  }
  return about;
}

// With the server's name, by which a router finds the one that runs it.
std::string make_id(const ServerContext& context, std::string_view prefix) {
  return fmt::format("{}{}{}", prefix, context.settings.http.id_prefix(), random_hex(16));
}

}  // namespace

Job::Job(ServerContext& context, Call call, std::string_view id_prefix, bool is_background,
         FinishedRequest about)
    : context_(context),
      call_(std::move(call)),
      is_background_(is_background),
      memory_(std::move(call_.request.memory)),
      identity_{make_id(context, id_prefix), static_cast<int64_t>(std::time(nullptr)), {}},
      arrived_us_(context.clock.now()),
      account_({context.clock, context.limiter, context.metrics, context.store.usage(),
                context.settings.log_request, context.recent},
               call_.principal, describe_call(std::move(about), call_, identity_.id)) {
  call_.request = {};
}

template <class Run>
void Job::guard(const Run& run) {
  try {
    run();
  } catch (const std::exception& error) {  // memory is short
    log_error("{}: {}", identity_.id, error.what());
    give_up();
  }
}

void Job::on_worker(http::Workers& workers, std::function<void()> run) {
  const auto drop = [self = shared_from_this()] { self->fail(self->context_.no_worker()); };
  const auto task = [self = shared_from_this(), run = std::move(run)] { self->guard(run); };
  // Lines of batches do not go before what their key asks for itself.
  std::string owner = call_.principal->key_id;
  if (is_background_ && !owner.empty()) owner += " in batches";
  if (!workers.post(call_.priority, owner, task, drop)) drop();
}

void Job::begin() {
  guard([this] {
    api::Parsed<std::string> model = model_for(context_, *call_.principal, wanted_model());
    if (!model.ok()) return fail(model.error());
    identity_.model = std::move(*model);
    account_.set_model(identity_.model);
    // The sink outlives its callback, and this must not outlive itself through it.
    open([self = weak_from_this()] {
      if (auto job = self.lock()) job->cancel();
    });
    context_.live.add(identity_.id, call_.principal->key_id, weak_from_this());
    const auto here = std::this_thread::get_id();
    context_.models.acquire(identity_.model,
                            [self = shared_from_this(), here](Result<ModelLease> lease) {
                              self->on_model(std::move(lease), std::this_thread::get_id() == here);
                            });
  });
}

void Job::on_model(Result<ModelLease> lease, bool at_once) {
  guard([&] {
    if (!lease.ok()) {
      account_.reject(Rejection::kUnavailable);
      return fail(api::model_load_failed(identity_.model, lease.status()));
    }
    auto held = std::make_shared<ModelLease>(std::move(*lease));
    if (has_form()) return on_worker(context_.forms, [this, held] { submit(held); });
    if (at_once && !is_background_) return submit(held);
    // The threads that load models and that run batches have other work: text goes elsewhere.
    on_worker(context_.workers, [this, held] { submit(held); });
  });
}

void Job::submit(const std::shared_ptr<ModelLease>& lease) {
  guard([&] {
    {
      const std::lock_guard lock(mutex_);
      lease_ = std::move(*lease);
    }
    if (is_cancelled()) return fail(cancelled_error());
    if (const auto error = account_.enter()) return fail(*error);
    if (const auto error = start()) return fail(*error);
    submitted_ = true;
    context_.delivery.post(shared_from_this());
  });
}

std::function<void()> Job::news() {
  return [self = shared_from_this()] { self->context_.delivery.post(self); };
}

GenerationRequest Job::engine_request(std::vector<TokenId> prompt) const {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.priority = call_.priority;
  if (!context_.settings.share_prefixes) request.salt = call_.principal->salt;
  request.tenant = tenant();
  request.background = is_background_;
  if (const auto whole_us = timeout_us()) {
    request.timeout_us = *whole_us - (context_.clock.now() - arrived_us_);
  }
  return request;
}

std::optional<api::Error> Job::failure(const GenerationEnd& end) {
  switch (end.reason) {
    case FinishReason::kTimedOut:
      return api::deadline_exceeded();
    case FinishReason::kDrained:
      return api::draining(1);
    case FinishReason::kClient:
      return cancelled_error();
    case FinishReason::kStop:
    case FinishReason::kLength:
    case FinishReason::kToolCalls:
      return std::nullopt;
    case FinishReason::kError:
      break;
  }
  log_error("{} failed: {}", identity_.id, end.status.message());
  return engine_error(end.status);
}

api::Error Job::engine_error(const Status& status) {
  ServedModel& served = **lease_;
  if (status.code() == Code::kResourceExhausted) {
    if (const auto retry_us = served.share_retry_us(tenant())) {
      account_.reject(Rejection::kTenantShare);
      const auto retry_s = static_cast<uint64_t>((*retry_us + kUsPerSecond - 1) / kUsPerSecond);
      return api::share_full(status.message(), std::clamp<uint64_t>(retry_s, 1, 60));
    }
    account_.reject(Rejection::kQueueFull);
    uint32_t waiting = 0;
    for (const uint32_t of_class : served.snapshot().scheduler.waiting) waiting += of_class;
    api::Error full = api::queue_full(context_.metrics.retry_after_s(served.id(), waiting));
    // 429 is what every server would say; this one is full, and another may not be.
    if (context_.store.is_shared()) full.status = 503;
    return full;
  }
  if (status.code() == Code::kUnavailable) {
    account_.reject(Rejection::kUnavailable);
    if (served.snapshot().state == EngineState::kHung) return api::engine_hung(1);
  }
  // The engine's time ran out, not the client's: a step hangs.
  if (status.code() == Code::kDeadlineExceeded) return api::engine_hung(1);
  return api::from_status(status);
}

uint64_t Job::tenant() const {
  const uint64_t key = call_.principal->salt.low;
  return is_background_ ? ~key : key;
}

bool Job::is_late() const {
  const auto whole_us = timeout_us();
  return whole_us && context_.clock.now() - arrived_us_ >= *whole_us;
}

bool Job::is_cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

api::Error Job::cancelled_error() {
  return {.status = 499, .message = "The request was cancelled.", .code = "cancelled"};
}

void Job::fail(const api::Error& error) {
  if (closed_) return;
  cancel();
  FinishReason reason = FinishReason::kError;
  if (error.status == 408) reason = FinishReason::kTimedOut;
  if (error.status == 499) reason = FinishReason::kClient;
  account_.settle(reason);
  const bool in_stream = send_error(error);
  close(in_stream ? 200 : error.status);
}

void Job::give_up() noexcept {
  const PatientScope patient;  // a line of a batch waits for its end
  try {
    fail(api::overloaded(1));
  } catch (const std::exception&) {
    abandon();  // not even that can be said
    try {
      close(500);
    } catch (const std::exception&) {  // everything was released, and could not be logged
    }
  }
}

void Job::close(int status) {
  if (std::exchange(closed_, true)) return;
  context_.live.remove(identity_.id);
  memory_.reset();
  release();
  {
    const std::lock_guard lock(mutex_);
    lease_.reset();
  }
  account_.log(status);
}

void Job::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  cancel_running();
}

RequestBrief Job::brief() const {
  RequestBrief brief{.id = identity_.id,
                     .owner = call_.principal->key_id,
                     .key_name = call_.principal->name,
                     .model = identity_.model,
                     .route = std::string(call_.route->pattern),
                     .priority = call_.priority,
                     .is_background = is_background_,
                     .arrived = arrived_us_,
                     .choices = {}};
  RequestExplanation rest;
  std::vector<Running> running;
  {
    const std::lock_guard lock(mutex_);
    describe(rest, running);
  }
  brief.choices.reserve(running.size());
  for (const Running& one : running) brief.choices.push_back({one.index, one.id});
  return brief;
}

void Job::explain(std::function<void(RequestExplanation)> done) {
  RequestExplanation explanation;
  explanation.id = identity_.id;
  explanation.model = identity_.model;
  std::vector<Running> running;
  std::shared_ptr<ServedModel> served;
  {
    const std::lock_guard lock(mutex_);
    if (lease_) served = (*lease_)->shared_from_this();
    describe(explanation, running);
  }
  explanation.state = served && !running.empty() ? "live" : "loading";
  if (!served || running.empty()) return done(std::move(explanation));
  std::vector<RequestId> ids;
  ids.reserve(running.size());
  for (const Running& one : running) ids.push_back(one.id);
  // In one message, for all of them. The engine's thread only passes on what it said; the job may
  // be gone by then, and the server is not.
  served->explain(std::move(ids), [&context = context_, priority = call_.priority,
                                   owner = call_.principal->key_id, running = std::move(running),
                                   explanation = std::move(explanation), done = std::move(done)](
                                      Result<std::vector<Explanation>> found) mutable {
    if (!found.ok()) explanation.error = api::from_status(found.status());
    const auto tell = [running = std::move(running), explanation = std::move(explanation), done,
                       found = std::move(found)]() mutable {
      // One that has ended meanwhile has nothing to explain.
      for (size_t i = 0; found.ok() && i < found->size(); ++i) {
        const auto at = std::find_if(running.begin(), running.end(),
                                     [&](const Running& one) { return one.id == (*found)[i].id; });
        explanation.choices.push_back({at->index, (*found)[i]});
      }
      done(std::move(explanation));
    };
    const auto refuse = [&context, done] {
      RequestExplanation refused;
      refused.error = context.no_worker();
      done(std::move(refused));
    };
    if (!context.workers.post(priority, owner, tell, refuse)) refuse();
  });
}

}  // namespace skein
