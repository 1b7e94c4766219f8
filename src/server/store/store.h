// The server's durable state: keys, usage, files, batches and responses, all of it in one folder.
//
//   state_dir/            0700
//     skein.db            0600, SQLite (WAL)
//     files/              one file per content, named by id
//     server.lock         held by the one server that runs on this folder
//     ballast             room that is given up when the disk is full (state_space.h)
//
// Thread-safety: any thread. The parts' answers come on the store's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/hash.h"
#include "base/status.h"
#include "server/store/batch_store.h"
#include "server/store/file_budget.h"
#include "server/store/file_folder.h"
#include "server/store/file_store.h"
#include "server/store/key_store.h"
#include "server/store/model_quarantine.h"
#include "server/store/response_store.h"
#include "server/store/state_space.h"
#include "server/store/store_thread.h"
#include "server/store/usage_meter.h"

namespace skein {

struct StoreOptions {
  std::string state_dir;
  // The server: alone on its folder, checks the database whole and removes what a crash left over.
  // Otherwise a tool beside a server that may be running, which leaves all that alone.
  bool is_server = true;
  TimeUs group_window_us = 20 * kUsPerMs;
  int busy_timeout_ms = 5'000;
  uint64_t min_free_bytes = uint64_t{64} << 20;  // uploads and new batches are refused below
  FileLimits file_limits{};
  ResponseLimits response_limits{};
  // The calendar's time; tests put theirs in. Empty: the system's.
  std::function<int64_t()> unix_time_s{};
  // Seconds that nobody can set; likewise.
  std::function<int64_t()> steady_time_s{};
};

// Makes the folder and those above it, if they are missing. Store::open does so itself.
Status make_state_dir(const std::string& path);

class Store {
 public:
  // Creates what is missing. kAlreadyExists: another server holds the folder. kDataLoss: the
  // database is damaged; it is left as it is. kInvalidArgument: it is from a newer skein.
  static Result<std::unique_ptr<Store>> open(StoreOptions options);
  // Whether the folder has a database.
  static bool exists(const std::string& state_dir);
  // Finishes what was asked for.
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  KeyStore& keys() { return keys_; }
  FileStore& files() { return files_; }
  BatchStore& batches() { return batches_; }
  ResponseStore& responses() { return responses_; }
  UsageMeter& usage() { return usage_; }
  ModelQuarantine& quarantine() { return quarantine_; }
  StateSpace& space() { return *space_; }
  FileBudget& file_budget() { return budget_; }

  // Random, made with the folder: what is derived from it (tenants' salts) means nothing elsewhere.
  const HashKey& salt_key() const { return salt_key_; }

  // Of this server, for the lines of batches that it runs; 0 for a tool.
  int64_t epoch() const { return epoch_; }

  int64_t unix_time_s() const { return unix_time_s_(); }
  StoreThread& thread() { return thread_; }
  const FileFolder& file_folder() const { return folder_; }

 private:
  struct Opened {
    std::unique_ptr<Database> db;
    HashKey salt_key;
    int64_t epoch = 0;
  };
  static Result<Opened> open_database(const StoreOptions& options);
  Store(const StoreOptions& options, Opened opened, std::unique_ptr<StateSpace> space,
        OwnedFd lock);
  StoreThread::Options thread_options(const StoreOptions& options);
  bool make_room(Database& db);
  void keys_changed(Database& db);

  const OwnedFd lock_;
  const HashKey salt_key_;
  const int64_t epoch_;
  const std::function<int64_t()> unix_time_s_;
  const FileFolder folder_;
  const std::unique_ptr<StateSpace> space_;
  FileBudget budget_;
  UsageMeter usage_;
  KeyWatch key_watch_;  // the store's thread's
  KeyStore keys_;
  FileStore files_;
  BatchStore batches_;
  ResponseStore responses_;
  ModelQuarantine quarantine_;
  StoreThread thread_;  // last: it ends first, and its last jobs still use the others
};

}  // namespace skein
