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
  uint64_t used_bytes() const;

  class Hold {
   public:
    Hold(ByteBudget& budget, std::string_view account) : budget_(budget), account_(account) {}
    ~Hold() { resize(0); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

    // False, and nothing has changed, when it would be too much. Less is never refused.
    bool resize(uint64_t bytes);
    uint64_t bytes() const { return bytes_; }

   private:
    ByteBudget& budget_;
    const std::string account_;
    uint64_t bytes_ = 0;
  };

 private:
  bool change(const std::string& account, uint64_t from_bytes, uint64_t to_bytes);

  const uint64_t limit_bytes_;
  mutable std::mutex mutex_;
  uint64_t used_bytes_ = 0;
  std::unordered_map<std::string, uint64_t> by_account_;  // of those that hold something
};

}  // namespace skein
