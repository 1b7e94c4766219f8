// From the engine to the client.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/patience.h"
#include "server/answer/answer_job.h"

namespace skein {
namespace {

uint64_t characters_in(std::string_view bytes) {
  return static_cast<uint64_t>(std::count_if(bytes.begin(), bytes.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U;
  }));
}

// Frames of many choices that are handed over before the next choice is looked at.
constexpr size_t kFlushBytes = 64 << 10;

// What a piece takes in a plain answer, once more as JSON.
uint64_t held_bytes(const Piece& piece) {
  uint64_t bytes = piece.text.size() + piece.token_ids.size_bytes();
  for (const api::Logprob& logprob : piece.logprobs) {
    bytes += sizeof(logprob) + logprob.top.capacity() * sizeof(logprob.top[0]);
  }
  return 2 * bytes;
}

double milliseconds(TimeUs us) {
  return static_cast<double>(us) / kUsPerMs;
}

double per_second(uint64_t count, TimeUs us) {
  return us > 0 ? static_cast<double>(count) * kUsPerSecond / static_cast<double>(us) : 0;
}

}  // namespace

void AnswerJob::advance() {
  if (!submitted_ || closed_) return;
  if (stalled_) flush();
  // A reader that is behind leaves its tokens, as ids, in the engine's streams.
  if (stalled_) return;
  for (Choice& choice : choices_) {
    if (choice.finished) continue;
    if (!advance_choice(choice)) return;
    if (!has_memory_) return fail(memory_error());
    if (out_.size() < kFlushBytes) continue;
    flush();
    if (stalled_ || !has_memory_) break;
  }
  if (!has_memory_) return fail(memory_error());
  if (stalled_) return;
  if (unfinished_ == 0 && used_up_) {
    const Usage used = usage();
    return fail(api::rate_limit_used_up({used.prompt_tokens, used.completion_tokens}));
  }
  if (unfinished_ == 0) return complete();
  flush();
  if (!has_memory_) fail(memory_error());
}

// False when the whole answer has ended with this.
bool AnswerJob::advance_choice(Choice& choice) {
  while (!choice.finished && choice.completion->take(events_)) {
    // Its figures are known from here on, also for the content that comes with it.
    const auto* end = events_.empty() ? nullptr : std::get_if<AnswerEnd>(&events_.back());
    if (end != nullptr) choice.end = end->how;
    for (const AnswerEvent& event : events_) {
      if (const auto* progress = std::get_if<AnswerProgress>(&event)) {
        writer_->progress(out_, progress->computed_tokens, prompt_tokens_);
      } else if (const auto* content = std::get_if<AnswerContent>(&event)) {
        write_content(choice, *content);
      } else if (!finish_choice(choice, std::get<AnswerEnd>(event))) {
        return false;
      }
    }
  }
  return true;
}

void AnswerJob::note_tokens(size_t tokens) {
  if (tokens == 0) return;
  const TimeUs now = context_.clock.now();
  if (first_token_ == 0) {
    first_token_ = now;
  } else {
    context_.metrics.on_tokens(identity_.model, now - last_tokens_, static_cast<uint32_t>(tokens));
  }
  last_tokens_ = now;
}

std::vector<api::Logprob> AnswerJob::logprobs_of(Choice& choice,
                                                 const AnswerContent& content) const {
  std::vector<api::Logprob> logprobs;
  if (content.logprobs.empty()) return logprobs;
  const Tokenizer& tokenizer = (*lease_)->model().tokenizer()->tokenizer;
  const size_t per_token = content.logprobs.size() / content.tokens.size();
  for (size_t at = 0; at < content.logprobs.size(); at += per_token) {
    const TokenLogprob* entry = &content.logprobs[at];
    api::Logprob& logprob = logprobs.emplace_back();
    logprob.token = tokenizer.bytes(entry->token);
    logprob.logprob = entry->logprob;
    logprob.text_offset = choice.characters;
    for (size_t t = 1; t < per_token; ++t) {
      logprob.top.emplace_back(tokenizer.bytes(entry[t].token), entry[t].logprob);
    }
    choice.characters += characters_in(logprob.token);
  }
  return logprobs;
}

