// RecentRequests: the requests that ended lately, with what took their time. Never their text.
//
// Bounded: the oldest one goes. Any thread may call any member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/observe/finished_request.h"

namespace skein {

class RecentRequests {
 public:
  static constexpr size_t kKept = 512;

  struct Entry {
    std::string owner;  // the id of its key; empty: anonymous
    int64_t ended_at_ms = 0;
    FinishedRequest request;
  };

  void add(std::string owner, FinishedRequest request);
  // The latest first; `all` or those of one owner.
  std::vector<Entry> list(std::string_view owner, bool all, size_t limit) const;

 private:
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;  // the oldest first
};

}  // namespace skein
