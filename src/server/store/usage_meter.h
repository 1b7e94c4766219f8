// Adds up what each owner used and writes the sums to the database in groups.
//
// Counts are kept in memory between flushes: a kill -9 loses those of the last half second, a clean
// end loses none, and a flush that the disk refuses is tried again. Any thread may add; the store's
// thread flushes.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>

#include "server/store/database.h"
#include "server/store/records.h"

namespace skein {

class UsageMeter {
 public:
  void add(const std::string& owner, const UsageCounts& counts);
  // One transaction for all owners; outside of any other.
  Status flush(Database& db);

 private:
  using Sums = std::unordered_map<std::string, UsageCounts>;
  static Status write(Database& db, const Sums& sums);

  std::mutex mutex_;
  Sums sums_;  // mutex_
};

}  // namespace skein
