// Models whose load killed the server, which nobody but an operator may try again.
//
// A load is noted before it begins and the note goes when it ends, well or not, and with an orderly
// stop. A note that a server finds when it starts is of a process that died in that load: the model
// is refused until its files change (names, sizes, times of change) or it is forgiven.
//
// Thread-safety: any thread but the store's; calls wait for the store. Where the note cannot be
// written (a full disk) the load goes on without one; where it cannot be removed, that is tried
// again at every tick of the store, so that a later death is not blamed on a load that went well.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/store/database.h"
#include "server/store/store_thread.h"

namespace skein {

class ModelQuarantine {
 public:
  // Servers that share a store have files of their own: notes are under the server's name.
  ModelQuarantine(StoreThread& thread, const std::string& node);

  // `path` is a model's file or folder. kDataLoss: it is quarantined.
  Status begin_load(const std::string& path);
  void end_load(const std::string& path);
  // No load counts from here on: the server stops, and the process may end in the middle of one.
  void end_all_loads();
  // Whoever runs the server wants it tried again.
  void forgive(const std::string& path);
  // On the store's thread: removes the notes that end_load() could not.
  void remove_left_notes(Database& db);

 private:
  StoreThread& thread_;
  const std::string prefix_;  // of paths in the store
  std::mutex mutex_;
  std::vector<std::string> left_;  // paths of notes that could not be removed
};

// When a server starts: notes of loads become quarantines, unless the machine itself was started
// anew since (`died` is false). Inside a transaction.
Status quarantine_loads(Database& db, const std::string& node, bool died);

}  // namespace skein
