// The server's durable state: keys, usage, files, batches and responses, all of it in one folder,
// or in a PostgreSQL database that several servers share (docs/FLEET.md).
//
//   state_dir/            0700
//     skein.db            0600, SQLite (WAL)
//     files/              one file per content, named by id
//     server.lock         held by the one server that runs on this folder
//     ballast             room that is given up when the disk is full (state_space.h)
//
// Thread-safety: any thread. The parts' answers come on the store's thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "server/store/batch_store.h"
#include "server/store/file_budget.h"
#include "server/store/file_contents.h"
#include "server/store/file_folder.h"
#include "server/store/file_store.h"
#include "server/store/key_store.h"
#include "server/store/limit_store.h"
#include "server/store/model_quarantine.h"
#include "server/store/response_store.h"
#include "server/store/state_space.h"
#include "server/store/store_thread.h"
#include "server/store/usage_meter.h"

namespace skein {

inline constexpr int64_t kLeaseMs = 10'000;
inline constexpr TimeUs kStorePatienceUs = 3 * kUsPerSecond;  // with a shared one that says nothing

struct StoreOptions {
  std::string state_dir{};
  // postgresql://... for a store that servers share; empty: the folder is all there is.
  std::string url{};
  // The name of this server among those that share the store: no two that run at a time have the
  // same.
  std::string node{};
  int64_t lease_ms = kLeaseMs;  // after so long without a word a server's work is given to others
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

// Whether this build can share stores.
bool has_shared_stores();

// A process needs these for its connections to a shared store; its sandbox leaves them open.
struct StoreAccess {
  std::vector<uint16_t> ports;     // of TCP
  std::vector<std::string> files;  // certificates and passwords
};
// As Store::open() where the URL is none.
Result<StoreAccess> store_access(const std::string& url);

class Store {
 public:
  // Creates what is missing. kAlreadyExists: another server holds the folder. kDataLoss: the
  // database is damaged; it is left as it is. kInvalidArgument: it is from a newer skein, or the
  // URL is none. kUnimplemented: this build has no shared stores.
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
  LimitStore& limits() { return limits_; }  // of a store that is shared
  StateSpace& space() { return *space_; }
  FileBudget& file_budget() { return budget_; }

  // Random, made with the folder: what is derived from it (tenants' salts) means nothing elsewhere.
  const HashKey& salt_key() const { return salt_key_; }

  // The epoch of this server, for the lines of batches that it runs; 0 for a tool.
  int64_t epoch() const { return epoch_; }
  // Where servers share the store and this one's epoch has ended, as when it stood still for longer
  // than its lease: a new one. kNotFound: another server has begun in its place.
  Result<int64_t> begin_new_epoch();
  // Whether it is known that the epoch has ended.
  bool has_lost_epoch() const { return has_lost_epoch_; }
  // The epoch ends, so that others need not wait for the end of its lease: the server stops.
  void end_epoch();
  // The server ends by then, whether or not a shared database answers: Database::finish_by().
  void finish_by(std::chrono::steady_clock::time_point when) { thread_.finish_by(when); }
  bool is_shared() const { return !options_.url.empty(); }
  // For how long the database has not answered; 0: it does.
  int64_t away_s() const;
  // Servers of the store that lived at the latest look, at least 1.
  int64_t nodes() const { return nodes_; }

  int64_t unix_time_s() const { return unix_time_s_(); }
  StoreThread& thread() { return thread_; }
  FileContents& contents() { return *contents_; }

 private:
  struct Opened {
    std::unique_ptr<Database> db;
    HashKey salt_key;
    int64_t epoch = 0;
  };
  static Result<Opened> open_database(const StoreOptions& options);
  static Result<Opened> open_shared(const StoreOptions& options);
  static Result<Opened> begin(std::unique_ptr<Database> db, const StoreOptions& options);
  Store(const StoreOptions& options, Opened opened, std::unique_ptr<StateSpace> space,
        OwnedFd lock);
  StoreThread::Options thread_options(const StoreOptions& options);
  bool make_room(Database& db);
  void keys_changed(Database& db);
  void tick(Database& db);
  void look_elsewhere(Database& db);
  void tick_shared(Database& db);
  static NodeInfo node_of(const StoreOptions& options);
  static TimeUs steady_us();
  static TimeUs first_count_us();
  std::unique_ptr<FileContents> make_contents();

  const StoreOptions options_;
  const OwnedFd lock_;
  const HashKey salt_key_;
  std::atomic<int64_t> epoch_;
  const std::function<int64_t()> unix_time_s_;
  const std::unique_ptr<FileContents> contents_;
  const std::unique_ptr<StateSpace> space_;
  FileBudget budget_;
  UsageMeter usage_;
  KeyWatch key_watch_;           // the store's thread's
  bool is_usage_stuck_ = false;  // the store's thread's
  TimeUs next_renewal_us_ = 0;   // the store's thread's; by steady_us()
  TimeUs next_count_us_;         // the store's thread's; by steady_us()
  std::atomic<bool> has_lost_epoch_{false};
  std::atomic<int64_t> nodes_{1};
  std::atomic<TimeUs> away_since_us_{0};  // 0: it is there; by steady_us()
  KeyStore keys_;
  FileStore files_;
  BatchStore batches_;
  ResponseStore responses_;
  ModelQuarantine quarantine_;
  LimitStore limits_;
  StoreThread thread_;  // last: it ends first, and its last jobs still use the others
};

}  // namespace skein
