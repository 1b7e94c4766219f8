#include "server/observe/recent_requests.h"

#include <chrono>
#include <utility>

namespace skein {

void RecentRequests::add(std::string owner, FinishedRequest request) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const std::lock_guard lock(mutex_);
  if (entries_.size() == kKept) entries_.pop_front();
  entries_.push_back({std::move(owner), now_ms, std::move(request)});
}

std::vector<RecentRequests::Entry> RecentRequests::list(std::string_view owner, bool all,
                                                        size_t limit) const {
  std::vector<Entry> found;
  const std::lock_guard lock(mutex_);
  for (auto it = entries_.rbegin(); it != entries_.rend() && found.size() < limit; ++it) {
    if (all || it->owner == owner) found.push_back(*it);
  }
  return found;
}

}  // namespace skein
