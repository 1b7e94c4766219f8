#include "server/answer/delivery.h"

#include <exception>
#include <utility>

#include "base/log.h"
#include "base/patience.h"

namespace skein {

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
    if (std::exchange(answer->listed_, true)) return;
    Deliverable* before = std::exchange(last_, answer.get());
    (before == nullptr ? first_ : before->next_) = std::move(answer);
    if (before != nullptr) return;  // the thread has been told
  }
  posted_.notify_one();
}

void Delivery::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    posted_.wait(lock, [this] { return stopping_ || first_ != nullptr; });
    if (first_ == nullptr) return;
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

}  // namespace skein
