#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>
#include <string>
#include <utility>

#include "server/auth/api_key.h"
#include "server/auth/key_ring.h"

namespace skein {
namespace {

// The shortest of many short stretches, taken in turns: a stretch of tens of microseconds lies
// between a busy machine's interruptions often enough, and its slow hours meet both alike.
class Stopwatch {
 public:
  explicit Stopwatch(std::string credential) : credential_(std::move(credential)) {}
  void run(const KeyRing& ring) {
    const auto start = std::chrono::steady_clock::now();
    bool known = false;
    for (int i = 0; i < 20; ++i) known |= ring.authenticate(credential_) != nullptr;
    best_ = std::min<std::chrono::nanoseconds>(best_, std::chrono::steady_clock::now() - start);
    EXPECT_FALSE(known);
  }
  double best() const { return static_cast<double>(best_.count()); }

 private:
  const std::string credential_;
  std::chrono::nanoseconds best_ = std::chrono::nanoseconds::max();
};

// Unknown ids and wrong secrets must not be told apart by the clock. The bound is wide, since
// machines are noisy; one digest more or less would be a factor of two.
TEST(KeyRingTiming, UnknownIdAndWrongSecretCostTheSame) {
  KeyRecord key;
  key.id = make_key_id();
  KeyRing ring(HashKey{});
  ring.replace({key});
  Stopwatch wrong_secret(key_text(key.id, make_secret()));
  Stopwatch unknown_id(key_text(make_key_id(), make_secret()));
  for (int round = 0; round < 2000; ++round) {
    wrong_secret.run(ring);
    unknown_id.run(ring);
  }
  const double ratio = wrong_secret.best() / unknown_id.best();
  EXPECT_GT(ratio, 0.7);
  EXPECT_LT(ratio, 1.4);
}

}  // namespace
}  // namespace skein
