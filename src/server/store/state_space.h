// Room on the disk that holds the state folder.
//
// Uploads and new batches are refused below the floor, of bytes or of files that the disk can still
// name (a disk can run out of either). Below that the store still writes what must
// not be lost (the results of lines), until the disk is full. For that moment a file of real
// blocks, the ballast, holds some room back: it is removed so that keys can be revoked and files
// deleted whatever else is full, and made again when there is room. It is left out where it does
// not fit.
//
// Thread-safety: any thread; the figures are atomics, so that a probe costs nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace skein {

class StateSpace {
 public:
  static constexpr uint64_t kFloorFiles = 64;
  // A floor of 0: none. Without a folder nothing is known of the disk, and there is no ballast.
  StateSpace(std::string folder, uint64_t floor_bytes, uint64_t floor_files = kFloorFiles);

  // As of the latest look at the disk, which the store takes about twice a second.
  uint64_t free_bytes() const { return free_bytes_.load(std::memory_order_relaxed); }
  uint64_t free_files() const { return free_files_.load(std::memory_order_relaxed); }
  bool is_low() const { return free_bytes() < floor_bytes_ || free_files() < floor_files_; }
  // The ballast is gone and its room is all that is left: only what frees room is written.
  bool is_reserved() const { return !has_ballast_ && free_bytes() < ballast_bytes_; }

  // Looks at the disk now: kResourceExhausted when less than the floor would be left after `bytes`.
  Status admit(uint64_t bytes);
  void measure();
  // Makes the ballast where there is room for twice its size.
  void restore_ballast();
  // True: there was a ballast, and its room is free now.
  bool release_ballast();

 private:
  std::string ballast_path() const { return folder_ + "/ballast"; }

  const std::string folder_;
  const uint64_t floor_bytes_;
  const uint64_t floor_files_;
  uint64_t ballast_bytes_ = 0;                    // at most 4 MiB, and a sixteenth of the disk
  std::atomic<uint64_t> free_bytes_{UINT64_MAX};  // UINT64_MAX: the disk does not say
  std::atomic<uint64_t> free_files_{UINT64_MAX};  // the same
  std::atomic<bool> has_ballast_{false};
};

}  // namespace skein