void AnswerJob::write_content(Choice& choice, const AnswerContent& content) {
  note_tokens(content.tokens.size());
  const std::vector<api::Logprob> logprobs = logprobs_of(choice, content);
  Piece piece{choice.result.index, content.text, logprobs};
  if (spec_.generation.return_token_ids) piece.token_ids = content.tokens;
  if (!spec_.generation.stream && !memory_.resize(memory_.bytes() + held_bytes(piece))) {
    has_memory_ = false;
  }
  if (!writer_->shows(piece)) return;
  const api::Timings now = timings();
  writer_->piece(out_, piece, usage(), spec_.generation.timings_per_token ? &now : nullptr);
}

// False when it did not end well, and with it the whole answer.
bool AnswerJob::finish_choice(Choice& choice, const AnswerEnd& end) {
  if (const auto error = failure(choice)) return fail(*error), false;
  choice.result.finish = end.how.reason;
  choice.result.stop_sequence = end.stop;
  choice.finished = true;
  --unfinished_;
  if (choice.on_account && choice.result.finish == FinishReason::kLength) {
    used_up_ = true;  // no end of its own: the answer's is an error
    return true;
  }
  writer_->finish(out_, choice.result, usage());
  return true;
}

// Why a choice did not end well; nothing when it did.
std::optional<api::Error> AnswerJob::failure(const Choice& choice) {
  const GenerationEnd& end = *choice.end;
  switch (end.reason) {
    case FinishReason::kStop:
    case FinishReason::kLength:
    case FinishReason::kToolCalls:
      return std::nullopt;
    case FinishReason::kTimedOut:
      return api::deadline_exceeded();
    case FinishReason::kDrained:
      return api::draining(1);
    case FinishReason::kClient:
      return cancelled_error();
    case FinishReason::kError:
      break;
  }
  log_error("{} failed: {}", identity_.id, end.status.message());
  return submit_error(end.status);
}

// Hands over what the writer wrote; what the responder does not take stays.
void AnswerJob::flush() {
  stalled_ = false;
  if (!spec_.generation.stream || out_.empty()) return;
  switch (responder_->write(out_)) {
    case http::WriteResult::kTaken:
    case http::WriteResult::kGone:  // on_hangup has cancelled the work
      out_.clear();
      memory_.resize(0);
      break;
    case http::WriteResult::kFull:
      stalled_ = true;
      if (!memory_.resize(out_.size())) has_memory_ = false;
      break;
  }
}

api::Error AnswerJob::memory_error() const {
  const uint64_t limit = context_.memory.account_limit_bytes();
  // What alone comes near the limit will not fit later either.
  return memory_.bytes() > limit / 2 ? api::answer_too_large(memory_.bytes(), limit)
                                     : api::overloaded(1);
}

Usage AnswerJob::usage() const {
  Usage usage;
  usage.prompt_tokens = prompt_tokens_;
  uint32_t prompt = UINT32_MAX;
  for (const Choice& choice : choices_) {
    usage.completion_tokens += choice.completion->tokens();
    if (choice.prompt != prompt && choice.end) usage.cached_tokens += choice.end->cached_tokens;
    prompt = choice.prompt;
  }
  return usage;
}

api::Timings AnswerJob::timings() const {
  const Choice& first = choices_.front();
  TimeUs queue_us = 0, prefill_us = first_token_ - arrived_;
  TimeUs decode_us = context_.clock.now() - first_token_;
  if (first.end) {
    queue_us = first.end->queue_us;
    prefill_us = first.end->prefill_us;
    decode_us = first.end->decode_us;
  }
  api::Timings timings;
  timings.queue_ms = milliseconds(queue_us);
  timings.prefill_ms = milliseconds(prefill_us);
  timings.decode_ms = milliseconds(decode_us);
  timings.prompt_per_second = per_second(prompt_tokens_, prefill_us);
  timings.predicted_per_second = per_second(first.completion->tokens(), decode_us);
  return timings;
}

