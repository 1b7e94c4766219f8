#include "server/store/file_budget.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "server/store/state_space.h"

namespace skein {

Result<std::unique_ptr<FileClaim>> FileBudget::claim(const std::string& owner) {
  SKEIN_TRY(space_.admit(0));
  auto claim = std::make_unique<FileClaim>(*this, owner, FileClaim::Kind::kUpload);
  SKEIN_TRY(claim->begin());
  return claim;
}

std::unique_ptr<FileClaim> FileBudget::claim_output(const std::string& owner) {
  auto claim = std::make_unique<FileClaim>(*this, owner, FileClaim::Kind::kOutput);
  const Status begun = claim->begin();
  SKEIN_CHECK(begun.ok(), "an output was refused: {}", begun.message());
  return claim;
}

Status FileBudget::take_bytes(const std::string& owner, uint64_t bytes) {
  if (space_.is_low()) {
    return resource_exhausted(
        "state folder: {} bytes and {} files are free, which is below the floor",
        space_.free_bytes(), space_.free_files());
  }
  const std::lock_guard lock(mutex_);
  SKEIN_TRY(check_locked(owner, {0, bytes}));
  uint64_t& unsettled = unsettled_[owner];  // what may throw comes before what is counted
  add_locked(owner, {0, bytes});
  unsettled += bytes;
  return {};
}

void FileBudget::settle_bytes(const std::string& owner, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  settle_locked(owner, bytes);
}

// At once: a count that came between would have left them out already.
void FileBudget::give_back_bytes(const std::string& owner, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  settle_locked(owner, bytes);
  remove_locked(owner, {0, bytes});
}

void FileBudget::settle_locked(const std::string& owner, uint64_t bytes) {
  const auto found = unsettled_.find(owner);
  SKEIN_CHECK(found != unsettled_.end() && found->second >= bytes, "bytes of '{}' were not taken",
              owner);
  found->second -= bytes;
  if (found->second == 0) unsettled_.erase(found);
}

Status FileBudget::check(const std::string& owner) {
  SKEIN_TRY(space_.admit(0));
  const std::lock_guard lock(mutex_);
  return check_locked(owner, {1, 1});
}

Status FileBudget::check_locked(const std::string& owner, const FileUse& more) const {
  const auto found = by_owner_.find(owner);
  const FileUse use = found == by_owner_.end() ? FileUse{} : found->second;
  const auto exceeds = [](uint64_t limit, uint64_t used, uint64_t wanted) {
    return limit != 0 && wanted != 0 && (used >= limit || wanted > limit - used);
  };
  if (exceeds(limits_.files_per_key, use.files, more.files)) {
    return invalid_argument("This key has {} files, and {} is the most; delete some.", use.files,
                            limits_.files_per_key);
  }
  if (exceeds(limits_.bytes_per_key, use.bytes, more.bytes)) {
    return invalid_argument(
        "The files and responses of this key have {} bytes, and {} is the most; delete some.",
        use.bytes, limits_.bytes_per_key);
  }
  if (exceeds(limits_.files, all_.files, more.files)) {
    return resource_exhausted("all keys have {} files, and {} is the most", all_.files,
                              limits_.files);
  }
  if (exceeds(limits_.bytes, all_.bytes, more.bytes)) {
    return resource_exhausted(
        "the files and responses of all keys have {} bytes, and {} is the most", all_.bytes,
        limits_.bytes);
  }
  return {};
}

void FileBudget::add(const std::string& owner, const FileUse& use) {
  const std::lock_guard lock(mutex_);
  add_locked(owner, use);
}

void FileBudget::add_locked(const std::string& owner, const FileUse& use) {
  FileUse& sum = by_owner_[owner];
  sum.files += use.files;
  sum.bytes += use.bytes;
  all_.files += use.files;
  all_.bytes += use.bytes;
}

void FileBudget::remove(const std::string& owner, const FileUse& use) {
  const std::lock_guard lock(mutex_);
  remove_locked(owner, use);
}

// What was not counted is not taken off either: a count that is too low would let its key keep more
// than its limit.
void FileBudget::remove_locked(const std::string& owner, const FileUse& use) {
  const auto found = by_owner_.find(owner);
  const FileUse known = found == by_owner_.end() ? FileUse{} : found->second;
  const FileUse gone{std::min(known.files, use.files), std::min(known.bytes, use.bytes)};
  const bool is_whole = gone.files == use.files && gone.bytes == use.bytes;
  if (!is_whole && counts_ == Counts::kOwn && !std::exchange(has_miscounted_, true)) {
    log_error("store: {} files of {} bytes of '{}' went, of {} of {} bytes that were counted",
              use.files, use.bytes, owner, known.files, known.bytes);
  }
  if (found == by_owner_.end()) return;
  found->second.files -= gone.files;
  found->second.bytes -= gone.bytes;
  all_.files -= gone.files;
  all_.bytes -= gone.bytes;
  if (found->second.files == 0 && found->second.bytes == 0) by_owner_.erase(found);
}

void FileBudget::replace(const std::map<std::string, FileUse>& stored) {
  const std::lock_guard lock(mutex_);
  by_owner_.clear();
  all_ = {};
  for (const auto& [owner, use] : stored) add_locked(owner, use);
  for (const auto& [owner, bytes] : unsettled_) add_locked(owner, {0, bytes});
  for (const FileClaim* claim : claims_) add_locked(claim->owner_, {1, claim->bytes_});
}

FileUse FileBudget::use_of(const std::string& owner) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_owner_.find(owner);
  return found == by_owner_.end() ? FileUse{} : found->second;
}

FileClaim::FileClaim(FileBudget& budget, std::string owner, Kind kind)
    : budget_(budget), owner_(std::move(owner)), kind_(kind) {}

Status FileClaim::begin() {
  const std::lock_guard lock(budget_.mutex_);
  if (kind_ == Kind::kUpload) SKEIN_TRY(budget_.check_locked(owner_, {1, 0}));
  budget_.by_owner_.try_emplace(owner_);  // what may throw comes before what is counted
  budget_.claims_.insert(this);
  budget_.add_locked(owner_, {1, 0});
  return {};
}

// What a claim holds and what is counted of it change together, since others may count anew at any
// time.
FileClaim::~FileClaim() {
  const std::lock_guard lock(budget_.mutex_);
  if (budget_.claims_.erase(this) > 0) budget_.remove_locked(owner_, {1, bytes_});
}

void FileClaim::keep() {
  const std::lock_guard lock(budget_.mutex_);
  budget_.claims_.erase(this);
}

Status FileClaim::grow(uint64_t bytes) {
  if (kind_ == Kind::kUpload) SKEIN_TRY(budget_.space_.admit(bytes));
  const std::lock_guard lock(budget_.mutex_);
  if (kind_ == Kind::kUpload) SKEIN_TRY(budget_.check_locked(owner_, {0, bytes}));
  budget_.add_locked(owner_, {0, bytes});
  bytes_ += bytes;
  return {};
}

}  // namespace skein
