// The threads that do the text work of requests, so that I/O threads only move bytes.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace skein::http {

// A bounded queue and its threads. Any thread may post. Tasks do not throw. Tasks start in the
// order of their posts.
class Workers {
 public:
  Workers(size_t threads, size_t queue_limit);
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Runs what is queued, then joins. Idempotent.
  void stop();

  // false, and the task is dropped, when `queue_limit` tasks wait, or after stop().
  bool post(std::function<void()> task);

 private:
  void run();

  const size_t queue_limit_;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace skein::http
