// TraceSender: what Traces does on its thread, and shares with it.
//
// The thread owns it too: a resolver that hangs may keep it beyond its Traces.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/observe/traces.h"
#include "server/store/file_folder.h"

namespace skein {

class TraceSender {
 public:
  TraceSender(TraceEndpoint endpoint, TraceSource source)
      : endpoint_(std::move(endpoint)), source_(std::move(source)) {
    waiting_.reserve(Traces::kMaxWaiting);
  }

  void add(const FinishedRequest& request);
  uint64_t dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
  }
  void run();
  // False: the thread is still at it, and says nothing any more.
  bool close();

 private:
  void send(const std::vector<TracedRequest>& requests);
  Status post(const std::string& message);
  Result<OwnedFd> connect();
  Status write(const OwnedFd& fd, std::string_view message) const;
  Status read_answer(const OwnedFd& fd) const;
  // False: not within the time that this POST has.
  bool wait_for(const OwnedFd& fd, short events) const;
  void drop(uint64_t requests, std::string_view why);

  const TraceEndpoint endpoint_;
  const TraceSource source_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TracedRequest> waiting_;  // mutex_
  uint64_t dropped_ = 0;                // mutex_
  bool closing_ = false;                // mutex_
  bool ended_ = false;                  // mutex_
  bool is_left_ = false;                // mutex_; nobody waits for the thread, nor for its log
  std::atomic<std::chrono::steady_clock::time_point> finish_by_{
      std::chrono::steady_clock::time_point::max()};

  // The thread's own.
  std::chrono::steady_clock::time_point began_;  // the POST
  bool has_complained_ = false;
};

}  // namespace skein
