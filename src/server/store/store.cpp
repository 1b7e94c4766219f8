#include "server/store/store.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <sys/file.h>
#include <sys/stat.h>
#include <utility>
#include <vector>

#include "base/log.h"
#include "server/store/database.h"
#include "server/store/file_parts.h"
#include "server/store/random.h"
#include "server/store/sqlite/sqlite_database.h"

namespace skein {
namespace {

constexpr const char* kDatabase = "/skein.db";

// A folder whose name is not durable takes with it whatever is made so below it.
Status sync_parent_of(const std::string& path) {
  const std::string parent = std::filesystem::absolute(path).parent_path().string();
  const OwnedFd fd(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() >= 0 && ::fsync(fd.get()) == 0) return {};
  return unavailable("state folder {}: {}", path, std::strerror(errno));
}

Status make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0) return sync_parent_of(path);
  if (errno == EEXIST && std::filesystem::is_directory(path)) return {};
  return unavailable("state folder {}: {}", path, std::strerror(errno));
}

// Held until the descriptor is closed, also by a kill -9.
Result<OwnedFd> lock_state_dir(const std::string& path) {
  OwnedFd fd(::open((path + "/server.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (fd.get() < 0) return unavailable("state folder {}: {}", path, std::strerror(errno));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return already_exists(
        "state folder {}: another server is running on it; stop it or choose another --state-dir",
        path);
  }
  return fd;
}

// Empty where it is not known yet.
Result<std::string> meta_value(Database& db, std::string_view name) {
  SKEIN_ASSIGN(const std::vector<std::string> values,
               db.list<std::string>("SELECT value FROM meta WHERE name = $1", {name},
                                    [](const Cursor& row) { return row.text(0); }));
  return values.empty() ? std::string() : values.front();
}

Result<HashKey> load_salt_key(Database& db) {
  std::array<std::byte, sizeof(HashKey)> fresh;
  fill_random(fresh);
  SKEIN_TRY(db.exec("INSERT INTO meta VALUES ('salt_key', $1) ON CONFLICT DO NOTHING",
                    {std::span<const std::byte>(fresh)}));
  SKEIN_ASSIGN(const std::string bytes, meta_value(db, "salt_key"));
  if (bytes.size() != sizeof(HashKey)) {
    return data_loss("store: the salt key has {} bytes, not {}", bytes.size(), sizeof(HashKey));
  }
  HashKey key;
  std::memcpy(&key.low, bytes.data(), sizeof(key.low));
  std::memcpy(&key.high, bytes.data() + sizeof(key.low), sizeof(key.high));
  return key;
}

Status sweep_files(Database& db, const std::string& state_dir) {
  return FileFolder(state_dir + "/files").sweep([&db](const std::string& id) {
    const auto rows = db.integer("SELECT count(*) FROM files WHERE id = $1", {id});
    return !rows.ok() || *rows != 0;  // when in doubt it stays
  });
}

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

// Whether what an earlier server left running is of a process that died, rather than of a machine
// that was started anew; remembers the boot.
Result<bool> is_same_boot(Database& db, const std::string& boot_id) {
  SKEIN_ASSIGN(const std::string known, meta_value(db, "boot_id"));
  if (known == boot_id) return true;
  SKEIN_TRY(
      db.exec("INSERT INTO meta VALUES ('boot_id', $1) ON CONFLICT (name) DO UPDATE SET value "
              "= excluded.value",
              {std::as_bytes(std::span(boot_id))}));
  return known.empty();
}

// Settles once what the last server left running, and returns the epoch of this one.
Result<int64_t> settle_death(Database& db, const NodeInfo& node) {
  int64_t epoch = 0;
  SKEIN_TRY(db.transaction([&]() -> Status {
    // The machine's start is known of a machine alone.
    bool died = true;
    if (node.name.empty()) {
      SKEIN_ASSIGN(died, is_same_boot(db, boot_id()));
    }
    SKEIN_ASSIGN(epoch, begin_epoch(db, node, died));
    return quarantine_loads(db, node.name, died);
  }));
  return epoch;
}

// A server of an older skein that runs on the folder would find its tables changed under it.
Status migrate_state(Database& db, const StoreOptions& options) {
  SKEIN_TRY(check_version(db));
  SKEIN_ASSIGN(const int64_t version, db.integer(db.dialect().version));
  const bool is_older = version > 0 && version < static_cast<int64_t>(db.dialect().schema.size());
  OwnedFd lock;
  if (is_older && !options.is_server) {
    auto taken = lock_state_dir(options.state_dir);
    if (!taken.ok()) {
      return unavailable(
          "the database has version {}, which is older than this skein's, and a server is using "
          "it; "
          "restart the server with this skein first",
          version);
    }
    lock = std::move(*taken);
  }
  return migrate(db);
}

template <class AnyClock>
int64_t seconds_of() {
  const auto since = AnyClock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

}  // namespace

Status make_state_dir(const std::string& path) {
  if (path.empty()) return invalid_argument("the state folder has no name");
  std::error_code error;
  if (const auto parent = std::filesystem::path(path).parent_path(); !parent.empty()) {
    std::filesystem::create_directories(parent, error);
  }
  if (error) return unavailable("state folder {}: {}", path, error.message());
  SKEIN_TRY(make_folder(path));
  return make_folder(path + "/files");
}

Result<std::unique_ptr<Store>> Store::open(StoreOptions options) {
  const bool is_shared = !options.url.empty();
  OwnedFd lock;
  if (is_shared) {
    if (options.is_server && options.node.empty()) return invalid_argument("store: no --node");
    options.state_dir.clear();
    options.min_free_bytes = 0;  // the disk is the database's
  } else {
    SKEIN_TRY(make_state_dir(options.state_dir));
    options.node.clear();
  }
  if (options.is_server && !is_shared) {
    SKEIN_ASSIGN(lock, lock_state_dir(options.state_dir));
  }
  if (!options.unix_time_s) options.unix_time_s = seconds_of<std::chrono::system_clock>;
  if (!options.steady_time_s) options.steady_time_s = seconds_of<std::chrono::steady_clock>;
  auto space = std::make_unique<StateSpace>(options.state_dir, options.min_free_bytes);
  auto opened = is_shared ? open_shared(options) : open_database(options);
  // SQLite needs some room merely to open a database that nobody else has open.
  if (opened.status().code() == Code::kResourceExhausted && space->release_ballast()) {
    opened = open_database(options);
  }
  SKEIN_TRY(opened.status());
  if (options.is_server && !is_shared) space->restore_ballast();
  std::unique_ptr<Store> store(
      new Store(options, std::move(*opened), std::move(space), std::move(lock)));
  SKEIN_TRY(await_status([&store](DoneStatus done) {
    store->thread_.read(
        [&store](Database& db) {
          std::map<std::string, FileUse> uses;
          SKEIN_TRY(count_files(db, uses));
          SKEIN_TRY(store->responses_.count_bytes(db, uses));
          store->budget_.replace(uses);
          return store->responses_.read_time(db);
        },
        std::move(done));
  }));
  return store;
}

Result<Store::Opened> Store::open_database(const StoreOptions& options) {
  SKEIN_ASSIGN(std::unique_ptr<SqliteDatabase> db,
               SqliteDatabase::open(options.state_dir + kDatabase, options.busy_timeout_ms));
  if (options.is_server) SKEIN_TRY(db->check_integrity());
  if (const Status status = migrate_state(*db, options); !status.ok()) {
    return Status(status.code(),
                  fmt::format("state folder {}: {}", options.state_dir, status.message()));
  }
  if (options.is_server) SKEIN_TRY(sweep_files(*db, options.state_dir));
  return begin(std::move(db), options);
}

Result<Store::Opened> Store::begin(std::unique_ptr<Database> db, const StoreOptions& options) {
  SKEIN_ASSIGN(const HashKey salt_key, load_salt_key(*db));
  int64_t epoch = 0;
  if (options.is_server) {
    SKEIN_ASSIGN(epoch, settle_death(*db, node_of(options)));
  }
  db->watch_table("keys");
  db->watch_table("batches");
  return Opened{std::move(db), salt_key, epoch};
}

bool Store::exists(const std::string& state_dir) {
  std::error_code error;
  return std::filesystem::exists(state_dir + kDatabase, error);
}

Store::Store(const StoreOptions& options, Opened opened, std::unique_ptr<StateSpace> space,
             OwnedFd lock)
    : options_(options),
      lock_(std::move(lock)),
      salt_key_(opened.salt_key),
      epoch_(opened.epoch),
      unix_time_s_(options.unix_time_s),
      contents_(make_contents()),
      space_(std::move(space)),
      budget_(options.file_limits, *space_,
              options.url.empty() ? FileBudget::Counts::kOwn : FileBudget::Counts::kShared),
      next_count_us_(first_count_us()),
      keys_(thread_, key_watch_, unix_time_s_),
      files_(thread_, *contents_, budget_, unix_time_s_),
      batches_(thread_, unix_time_s_),
      responses_(thread_, budget_, options.response_limits, options.steady_time_s),
      quarantine_(thread_, options.node),
      limits_(thread_),
      thread_(std::move(opened.db), thread_options(options)) {}

Store::~Store() = default;

// The log first: what it holds may fit into the database's own pages.
bool Store::make_room(Database& db) {
  db.shrink();
  (void)space_->release_ballast();
  return true;
}

void Store::keys_changed(Database& db) {
  key_watch_.keys_changed(db);
  responses_.look_for_revoked();
}

StoreThread::Options Store::thread_options(const StoreOptions& options) {
  StoreThread::Options thread;
  thread.group_window_us = options.group_window_us;
  if (!options.url.empty()) thread.patience_us = kStorePatienceUs;
  thread.on_commit = [this](Database& db) {
    if (db.take_touched("keys")) keys_changed(db);
    if (db.take_touched("batches")) batches_.tell();
  };
  thread.admit_writes = [this]() -> Status {
    if (!space_->is_reserved()) return {};
    space_->measure();
    if (!space_->is_reserved()) return {};
    return resource_exhausted("store: {} bytes are free, which is kept for what frees more",
                              space_->free_bytes());
  };
  thread.make_room = [this](Database& db) { return make_room(db); };
  thread.on_tick = [this](Database& db) { tick(db); };
  if (is_shared()) thread.on_news = [this](Database& db) { look_elsewhere(db); };
  return thread;
}

std::unique_ptr<FileContents> Store::make_contents() {
  if (is_shared()) return std::make_unique<FileParts>(thread_, [this] { return epoch(); });
  return std::make_unique<FileFolder>(options_.state_dir + "/files");
}

void Store::look_elsewhere(Database& db) {
  const auto elsewhere = db.changed_elsewhere();
  if (!elsewhere.ok()) {
    if (is_shared() && away_since_us_ == 0) away_since_us_ = steady_us();
  } else {
    away_since_us_ = 0;
  }
  if (elsewhere.ok() && *elsewhere) {
    keys_changed(db);
    batches_.tell();
  } else {
    key_watch_.try_again(db);
  }
}

void Store::tick(Database& db) {
  look_elsewhere(db);
  if (away_since_us_ != 0 && is_shared()) return;
  if (keys_.retry_revokes(db)) {
    keys_changed(db);
    batches_.tell();
  }
  quarantine_.remove_left_notes(db);
  space_->measure();
  const bool is_server = options_.is_server;
  if (is_server && is_shared()) tick_shared(db);
  if (is_server && !is_shared()) space_->restore_ballast();
  // A log is cut back after a thousand pages, which a small disk may not have.
  if (is_server && space_->is_low()) db.shrink();
  if (const Status swept = is_server ? responses_.sweep(db) : Status{}; !swept.ok()) {
    log_debug("store: old responses cannot be removed for now: {}", swept.message());
  }
  const Status status = space_->is_reserved() ? Status{} : usage_.flush(db);
  if (!status.ok() && !is_usage_stuck_) {  // once, not at every tick of a full disk
    log_warning("store: usage cannot be written for now: {}", status.message());
  }
  is_usage_stuck_ = !status.ok();
}

}  // namespace skein
