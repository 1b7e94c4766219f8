// ByteBudget: one limit on the bytes that all requests hold together: bodies while they are read,
// what is made of them until it is submitted, and answers until they are read.
//
//   ByteBudget::Hold hold(budget, key_id);
//   if (!hold.resize(body.size())) refuse(503);
//
// An account (a key's id; all callers without a key are one) holds at most half of it, so no key
// can take all. Invariants: used() is the sum of all holds and never passes the limit; what a hold
// has is given back when it goes. The budget outlives its holds. Thread-safety: any thread may use
// a budget; a hold is for one thread at a time.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace skein {

class ByteBudget {
 public:
  static constexpr uint64_t kDefaultBytes = uint64_t{256} << 20;

  explicit ByteBudget(uint64_t limit_bytes = kDefaultBytes) : limit_bytes_(limit_bytes) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  uint64_t limit_bytes() const { return limit_bytes_; }
  uint64_t account_limit_bytes() const { return limit_bytes_ / 2; }
  uint64_t used_bytes() const {
    const std::lock_guard lock(mutex_);
    return used_bytes_;
  }

  class Hold {
   public:
    Hold(ByteBudget& budget, std::string_view account) : budget_(budget), account_(account) {}
    ~Hold() { resize(0); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

    // False, and nothing has changed, when it would be too much. Less is never refused.
    bool resize(uint64_t bytes) {
      if (bytes == bytes_) return true;
      if (!budget_.change(account_, bytes_, bytes)) return false;
      bytes_ = bytes;
      return true;
    }
    uint64_t bytes() const { return bytes_; }

   private:
    ByteBudget& budget_;
    const std::string account_;
    uint64_t bytes_ = 0;
  };

 private:
  bool change(const std::string& account, uint64_t from_bytes, uint64_t to_bytes) {
    const std::lock_guard lock(mutex_);
    if (to_bytes < from_bytes) {
      used_bytes_ -= from_bytes - to_bytes;
      const auto found = by_account_.find(account);
      found->second -= from_bytes - to_bytes;
      if (found->second == 0) by_account_.erase(found);
      return true;
    }
    const uint64_t more = to_bytes - from_bytes;
    if (more > limit_bytes_ - used_bytes_) return false;
    uint64_t& held = by_account_[account];
    if (more > account_limit_bytes() - held) {
      if (held == 0) by_account_.erase(account);
      return false;
    }
    held += more;
    used_bytes_ += more;
    return true;
  }

  const uint64_t limit_bytes_;
  mutable std::mutex mutex_;
  uint64_t used_bytes_ = 0;
  std::unordered_map<std::string, uint64_t> by_account_;  // of those that hold something
};

}  // namespace skein
