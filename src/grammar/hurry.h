// How much work a question may still take, of who cannot wait for more.
//
// Only what is really done counts here, and what is known from before costs nothing, so that it is
// no limit of a form as WorkLimits are. It says that whoever asks cannot wait: the question is not
// answered, and somebody else has to ask it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace skein::grammar {

// Work that several may take from who have used up their own. Any thread.
class SharedWork {
 public:
  void begin(uint64_t work) { left_.store(work, std::memory_order_relaxed); }
  // As much of `wanted` as there is.
  uint64_t take(uint64_t wanted) {
    uint64_t left = left_.load(std::memory_order_relaxed);
    while (!left_.compare_exchange_weak(left, left - std::min(left, wanted),
                                        std::memory_order_relaxed)) {
    }
    return std::min(left, wanted);
  }

 private:
  std::atomic<uint64_t> left_ = 0;
};

// For most questions, any.
class Hurry {
 public:
  // Where that is not enough, `more` may have some.
  void begin(uint64_t work, SharedWork* more = nullptr) {
    left_ = work;
    more_ = more;
    late_ = false;
  }
  void end() { begin(UINT64_MAX); }
  // False, now and from here on, where it takes more than is left.
  bool takes(uint64_t work) {
    if (work > left_ && more_ != nullptr) left_ += more_->take(std::max(work - left_, kPiece));
    late_ = late_ || work > left_;
    left_ -= late_ ? 0 : work;
    return !late_;
  }
  bool late() const { return late_; }

 private:
  static constexpr uint64_t kPiece = 1000;  // so that few are taken

  uint64_t left_ = UINT64_MAX;
  SharedWork* more_ = nullptr;
  bool late_ = false;
};

// While one lives, what is done counts for nobody: it was taken before, or cannot be left half
// done.
class Unhurried {
 public:
  explicit Unhurried(Hurry& hurry) : hurry_(hurry), before_(hurry) { hurry_.end(); }
  ~Unhurried() { hurry_ = before_; }
  Unhurried(const Unhurried&) = delete;
  Unhurried& operator=(const Unhurried&) = delete;

 private:
  Hurry& hurry_;
  const Hurry before_;
};

}  // namespace skein::grammar
