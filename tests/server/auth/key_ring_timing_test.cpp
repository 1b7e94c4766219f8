#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>

#include "server/auth/api_key.h"
#include "server/auth/key_ring.h"

namespace skein {
namespace {

// Unknown ids and wrong secrets must not be told apart by the clock. The bound is wide, since
// machines are noisy; one digest more or less would be a factor of two.
TEST(KeyRingTiming, UnknownIdAndWrongSecretCostTheSame) {
  KeyRecord key;
  key.id = make_key_id();
  KeyRing ring(HashKey{});
  ring.replace({key});
  const auto best_of = [&ring](const std::string& credential) {
    auto best = std::chrono::nanoseconds::max();
    for (int round = 0; round < 100; ++round) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 100; ++i) EXPECT_EQ(ring.authenticate(credential), nullptr);
      best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - start);
    }
    return static_cast<double>(best.count());
  };
  const double ratio =
      best_of(key_text(key.id, make_secret())) / best_of(key_text(make_key_id(), make_secret()));
  EXPECT_GT(ratio, 0.7);
  EXPECT_LT(ratio, 1.4);
}

}  // namespace
}  // namespace skein
