#include "server/answer/answer_account.h"

#include <algorithm>
#include <utility>

namespace skein {
namespace {

double milliseconds(TimeUs us) {
  return static_cast<double>(us) / kUsPerMs;
}

double per_second(uint64_t count, TimeUs us) {
  return us > 0 ? static_cast<double>(count) * kUsPerSecond / static_cast<double>(us) : 0;
}

// Taken at the door, where nobody knows yet how many there will be.
constexpr uint64_t kEntryTokens = 1;

}  // namespace

api::Error rate_limit_error(const Admission& admission) {
  if (admission.never) return api::rate_limit_too_small(admission.wanted, admission.per_minute);
  constexpr TimeUs kSecond = kUsPerSecond;
  const TimeUs seconds = (admission.retry_after_us + kSecond - 1) / kSecond;
  return api::rate_limited(static_cast<uint64_t>(std::max<TimeUs>(1, seconds)));
}

AnswerAccount::AnswerAccount(Books books, std::shared_ptr<const Principal> who,
                             FinishedRequest about)
    : books_(books),
      who_(std::move(who)),
      arrived_us_(books.clock.now()),
      about_(std::move(about)) {
  about_.choices = 0;
}

void AnswerAccount::reject(Rejection why) {
  books_.metrics.on_rejected(about_.model, why);
}

std::optional<api::Error> AnswerAccount::enter() {
  const Admission admission = books_.limiter.admit(*who_, kEntryTokens);
  if (!admission.admitted()) {
    reject(Rejection::kRateLimit);
    return rate_limit_error(admission);
  }
  reserved_tokens_ = admission.reserved;
  return std::nullopt;
}

std::optional<api::Error> AnswerAccount::reserve(uint64_t prompt_tokens, uint64_t choices,
                                                 std::optional<uint32_t> max_tokens) {
  // Whoever comes too early is told when to come again, and owes no tokens for that: each time that
  // it tried would put its turn off.
  text_tokens_ = 0;
  books_.limiter.settle(*who_, std::exchange(reserved_tokens_, 0), 0);
  const Admission admission =
      books_.limiter.admit(*who_, prompt_tokens + choices * max_tokens.value_or(1),
                           max_tokens ? RateLimiter::Take::kExactly : RateLimiter::Take::kAll, 0);
  if (!admission.admitted()) {
    reject(Rejection::kRateLimit);
    return rate_limit_error(admission);
  }
  usage_.prompt_tokens = prompt_tokens;
  reserved_tokens_ = admission.reserved;
  if (reserved_tokens_ > 0 && !max_tokens) {
    const uint64_t share = (reserved_tokens_ - prompt_tokens) / choices;
    answer_tokens_ = static_cast<uint32_t>(std::min<uint64_t>(share, UINT32_MAX));
  }
  return std::nullopt;
}

void AnswerAccount::set_cached(uint32_t choice, uint64_t tokens) {
  if (cached_.size() <= choice) cached_.resize(size_t{choice} + 1);
  usage_.cached_tokens += tokens;
  usage_.cached_tokens -= std::exchange(cached_[choice], tokens);
}

void AnswerAccount::add_tokens(uint32_t choice, uint64_t tokens) {
  if (tokens == 0) return;
  usage_.completion_tokens += tokens;
  if (choice == 0) first_choice_tokens_ += tokens;
  const TimeUs now = books_.clock.now();
  if (first_token_us_ == 0) {
    first_token_us_ = now;
  } else {
    books_.metrics.on_tokens(about_.model, now - last_tokens_us_, static_cast<uint32_t>(tokens));
  }
  last_tokens_us_ = now;
}

void AnswerAccount::end_choice(uint32_t choice, const GenerationEnd& end, bool counts_prompt) {
  if (counts_prompt) set_cached(choice, end.cached_tokens);
  if (choice == 0) first_choice_end_ = end;
  about_.preemptions += end.preemptions;
  about_.prefill_chunks = std::max(about_.prefill_chunks, end.prefill_chunks);
  about_.queue_us = std::max(about_.queue_us, end.queue_us);
  about_.prefill_us = std::max(about_.prefill_us, end.prefill_us);
  about_.decode_us = std::max(about_.decode_us, end.decode_us);
  about_.start_priority_milli = end.start_priority_milli;
}

api::Timings AnswerAccount::timings() const {
  TimeUs queue_us = 0, prefill_us = first_token_us_ - arrived_us_;
  TimeUs decode_us = books_.clock.now() - first_token_us_;
  if (first_choice_end_) {
    queue_us = first_choice_end_->queue_us;
    prefill_us = first_choice_end_->prefill_us;
    decode_us = first_choice_end_->decode_us;
  }
  return {.queue_ms = milliseconds(queue_us),
          .prefill_ms = milliseconds(prefill_us),
          .decode_ms = milliseconds(decode_us),
          .prompt_per_second = per_second(usage_.prompt_tokens, prefill_us),
          .predicted_per_second = per_second(first_choice_tokens_, decode_us)};
}

void AnswerAccount::settle(FinishReason reason) {
  if (std::exchange(is_settled_, true)) return;
  about_.reason = reason;
  about_.total_us = books_.clock.now() - arrived_us_;
  if (first_token_us_ != 0) about_.first_token_us = first_token_us_ - arrived_us_;
  if (about_.choices > 0) {
    about_.prompt_tokens = static_cast<uint32_t>(usage_.prompt_tokens);
    about_.cached_tokens = static_cast<uint32_t>(usage_.cached_tokens);
    about_.output_tokens = static_cast<uint32_t>(usage_.completion_tokens);
    books_.usage.add(who_->key_id,
                     {1, usage_.prompt_tokens, usage_.cached_tokens, usage_.completion_tokens});
  }
  if (reserved_tokens_ > 0) {
    books_.limiter.settle(*who_, reserved_tokens_,
                          text_tokens_ + about_.prompt_tokens + about_.output_tokens);
  }
  books_.metrics.on_finished(about_);
}

void AnswerAccount::log(int status) {
  about_.status = status;
  if (books_.log) books_.log(about_);
  books_.recent.add(who_->key_id, std::move(about_));
}

}  // namespace skein
