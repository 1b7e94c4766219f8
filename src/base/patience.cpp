#include "base/patience.h"

#include <chrono>
#include <ctime>
#include <exception>
#include <new>

namespace skein {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr uint32_t kTries = 20;  // of a millisecond each
constexpr uint32_t kPatientTries = 5'000;
constexpr long kPauseNs = 1'000'000;
// A failed try that comes so soon after the last one belongs to the same allocation.
constexpr std::chrono::milliseconds kSameAllocation{20};

struct Shortage {
  uint32_t tries = 0;
  SteadyClock::time_point last;
};

thread_local Shortage shortage;

// The handler that `operator new` calls between two tries.
void try_again() {
  const auto now = SteadyClock::now();
  if (now - shortage.last > kSameAllocation) shortage.tries = 0;
  const bool must_not_fail = PatientScope::is_open() || std::uncaught_exceptions() > 0;
  if (++shortage.tries > (must_not_fail ? kPatientTries : kTries)) {
    shortage.tries = 0;
    throw std::bad_alloc();
  }
  timespec pause{0, kPauseNs};
  ::nanosleep(&pause, nullptr);
  shortage.last = SteadyClock::now();
}

}  // namespace

void wait_for_memory() {
  std::set_new_handler(try_again);
}

}  // namespace skein
