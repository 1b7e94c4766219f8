#include "server/answer/live_requests.h"

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

size_t LiveRequests::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace skein
