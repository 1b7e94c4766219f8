#include "server/answer/delivery.h"

#include <utility>

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
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(answer->listed_, true)) return;
    list_.push_back(std::move(answer));
    if (list_.size() > 1) return;  // the thread has been told
  }
  posted_.notify_one();
}

void Delivery::run() {
  std::vector<std::shared_ptr<Deliverable>> taken;
  std::unique_lock lock(mutex_);
  while (true) {
    posted_.wait(lock, [this] { return stopping_ || !list_.empty(); });
    if (list_.empty()) return;
    taken.swap(list_);
    // From here on news list them again, also while they are being advanced.
    for (const auto& answer : taken) answer->listed_ = false;
    lock.unlock();
    for (const auto& answer : taken) answer->advance();
    taken.clear();
    lock.lock();
  }
}

}  // namespace skein
