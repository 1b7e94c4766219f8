#include "server/answer/live_requests.h"

#include <algorithm>
#include <utility>

namespace skein {

void LiveRequests::add(const std::string& id, std::string owner,
                       std::weak_ptr<LiveRequest> request) {
  const std::lock_guard lock(mutex_);
  entries_.insert_or_assign(id, Entry{std::move(owner), std::move(request)});
}

void LiveRequests::remove(const std::string& id) {
  const std::lock_guard lock(mutex_);
  entries_.erase(id);
}

std::shared_ptr<LiveRequest> LiveRequests::find(const std::string& id, std::string_view owner,
                                                bool admin) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(id);
  if (it == entries_.end() || (!admin && it->second.owner != owner)) return nullptr;
  return it->second.request.lock();
}

std::vector<RequestBrief> LiveRequests::briefs(std::string_view owner, bool admin,
                                               size_t limit) const {
  std::vector<std::shared_ptr<LiveRequest>> found;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, entry] : entries_) {
      if (found.size() >= limit) break;
      if (!admin && entry.owner != owner) continue;
      if (auto request = entry.request.lock()) found.push_back(std::move(request));
    }
  }
  // Without the lock: they have locks of their own, and the last holder of one destroys it.
  std::vector<RequestBrief> briefs;
  briefs.reserve(found.size());
  for (const auto& request : found) briefs.push_back(request->brief());
  std::sort(briefs.begin(), briefs.end(), [](const RequestBrief& a, const RequestBrief& b) {
    return a.arrived != b.arrived ? a.arrived < b.arrived : a.id < b.id;
  });
  return briefs;
}

size_t LiveRequests::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace skein
