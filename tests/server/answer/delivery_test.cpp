#include "server/answer/delivery.h"

#include <chrono>
#include <gtest/gtest.h>
#include <new>
#include <semaphore>
#include <vector>

namespace skein {
namespace {

// Counts what it is told; throws, as for want of memory, where it is asked to.
class Counted final : public Deliverable {
 public:
  explicit Counted(bool throws) : throws_(throws) {}
  void advance() override {
    if (throws_) throw std::bad_alloc();
    told_.release();
  }
  void give_up() noexcept override {
    ++given_up_;
    told_.release();
  }
  void wait() { told_.acquire(); }
  int given_up() const { return given_up_; }

 private:
  const bool throws_;
  int given_up_ = 0;
  std::counting_semaphore<> told_{0};
};

TEST(Delivery, AnAnswerThatThrowsIsGivenUpAlone) {
  Delivery delivery;
  const auto broken = std::make_shared<Counted>(true), sound = std::make_shared<Counted>(false);
  delivery.post(broken);
  delivery.post(sound);
  broken->wait();
  sound->wait();
  EXPECT_EQ(broken->given_up(), 1);
  EXPECT_EQ(sound->given_up(), 0);
  delivery.post(sound);  // the thread goes on
  sound->wait();
}

TEST(Delivery, RemindsInTimeOfWhatIsStillThere) {
  Delivery delivery;
  const auto now = std::chrono::steady_clock::now();
  const auto late = std::make_shared<Counted>(false), soon = std::make_shared<Counted>(false);
  delivery.remind(late, now + std::chrono::milliseconds(60));
  delivery.remind(soon, now + std::chrono::milliseconds(20));
  delivery.remind(std::make_shared<Counted>(true), now);  // gone when its time comes
  soon->wait();
  EXPECT_GE(std::chrono::steady_clock::now(), now + std::chrono::milliseconds(20));
  late->wait();
  EXPECT_GE(std::chrono::steady_clock::now(), now + std::chrono::milliseconds(60));
}

TEST(Delivery, WhatIsListedWhenItEndsIsDelivered) {
  std::vector<std::shared_ptr<Counted>> answers;
  for (int i = 0; i < 100; ++i) answers.push_back(std::make_shared<Counted>(false));
  {
    Delivery delivery;
    for (const auto& answer : answers) delivery.post(answer);
  }
  for (const auto& answer : answers) answer->wait();
}

}  // namespace
}  // namespace skein
