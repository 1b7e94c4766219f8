// FileBudget: how much each key, and all of them together, may keep in files and in responses.
//
// The counts are those of the table of files, read when the server starts, plus what is being
// written now: an upload takes its room before its bytes go to the disk and gives it back unless it
// is kept. Where servers share a store, the counts are read again every few seconds: what others
// have added meanwhile is not known, so that all of them together may pass a limit by that much.
// Outputs of batches are counted like uploads but never refused: a result is not lost to a limit.
// Responses are bytes without a file.
//
// Thread-safety: FileBudget any thread; a FileClaim belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/status.h"

namespace skein {

class StateSpace;

// 0: no limit.
struct FileLimits {
  uint64_t files_per_key = 10'000;
  uint64_t bytes_per_key = uint64_t{8} << 30;
  uint64_t files = 100'000;  // of all keys
  uint64_t bytes = uint64_t{64} << 30;
};

struct FileUse {
  uint64_t files = 0;
  uint64_t bytes = 0;
};

class FileClaim;

class FileBudget {
 public:
  // kOwn: nobody else adds or removes anything, so that what is removed was counted. kShared:
  // others do, and what one of them has added may be removed here before it was counted.
  enum class Counts : uint8_t { kOwn, kShared };
  // `space` outlives the budget.
  FileBudget(const FileLimits& limits, StateSpace& space, Counts counts)
      : limits_(limits), space_(space), counts_(counts) {}

  // For one file and no byte yet. kInvalidArgument: the key's limit. kResourceExhausted: the limit
  // of all keys, or the disk.
  Result<std::unique_ptr<FileClaim>> claim(const std::string& owner);
  // Whatever the limits are.
  std::unique_ptr<FileClaim> claim_output(const std::string& owner);

  // For bytes that are no file, and are being written. As claim(), by the latest look at the disk.
  Status take_bytes(const std::string& owner, uint64_t bytes);
  // They are written.
  void settle_bytes(const std::string& owner, uint64_t bytes);
  // They are not going to be.
  void give_back_bytes(const std::string& owner, uint64_t bytes);

  // Whether the key may begin a batch, whose output will need room: as claim().
  Status check(const std::string& owner);

  void add(const std::string& owner, const FileUse& use);
  void remove(const std::string& owner, const FileUse& use);
  // Takes what is stored, by owner, as it was just read; what is being written counts beside it.
  void replace(const std::map<std::string, FileUse>& stored);
  FileUse use_of(const std::string& owner) const;  // for tests
  uint64_t used_bytes() const {                    // by all
    const std::lock_guard lock(mutex_);
    return all_.bytes;
  }
  uint64_t limit_bytes() const { return limits_.bytes; }  // 0: none

 private:
  friend class FileClaim;
  // All with mutex_ held.
  Status check_locked(const std::string& owner, const FileUse& more) const;
  void add_locked(const std::string& owner, const FileUse& use);
  void remove_locked(const std::string& owner, const FileUse& use);
  void settle_locked(const std::string& owner, uint64_t bytes);

  const FileLimits limits_;
  StateSpace& space_;
  const Counts counts_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, FileUse> by_owner_;    // mutex_; only owners that have any
  FileUse all_;                                          // mutex_
  std::unordered_map<std::string, uint64_t> unsettled_;  // mutex_; bytes that are being written
  std::unordered_set<const FileClaim*> claims_;          // mutex_; that have not ended
  bool has_miscounted_ = false;                          // mutex_; and the log has heard of it
};

// Room for one file. Gives it back when it goes, unless the file is kept.
class FileClaim {
 public:
  enum class Kind : uint8_t { kUpload, kOutput };
  FileClaim(FileBudget& budget, std::string owner, Kind kind);
  ~FileClaim();
  FileClaim(const FileClaim&) = delete;
  FileClaim& operator=(const FileClaim&) = delete;

  // Before so many more bytes are written. The errors are those of FileBudget::claim().
  Status grow(uint64_t bytes);
  void keep();

 private:
  friend class FileBudget;
  Status begin();

  FileBudget& budget_;
  const std::string owner_;
  const Kind kind_;
  uint64_t bytes_ = 0;  // of the budget's mutex
};

}  // namespace skein
