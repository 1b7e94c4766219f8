// A bounded queue of messages from many threads to one: the only way into the engine's thread.
//
//   sender:    SKEIN_TRY(mailbox.push(std::move(message)));
//   receiver:  mailbox.wait();
//              mailbox.drain(messages);
//
// Invariants: (1) a message that was accepted is drained exactly once, also after close();
// (2) messages of one sender arrive in the order of their pushes; (3) at most `capacity` messages
// are held; (4) a drain into a vector that has room for `capacity` messages allocates nothing.
// Any thread may push, wake and close; one thread waits and drains.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/time.h"

namespace skein {

template <class T>
class Mailbox {
 public:
  explicit Mailbox(size_t capacity) : capacity_(capacity) { queue_.reserve(capacity); }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // kResourceExhausted when it is full, kUnavailable when it is closed; the message is dropped
  // then.
  Status push(T message) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return unavailable("the mailbox is closed");
      if (queue_.size() >= capacity_) {
        return resource_exhausted("the mailbox is full: it holds {} messages", capacity_);
      }
      queue_.push_back(std::move(message));
    }
    arrived_.notify_one();
    return {};
  }

  // Takes everything, in order; what was in `messages` goes. The two change places, so both keep
  // their memory.
  void drain(std::vector<T>& messages) {
    messages.clear();
    messages.reserve(capacity_);
    const std::lock_guard lock(mutex_);
    queue_.swap(messages);
  }

  // Sleeps until there is a message, a wake(), or the mailbox is closed, but no longer than that.
  void wait(TimeUs timeout_us = kNever) {
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return !queue_.empty() || closed_ || woken_; };
    if (timeout_us == kNever) {
      arrived_.wait(lock, ready);
    } else {
      arrived_.wait_for(lock, std::chrono::microseconds(timeout_us), ready);
    }
    woken_ = false;
  }

  // Ends the wait that is going on, or else the next one.
  void wake() {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    arrived_.notify_one();
  }

  // No more pushes. Messages that are inside can still be drained.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    arrived_.notify_one();
  }

  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<T> queue_;
  bool closed_ = false;
  bool woken_ = false;
};

}  // namespace skein
