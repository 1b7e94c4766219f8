#include "server/store/file_budget.h"

#include <algorithm>
#include <utility>

#include "server/store/state_space.h"

namespace skein {

Result<std::unique_ptr<FileClaim>> FileBudget::claim(const std::string& owner) {
  SKEIN_TRY(space_.admit(0));
  SKEIN_TRY(take(owner, {1, 0}));
  return std::make_unique<FileClaim>(*this, owner, FileClaim::Kind::kUpload);
}

std::unique_ptr<FileClaim> FileBudget::claim_output(const std::string& owner) {
  add(owner, {1, 0});
  return std::make_unique<FileClaim>(*this, owner, FileClaim::Kind::kOutput);
}

Status FileBudget::take_bytes(const std::string& owner, uint64_t bytes) {
  if (space_.is_low()) {
    return resource_exhausted(
        "state folder: {} bytes and {} files are free, which is below the floor",
        space_.free_bytes(), space_.free_files());
  }
  SKEIN_TRY(take(owner, {0, bytes}));
  const std::lock_guard lock(mutex_);
  unsettled_[owner] += bytes;
  return {};
}

void FileBudget::settle_bytes(const std::string& owner, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
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

Status FileBudget::take(const std::string& owner, const FileUse& more) {
  const std::lock_guard lock(mutex_);
  SKEIN_TRY(check_locked(owner, more));
  FileUse& use = by_owner_[owner];
  use.files += more.files;
  use.bytes += more.bytes;
  all_.files += more.files;
  all_.bytes += more.bytes;
  return {};
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
  FileUse& sum = by_owner_[owner];
  sum.files += use.files;
  sum.bytes += use.bytes;
  all_.files += use.files;
  all_.bytes += use.bytes;
}

// What another server has added may be removed here before it was counted.
void FileBudget::remove(const std::string& owner, const FileUse& use) {
  const std::lock_guard lock(mutex_);
  const auto found = by_owner_.find(owner);
  if (found == by_owner_.end()) return;
  const FileUse gone{std::min(found->second.files, use.files),
                     std::min(found->second.bytes, use.bytes)};
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
  const auto count = [this](const std::string& owner, const FileUse& use) {
    FileUse& sum = by_owner_[owner];
    sum.files += use.files;
    sum.bytes += use.bytes;
    all_.files += use.files;
    all_.bytes += use.bytes;
  };
  for (const auto& [owner, use] : stored) count(owner, use);
  for (const auto& [owner, bytes] : unsettled_) count(owner, {0, bytes});
  for (const FileClaim* claim : claims_) count(claim->owner_, {1, claim->bytes_});
}

FileUse FileBudget::use_of(const std::string& owner) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_owner_.find(owner);
  return found == by_owner_.end() ? FileUse{} : found->second;
}

FileClaim::FileClaim(FileBudget& budget, std::string owner, Kind kind)
    : budget_(budget), owner_(std::move(owner)), kind_(kind) {
  const std::lock_guard lock(budget_.mutex_);
  budget_.claims_.insert(this);
}

FileClaim::~FileClaim() {
  {
    const std::lock_guard lock(budget_.mutex_);
    budget_.claims_.erase(this);
  }
  if (!kept_) budget_.remove(owner_, {1, bytes_});
}

void FileClaim::keep() {
  kept_ = true;
  const std::lock_guard lock(budget_.mutex_);
  budget_.claims_.erase(this);
}

Status FileClaim::grow(uint64_t bytes) {
  if (kind_ == Kind::kOutput) {
    budget_.add(owner_, {0, bytes});
  } else {
    SKEIN_TRY(budget_.space_.admit(bytes));
    SKEIN_TRY(budget_.take(owner_, {0, bytes}));
  }
  const std::lock_guard lock(budget_.mutex_);
  bytes_ += bytes;
  return {};
}

}  // namespace skein
