#include "server/store/sqlite/sqlite_database.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace skein {
namespace {

// The system's answer to SQLite's last failed call. A commit that fails leaves it with its file.
int errno_of(sqlite3* db) {
  if (const int known = sqlite3_system_errno(db); known != 0) return known;
  for (const int which : {SQLITE_FCNTL_JOURNAL_POINTER, SQLITE_FCNTL_FILE_POINTER}) {
    sqlite3_file* file = nullptr;
    if (sqlite3_file_control(db, "main", which, &file) != SQLITE_OK) continue;
    if (file == nullptr || file->pMethods == nullptr) continue;
    int last = 0;
    (void)file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &last);
    if (last != 0) return last;
  }
  return 0;
}

Status status_of(sqlite3* db, int code) {
  const int extended = db == nullptr ? code : sqlite3_extended_errcode(db);
  const std::string what = fmt::format("store: {} (SQLite code {})",
                                       db == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(db),
                                       extended == 0 ? code : extended);
  const int cause = db == nullptr ? 0 : errno_of(db);
  switch (code & 0xff) {
    case SQLITE_FULL:
      return {Code::kResourceExhausted, what};
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
      if (cause == ENOSPC || cause == EDQUOT || cause == EFBIG)
        return {Code::kResourceExhausted, what};
      return {Code::kUnavailable, what};
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_NOMEM:
    case SQLITE_PROTOCOL:
      return {Code::kUnavailable, what};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return {Code::kDataLoss, what};
    case SQLITE_CONSTRAINT: {
      const bool unique =
          extended == SQLITE_CONSTRAINT_UNIQUE || extended == SQLITE_CONSTRAINT_PRIMARYKEY;
      return {unique ? Code::kAlreadyExists : Code::kInternal, what};
    }
    default:
      return {Code::kInternal, what};
  }
}

int bind(sqlite3_stmt* statement, int index, const SqlValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return sqlite3_bind_int64(statement, index, *integer);
  }
  if (const auto* text = std::get_if<std::string_view>(&value)) {
    // An empty view may hold a null pointer, which SQLite would take for NULL.
    return sqlite3_bind_text64(statement, index, text->empty() ? "" : text->data(), text->size(),
                               SQLITE_TRANSIENT, SQLITE_UTF8);
  }
  if (const auto* blob = std::get_if<std::span<const std::byte>>(&value)) {
    return sqlite3_bind_blob64(statement, index, blob->data(), blob->size(), SQLITE_TRANSIENT);
  }
  return sqlite3_bind_null(statement, index);
}

// SQLite would create the file as the umask says; its -wal and -shm files copy this mode.
Status make_private_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return unavailable("store: {}: {}", path, std::strerror(errno));
  struct stat info = {};
  const bool loose = ::fstat(fd, &info) == 0 && (info.st_mode & 077) != 0;
  const bool failed = loose && ::fchmod(fd, 0600) != 0;
  ::close(fd);
  if (failed) return unavailable("store: {}: others may read it, and chmod failed", path);
  return {};
}

class SqliteCursor final : public Cursor {
 public:
  SqliteCursor(sqlite3* db, sqlite3_stmt* statement) : db_(db), statement_(statement) {}
  ~SqliteCursor() override {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
  }

  Result<bool> next() override {
    const int code = sqlite3_step(statement_);
    if (code == SQLITE_ROW) return true;
    if (code == SQLITE_DONE) return false;
    return status_of(db_, code);
  }
  int64_t changes() const override { return sqlite3_changes64(db_); }
  int64_t integer(int column) const override { return sqlite3_column_int64(statement_, column); }
  std::string text(int column) const override {
    const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
    const auto size = static_cast<size_t>(sqlite3_column_bytes(statement_, column));
    return data == nullptr ? std::string() : std::string(data, size);
  }

 private:
  sqlite3* db_;
  sqlite3_stmt* statement_;
};

}  // namespace

Result<std::unique_ptr<SqliteDatabase>> SqliteDatabase::open(const std::string& path,
                                                             int busy_timeout_ms) {
  SKEIN_TRY(make_private_file(path));
  sqlite3* raw = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int code = sqlite3_open_v2(path.c_str(), &raw, flags, nullptr);
  if (code != SQLITE_OK) {
    Status status = status_of(raw, code);
    sqlite3_close(raw);
    return status;
  }
  std::unique_ptr<SqliteDatabase> db(new SqliteDatabase(raw));
  SKEIN_TRY(db->set_up(busy_timeout_ms));
  return db;
}

Status SqliteDatabase::set_up(int busy_timeout_ms) {
  sqlite3_busy_timeout(db_, busy_timeout_ms);
  SKEIN_TRY(use_log(busy_timeout_ms));
  // The log is cut back to 64 MiB after a burst instead of keeping its largest size for ever.
  // Nothing is sorted that needs a temporary file, which a sandboxed server could not make.
  SKEIN_TRY(
      exec("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA journal_size_limit = "
           "67108864; PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY;"));
  SKEIN_ASSIGN(const std::string mode, word("PRAGMA journal_mode"));
  if (mode == "wal") return {};
  return unavailable("store: the file system of the database has no WAL (journal mode is '{}')",
                     mode);
}

