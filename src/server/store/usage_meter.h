// Adds up what each owner used and writes the sums to the database in groups.
//
// Counts are kept in memory between flushes: a kill -9 loses those of the last half second, a clean
// end loses none, and a flush that the disk refuses is tried again. Any thread may add; the store's
// thread flushes.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "server/store/database.h"
#include "server/store/records.h"

namespace skein {

class UsageMeter {
 public:
  void add(const std::string& owner, const UsageCounts& counts);
  // One transaction for all owners; outside of any other.
  Status flush(Database& db);

 private:
  // In order: two servers that write the same rows must not wait for each other.
  using Sums = std::map<std::string, UsageCounts>;
  static Status write(Database& db, const Sums& sums);

  std::mutex mutex_;
  Sums sums_;  // mutex_
};

}  // namespace skein
