#include "apps/interrupt.h"

namespace skein::apps {
namespace {

// A signal handler can reach nothing but what is static.
std::atomic<bool> is_pressed{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void press(int) {
  is_pressed.store(true, std::memory_order_relaxed);
}

}  // namespace

InterruptFlag::InterruptFlag() {
  clear();
  struct sigaction action = {};
  action.sa_handler = press;  // without SA_RESTART: reads end
  sigaction(SIGINT, &action, &before_);
}

InterruptFlag::~InterruptFlag() {
  sigaction(SIGINT, &before_, nullptr);
}

const std::atomic<bool>& InterruptFlag::pressed() const {
  return is_pressed;
}

void InterruptFlag::clear() {
  is_pressed.store(false, std::memory_order_relaxed);
}

}  // namespace skein::apps