// The end of the whole answer, badly: a plain error while nothing has left, else a last frame.
void AnswerJob::fail(const api::Error& error) {
  if (closed_) return;
  cancel();
  FinishReason reason = FinishReason::kError;
  if (error.status == 408) reason = FinishReason::kTimedOut;
  if (error.status == 499) reason = FinishReason::kClient;
  count(reason);
  const http::Response response = error_response(dialect_of(spec_.form), error);
  bool in_stream = false;
  if (done_) {
    done_(response, identity_.id, error.is_final);
  } else if (!responder_->send(response) && spec_.generation.stream && writer_ != nullptr) {
    in_stream = true;  // else the client is gone; without a writer the stream has not begun
    out_.clear();
    writer_->error(out_, error);
    responder_->finish_with(out_);  // or the client is gone
  }
  close(in_stream ? 200 : error.status);
}

void AnswerJob::give_up() noexcept {
  const PatientScope patient;  // a line of a batch waits for its end
  try {
    fail(api::overloaded(1));
  } catch (const std::exception&) {
    responder_.reset();  // not even that can be said: a 500, or a stream that is cut
    try {
      close(500);
    } catch (const std::exception&) {  // it has let go of everything, and could not log it
    }
  }
}

void AnswerJob::complete() {
  if (!std::exchange(end_written_, true)) writer_->end(out_, usage(), timings());
  count(choices_.front().result.finish);
  if (spec_.generation.stream) {
    flush();
    if (!has_memory_) return fail(memory_error());
    if (stalled_) return;  // the rest goes when the reader has caught up
    responder_->finish();
  } else {
    memory_.resize(0);  // whoever takes the body accounts for it
    http::Response response{.status = 200, .body = std::move(out_)};
    if (done_) {
      done_(std::move(response), identity_.id, true);
    } else {
      responder_->send(std::move(response));
    }
  }
  close(200);
}

// Before the client has its answer, so that whoever has one finds it in every count.
void AnswerJob::count(FinishReason reason) {
  if (std::exchange(counted_, true)) return;
  finished_.id = identity_.id;
  finished_.request_id = caller_.request_id;
  finished_.route = caller_.route;
  finished_.key_name = caller_.principal->name;
  finished_.model = identity_.model;
  finished_.priority = caller_.priority;
  finished_.reason = reason;
  finished_.streamed = spec_.generation.stream;
  finished_.choices = static_cast<uint32_t>(choices_.size());
  finished_.total_us = context_.clock.now() - arrived_;
  if (first_token_ != 0) finished_.first_token_us = first_token_ - arrived_;
  if (!choices_.empty()) {
    const Usage used = usage();
    finished_.prompt_tokens = static_cast<uint32_t>(used.prompt_tokens);
    finished_.cached_tokens = static_cast<uint32_t>(used.cached_tokens);
    finished_.output_tokens = static_cast<uint32_t>(used.completion_tokens);
    for (const Choice& choice : choices_) {
      if (!choice.end) continue;
      finished_.preemptions += choice.end->preemptions;
      finished_.queue_us = std::max(finished_.queue_us, choice.end->queue_us);
      finished_.prefill_us = std::max(finished_.prefill_us, choice.end->prefill_us);
      finished_.decode_us = std::max(finished_.decode_us, choice.end->decode_us);
      finished_.start_priority_milli = choice.end->start_priority_milli;
    }
    context_.store.usage().add(caller_.principal->key_id,
                               {1, used.prompt_tokens, used.cached_tokens, used.completion_tokens});
  }
  if (reserved_tokens_ > 0) {
    context_.limiter.settle(*caller_.principal, reserved_tokens_,
                            uint64_t{finished_.prompt_tokens} + finished_.output_tokens);
  }
  context_.metrics.on_finished(finished_);
}

// Everything is let go of.
void AnswerJob::close(int status) {
  if (std::exchange(closed_, true)) return;
  context_.live.remove(identity_.id);
  memory_.resize(0);
  caller_.memory.reset();
  {
    const std::lock_guard lock(mutex_);
    choices_.clear();  // and with them the streams that hold this
    lease_.reset();
  }
  finished_.status = status;
  if (context_.log_request) context_.log_request(finished_);
}

}  // namespace skein
