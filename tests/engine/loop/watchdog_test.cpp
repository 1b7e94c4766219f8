// Watchdog: it looks again and again, whatever a look does, until it is destroyed.
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <stdexcept>
#include <thread>

#include "engine/loop/step_watch.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

TEST(Watchdog, LooksAgainAfterALookThatThrew) {
  std::atomic<int> looks = 0;
  const Watchdog watchdog(kUsPerMs, [&] {
    if (++looks == 1) throw std::runtime_error("planted fault");
  });
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (looks < 3 && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
  EXPECT_GE(looks, 3);
}

TEST(Watchdog, IsDestroyedAtOnceBetweenTwoLooksAndAfterOneThatIsUnderWay) {
  const auto before = std::chrono::steady_clock::now();
  {
    const Watchdog never_looks(3600 * kUsPerSecond, [] { FAIL(); });
  }
  EXPECT_LT(std::chrono::steady_clock::now() - before, 60s);
  std::atomic<bool> inside = false, over = false;
  {
    const Watchdog watchdog(kUsPerMs, [&] {
      inside = true;
      std::this_thread::sleep_for(20ms);
      over = true;
    });
    while (!inside) std::this_thread::sleep_for(1ms);
  }
  EXPECT_TRUE(over);
}

}  // namespace
}  // namespace skein
