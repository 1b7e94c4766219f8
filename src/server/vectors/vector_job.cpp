#include "server/vectors/vector_job.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "server/answer/prompts.h"
#include "server/api/vector_requests.h"

namespace skein {
namespace {

// So that a step's places are filled while the vectors of the step before are taken.
constexpr uint32_t kBatchesAtATime = 2;

}  // namespace

VectorJob::VectorJob(ServerContext& context, Call call, std::unique_ptr<VectorWork> work,
                     std::unique_ptr<AnswerSink> sink)
    : Job(context, std::move(call), work->id_prefix(), sink->is_background(),
          {.has_vectors = true}),
      work_(std::move(work)),
      sink_(std::move(sink)),
      hold_(context.memory, call_.principal->key_id) {}

std::optional<api::Error> VectorJob::start() {
  if (auto error = prepare()) return error;
  return submit_more();
}

// Before anything is queued: the prompts, memory for the answer, and the key's tokens.
std::optional<api::Error> VectorJob::prepare() {
  if (auto error = hold_memory(work_->prompt_bytes())) return error;
  api::Parsed<std::vector<VectorPrompt>> prompts = work_->make_prompts(context_, **lease_);
  if (!prompts.ok()) {
    if (prompts.error().code == "context_length_exceeded") account_.reject(Rejection::kTooLarge);
    return prompts.error();
  }
  prompts_ = std::move(*prompts);
  uint64_t tokens = 0;
  for (const VectorPrompt& prompt : prompts_) tokens += prompt.ids.size();
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
  if (bytes > limit) return api::answer_too_large(api::TooLarge::kVectors, bytes, limit);
  return api::overloaded(1);
}

// As many as may be under way. What the door refuses is tried again when one of them has ended.
std::optional<api::Error> VectorJob::submit_more() {
  ServedModel& served = **lease_;
  const Pooling pooling = pooling_of(served.model().vectors());
  const uint32_t window = std::max(1U, kBatchesAtATime * served.max_batch());
  while (next_ < prompts_.size()) {
    const std::lock_guard lock(mutex_);
    if (cancelled_ || running_.size() >= window) return std::nullopt;
    GenerationRequest request = engine_request(prompts_[next_].ids);
    request.second_from = prompts_[next_].second_from;
    request.pooling = pooling;
    if (request.timeout_us <= 0) return api::deadline_exceeded();
    auto handle = served.submit(std::move(request), news());
    if (!handle.ok()) {
      const bool may_wait = handle.status().code() == Code::kResourceExhausted;
      if (may_wait && !running_.empty()) return std::nullopt;
      return engine_error(handle.status());
    }
    account_.begin_choice();
    prompts_[next_] = {};
    running_.emplace(static_cast<uint32_t>(next_++), std::move(*handle));
  }
  memory_.reset();
  return std::nullopt;
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
  on_worker(context_.workers, [this] { write(); });
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

void VectorJob::write() {
  Result<std::string> body =
      work_->write(**lease_, identity_.id, account_.usage().prompt_tokens, std::move(vectors_));
  if (!body.ok()) {
    log_error("{}: {}", identity_.id, body.message());
    return fail(api::internal_failure());
  }
  account_.settle(FinishReason::kStop);
  hold_.resize(0);  // whoever takes the body accounts for it
  sink_->send(identity_.id, std::move(*body));
  close(200);
}

void VectorJob::release() {
  hold_.resize(0);
  prompts_ = {};
  vectors_ = {};
  std::map<uint32_t, RequestHandle> running;
  const std::lock_guard lock(mutex_);
  running.swap(running_);
}

void VectorJob::cancel_running() {
  for (auto& [index, handle] : running_) handle.cancel(FinishReason::kClient);
}

void VectorJob::describe(RequestExplanation&, std::vector<Running>& running) const {
  for (const auto& [index, handle] : running_) running.push_back({index, handle.id()});
}

}  // namespace skein
