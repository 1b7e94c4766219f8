#include "server/http/byte_budget.h"

namespace skein {

uint64_t ByteBudget::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

bool ByteBudget::Hold::resize(uint64_t bytes) {
  if (bytes == bytes_) return true;
  if (!budget_.change(account_, bytes_, bytes)) return false;
  bytes_ = bytes;
  return true;
}

bool ByteBudget::change(const std::string& account, uint64_t from_bytes, uint64_t to_bytes) {
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

}  // namespace skein
