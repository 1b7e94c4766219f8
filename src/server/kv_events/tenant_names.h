// TenantNames: what a router calls the tenants whose requests it sends, by their salts. A router
// that keeps tenants apart finds its own name of one in the KV events, and else finds nothing of
// theirs.
//
// The latest kMaxNames are kept; the name of one that comes again later is known again then. Any
// thread may use it.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "base/hash.h"

namespace skein {

class TenantNames {
 public:
  static constexpr size_t kMaxNames = 16'384;
  static constexpr size_t kMaxBytes = 512;  // of a name

  // A longer name is not kept.
  void add(const Hash128& salt, std::string_view name) {
    if (name.empty() || name.size() > kMaxBytes) return;
    const std::lock_guard lock(mutex_);
    if (!names_.try_emplace(salt, name).second) return;
    order_.push_back(salt);
    if (order_.size() <= kMaxNames) return;
    names_.erase(order_.front());
    order_.pop_front();
  }

  // Empty: it has none.
  std::string find(const Hash128& salt) const {
    const std::lock_guard lock(mutex_);
    const auto found = names_.find(salt);
    return found == names_.end() ? std::string() : found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<Hash128, std::string> names_;
  std::deque<Hash128> order_;  // of their coming
};

}  // namespace skein
