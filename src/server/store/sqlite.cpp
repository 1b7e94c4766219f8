#include "server/store/sqlite.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace skein {
namespace {

// What the system said to SQLite's last failed call. A commit that fails leaves it with its file.
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

}  // namespace

Cursor::Cursor(Cursor&& other) noexcept
    : db_(other.db_), statement_(std::exchange(other.statement_, nullptr)) {}

Cursor::~Cursor() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

Result<bool> Cursor::next() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return status_of(db_, code);
}

bool Cursor::is_null(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

int64_t Cursor::integer(int column) const {
  return sqlite3_column_int64(statement_, column);
}

std::string Cursor::text(int column) const {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  const auto size = static_cast<size_t>(sqlite3_column_bytes(statement_, column));
  return data == nullptr ? std::string() : std::string(data, size);
}

Result<std::unique_ptr<Database>> Database::open(const std::string& path, int busy_timeout_ms) {
  SKEIN_TRY(make_private_file(path));
  sqlite3* raw = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int code = sqlite3_open_v2(path.c_str(), &raw, flags, nullptr);
  if (code != SQLITE_OK) {
    Status status = status_of(raw, code);
    sqlite3_close(raw);
    return status;
  }
  std::unique_ptr<Database> db(new Database(raw));
  SKEIN_TRY(db->set_up(busy_timeout_ms));
  return db;
}

Status Database::set_up(int busy_timeout_ms) {
  sqlite3_busy_timeout(db_, busy_timeout_ms);
  // The log is cut back to 64 MiB after a burst instead of keeping its largest size for ever.
  // Nothing is sorted that needs a temporary file, which a sandboxed server could not make.
  SKEIN_TRY(
      exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;"
           "PRAGMA journal_size_limit = 67108864; PRAGMA trusted_schema = OFF; PRAGMA temp_store = "
           "MEMORY;"));
  SKEIN_ASSIGN(Cursor mode, query("PRAGMA journal_mode"));
  SKEIN_ASSIGN(const bool row, mode.next());
  if (!row || mode.text(0) != "wal") {
    return unavailable("store: the file system of the database has no WAL (journal mode is '{}')",
                       row ? mode.text(0) : "");
  }
  return {};
}

Database::~Database() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(db_);
}

Status Database::exec(const std::string& sql) {
  const int code = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? Status{} : status_of(db_, code);
}

Result<sqlite3_stmt*> Database::prepare(std::string_view sql) {
  const auto [entry, added] = statements_.try_emplace(std::string(sql), nullptr);
  if (!added) return entry->second;
  const int code = sqlite3_prepare_v3(db_, sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &entry->second, nullptr);
  if (code == SQLITE_OK) return entry->second;
  statements_.erase(entry);
  return status_of(db_, code);
}

Result<Cursor> Database::query(std::string_view sql, std::initializer_list<SqlValue> values) {
  SKEIN_ASSIGN(sqlite3_stmt * statement, prepare(sql));
  SKEIN_CHECK(sqlite3_stmt_busy(statement) == 0, "a statement is run inside itself: {}", sql);
  Cursor cursor(db_, statement);
  int index = 0;
  for (const SqlValue& value : values) {
    if (const int code = bind(statement, ++index, value); code != SQLITE_OK) {
      return status_of(db_, code);
    }
  }
  return cursor;
}

Result<int64_t> Database::run(std::string_view sql, std::initializer_list<SqlValue> values) {
  SKEIN_ASSIGN(Cursor cursor, query(sql, values));
  for (;;) {
    SKEIN_ASSIGN(const bool row, cursor.next());
    if (!row) return sqlite3_changes64(db_);
  }
}

Result<int64_t> Database::integer(std::string_view sql, std::initializer_list<SqlValue> values) {
  SKEIN_ASSIGN(Cursor cursor, query(sql, values));
  SKEIN_ASSIGN(const bool row, cursor.next());
  if (!row) return not_found("store: no row for {}", sql);
  return cursor.integer(0);
}

bool Database::in_transaction() const {
  return sqlite3_get_autocommit(db_) == 0;
}

int64_t Database::last_insert_rowid() const {
  return sqlite3_last_insert_rowid(db_);
}

void Database::watch_table(std::string table) {
  watched_ = std::move(table);
  sqlite3_update_hook(
      db_,
      [](void* self, int, const char*, const char* name, sqlite3_int64) {
        auto* db = static_cast<Database*>(self);
        if (db->watched_ == name) db->touched_ = true;
      },
      this);
}

bool Database::take_touched() {
  return std::exchange(touched_, false);
}

Status Database::back_up_to(const std::string& path) {
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

Status Database::check_integrity() {
  SKEIN_ASSIGN(Cursor cursor, query("PRAGMA integrity_check(1)"));
  SKEIN_ASSIGN(const bool row, cursor.next());
  const std::string finding = row ? cursor.text(0) : "no answer";
  if (finding != "ok") return data_loss("store: the database is damaged: {}", finding);
  return {};
}

}  // namespace skein
