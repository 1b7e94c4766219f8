#include "engine/forms/form_disposal.h"

#include <exception>
#include <utility>

#include "base/resources.h"

namespace skein {

void FormDisposal::add(std::shared_ptr<const void> form) noexcept {
  if (queue(form)) added_.notify_one();
}

// False, and it is still the caller's.
bool FormDisposal::queue(std::shared_ptr<const void>& form) noexcept try {
  const std::lock_guard lock(mutex_);
  if (stopping_) return false;
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  waiting_.push_back(nullptr);
  waiting_.back() = std::move(form);
  return true;
} catch (const std::exception&) {
  return false;
}

void FormDisposal::serve() {
  give_way();
  std::unique_lock lock(mutex_);
  while (true) {
    added_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::shared_ptr<const void> form = std::move(waiting_.back());
    waiting_.pop_back();
    lock.unlock();
    form.reset();
    lock.lock();
  }
}

void FormDisposal::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  added_.notify_one();
  if (thread_.joinable()) thread_.join();
}

}  // namespace skein
