#include "server/answer/delivery.h"

#include <exception>
#include <utility>

#include "base/log.h"
#include "base/patience.h"

namespace skein {
namespace {

// Frames of many choices that are handed over before the next choice is looked at.
constexpr size_t kFlushBytes = 64 << 10;

}  // namespace

Delivery::Delivery() : thread_([this] { run(); }) {}

Delivery::~Delivery() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  posted_.notify_one();
  thread_.join();
}

void Delivery::post(std::shared_ptr<Deliverable> answer) {
  const PatientScope patient;  // its news would never be delivered
  {
    const std::lock_guard lock(mutex_);
    const bool was_empty = first_ == nullptr;
    list(std::move(answer));
    if (!was_empty) return;  // the thread has been told
  }
  posted_.notify_one();
}

void Delivery::list(std::shared_ptr<Deliverable> answer) {
  if (std::exchange(answer->listed_, true)) return;
  Deliverable* before = std::exchange(last_, answer.get());
  (before == nullptr ? first_ : before->next_) = std::move(answer);
}

void Delivery::remind(const std::shared_ptr<Deliverable>& answer,
                      std::chrono::steady_clock::time_point at) {
  {
    const std::lock_guard lock(mutex_);
    reminders_.emplace(at, answer);
  }
  posted_.notify_one();
}

void Delivery::list_due() {
  const auto now = std::chrono::steady_clock::now();
  while (!reminders_.empty() && reminders_.begin()->first <= now) {
    if (std::shared_ptr<Deliverable> answer = reminders_.begin()->second.lock()) {
      list(std::move(answer));
    }
    reminders_.erase(reminders_.begin());
  }
}

// Until something is listed or due.
void Delivery::wait_for_news(std::unique_lock<std::mutex>& lock) {
  using Time = std::chrono::steady_clock::time_point;
  const Time due = reminders_.empty() ? Time::max() : reminders_.begin()->first;
  const auto changed = [&] {
    return stopping_ || first_ != nullptr ||
           (!reminders_.empty() && reminders_.begin()->first < due);
  };
  if (due == Time::max()) {
    posted_.wait(lock, changed);
  } else {
    posted_.wait_until(lock, due, changed);
  }
}

void Delivery::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    list_due();
    if (first_ == nullptr) {
      if (stopping_) return;
      wait_for_news(lock);
      continue;
    }
    std::shared_ptr<Deliverable> answer = std::move(first_);
    first_ = std::move(answer->next_);
    if (first_ == nullptr) last_ = nullptr;
    answer->listed_ = false;  // from here on news list it again, also while it is being advanced
    lock.unlock();
    try {
      answer->advance();
    } catch (const std::exception& error) {
      log_error("an answer is given up: {}", error.what());
      answer->give_up();
    }
    answer = nullptr;
    lock.lock();
  }
}

void AnswerOutput::open(std::chrono::milliseconds keepalive_interval, std::function<void()> hung_up,
                        std::function<void()> ready) {
  if (stream_) {
    http::StreamHead head;
    head.headers = {{"Cache-Control", "no-cache"}};
    head.keepalive = kind_.keepalive;
    head.keepalive_interval = keepalive_interval;
    sink_->start(std::move(head), std::move(ready));
  }
  sink_->on_hangup(std::move(hung_up));
}

void AnswerOutput::progress(uint64_t computed_tokens, uint64_t prompt_tokens) {
  writer_->progress(out_, computed_tokens, prompt_tokens);
}

void AnswerOutput::finish(uint32_t choice, const AnswerEnd& end, const api::Figures& now) {
  writer_->finish(out_, choice, end, now);
}

void AnswerOutput::end(const api::Figures& all) {
  if (!std::exchange(has_ended_, true)) writer_->end(out_, all);
}

void AnswerOutput::account() {
  const uint64_t behind = is_stalled_ ? out_.size() : 0;
  if (!memory_.resize(writer_->held_bytes() + behind)) has_memory_ = false;
}

bool AnswerOutput::flush() {
  is_stalled_ = false;
  if (!stream_ || out_.empty()) return has_memory_;
  switch (sink_->write(out_)) {
    case http::WriteResult::kTaken:
    case http::WriteResult::kGone:  // its hang-up has cancelled the work
      out_.clear();
      account();
      break;
    case http::WriteResult::kFull:
      is_stalled_ = true;
      account();
      break;
  }
  return has_memory_ && !is_stalled_;
}

bool AnswerOutput::flush_many() {
  return stream_ && out_.size() >= kFlushBytes ? flush() : has_memory_;
}

api::Error AnswerOutput::memory_error() const {
  const uint64_t limit = budget_.account_limit_bytes();
  // An answer that alone comes near the limit will not fit later either.
  return memory_.bytes() > limit / 2
             ? api::answer_too_large(api::TooLarge::kAnswer, memory_.bytes(), limit)
             : api::overloaded(1);
}

void AnswerOutput::complete(const std::string& id) {
  if (stream_) return sink_->finish();
  memory_.resize(0);  // whoever takes the body accounts for it
  sink_->send(id, std::move(out_));
}

bool AnswerOutput::fail(const std::string& id, const api::Error& error) {
  if (!stream_) return sink_->fail(id, error, {});
  std::string frame = writer_ != nullptr ? writer_->failure(error) : std::string();
  if (frame.empty()) {
    frame = kind_.error_frame(error);
  } else {
    frame.insert(0, out_);  // it tells of all that was written
  }
  return sink_->fail(id, error, frame);
}

void AnswerOutput::release() {
  memory_.resize(0);
  writer_.reset();
  out_ = std::string();
}

}  // namespace skein