// Of two processes that make a database at the same time each may hold the lock that the other
// needs; SQLite then refuses one of them at once, whatever its timeout says.
Status SqliteDatabase::use_log(int busy_timeout_ms) {
  constexpr int kPauseMs = 10;
  for (int waited_ms = 0;; waited_ms += kPauseMs) {
    const int code = sqlite3_exec(db_, "PRAGMA journal_mode = WAL", nullptr, nullptr, nullptr);
    if (code == SQLITE_OK) return {};
    if ((code & 0xff) != SQLITE_BUSY || waited_ms >= busy_timeout_ms) return status_of(db_, code);
    sqlite3_sleep(kPauseMs);
  }
}

SqliteDatabase::~SqliteDatabase() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(db_);
}

Status SqliteDatabase::exec(const std::string& sql) {
  const int code = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? Status{} : status_of(db_, code);
}

Result<sqlite3_stmt*> SqliteDatabase::prepare(std::string_view sql) {
  const auto [entry, added] = statements_.try_emplace(std::string(sql), nullptr);
  if (!added) return entry->second;
  const int code = sqlite3_prepare_v3(db_, sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &entry->second, nullptr);
  if (code == SQLITE_OK) return entry->second;
  statements_.erase(entry);
  return status_of(db_, code);
}

Result<std::unique_ptr<Cursor>> SqliteDatabase::query(std::string_view sql,
                                                      std::span<const SqlValue> values) {
  SKEIN_ASSIGN(sqlite3_stmt * statement, prepare(sql));
  SKEIN_CHECK(sqlite3_stmt_busy(statement) == 0, "a statement is run inside itself: {}", sql);
  std::unique_ptr<Cursor> cursor = std::make_unique<SqliteCursor>(db_, statement);
  int number = 0;
  for (const SqlValue& value : values) {
    // To SQLite $1 is a name, and names are counted as they come.
    const int index = sqlite3_bind_parameter_index(statement, fmt::format("${}", ++number).c_str());
    SKEIN_CHECK(index != 0, "there is no ${} in {}", number, sql);
    if (const int code = bind(statement, index, value); code != SQLITE_OK) {
      return status_of(db_, code);
    }
  }
  return cursor;
}

Result<std::string> SqliteDatabase::word(std::string_view sql) {
  SKEIN_ASSIGN(const std::unique_ptr<Cursor> rows, query(sql));
  SKEIN_ASSIGN(const bool row, rows->next());
  return row ? rows->text(0) : std::string("no answer");
}

const SqlDialect& SqliteDatabase::dialect() const {
  return sqlite_dialect();
}

bool SqliteDatabase::in_transaction() const {
  return sqlite3_get_autocommit(db_) == 0;
}

void SqliteDatabase::watch_table(std::string table) {
  touched_.emplace(std::move(table), false);
  sqlite3_update_hook(
      db_,
      [](void* self, int, const char*, const char* name, sqlite3_int64) {
        auto& touched = static_cast<SqliteDatabase*>(self)->touched_;
        if (const auto table = touched.find(std::string_view(name)); table != touched.end()) {
          table->second = true;
        }
      },
      this);
}

bool SqliteDatabase::take_touched(std::string_view table) {
  const auto watched = touched_.find(table);
  return watched != touched_.end() && std::exchange(watched->second, false);
}

Result<bool> SqliteDatabase::changed_elsewhere() {
  SKEIN_ASSIGN(const int64_t version, integer("PRAGMA data_version"));
  return std::exchange(data_version_, version) != version;
}

void SqliteDatabase::shrink() {
  (void)exec("PRAGMA wal_checkpoint(TRUNCATE)");
}

Status SqliteDatabase::back_up_to(const std::string& path) {
  SKEIN_TRY(make_private_file(path));
  sqlite3* target = nullptr;
  int code = sqlite3_open_v2(path.c_str(), &target, SQLITE_OPEN_READWRITE | SQLITE_OPEN_EXRESCODE,
                             nullptr);
  if (code == SQLITE_OK) {
    // In one go: a copy in pieces would start over with every commit of a busy server.
    sqlite3_backup* backup = sqlite3_backup_init(target, "main", db_, "main");
    if (backup != nullptr) {
      (void)sqlite3_backup_step(backup, -1);
      (void)sqlite3_backup_finish(backup);
    }
    code = sqlite3_errcode(target);
  }
  Status status = code == SQLITE_OK ? Status{} : status_of(target, code);
  sqlite3_close(target);
  return status;
}

Status SqliteDatabase::check_integrity() {
  SKEIN_ASSIGN(const std::string finding, word("PRAGMA integrity_check(1)"));
  if (finding != "ok") return data_loss("store: the database is damaged: {}", finding);
  return {};
}

}  // namespace skein
