// SQLite behind Status: one connection, cached statements, typed rows.
//
//   SKEIN_ASSIGN(Cursor rows, db.query("SELECT id FROM files WHERE owner = ?1", {owner}));
//   for (;;) {
//     SKEIN_ASSIGN(const bool row, rows.next());
//     if (!row) break;
//     use(rows.text(0));
//   }
//
// Thread-safety: none; a Database belongs to one thread at a time (the store's).
//
// Errors: kResourceExhausted for a full disk, kUnavailable for what may pass (I/O error, locked by
// another process), kDataLoss for a file that is no sound database, kAlreadyExists for a broken
// UNIQUE rule, kInternal for everything that is our own fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>

#include "base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace skein {

// What a parameter is bound to; std::monostate is NULL.
using SqlValue =
    std::variant<std::monostate, int64_t, std::string_view, std::span<const std::byte>>;

// One run of a statement. The statement is free for the next run when the cursor goes.
class Cursor {
 public:
  Cursor(Cursor&& other) noexcept;
  Cursor& operator=(Cursor&&) = delete;
  ~Cursor();

  // True: stands on the next row. False: there are no more.
  Result<bool> next();

  // Columns of the current row, from 0. NULL reads as 0 and as empty.
  bool is_null(int column) const;
  int64_t integer(int column) const;
  std::string text(int column) const;  // of a TEXT or a BLOB

 private:
  friend class Database;
  Cursor(sqlite3* db, sqlite3_stmt* statement) : db_(db), statement_(statement) {}

  sqlite3* db_;
  sqlite3_stmt* statement_;
};

class Database {
 public:
  // Opens or creates the file (mode 0600) with WAL, synchronous FULL, foreign keys, and a wait of
  // `busy_timeout_ms` for other processes.
  //
  // FULL, because "done" must mean done: a revoked key that comes back after a power cut is a
  // security fault. The price, one fsync a commit, is paid once per group of writes.
  static Result<std::unique_ptr<Database>> open(const std::string& path, int busy_timeout_ms);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Statements without parameters or rows.
  Status exec(const std::string& sql);
  // Prepares (once per text) and binds ?1, ?2, ... One cursor per text at a time.
  Result<Cursor> query(std::string_view sql, std::initializer_list<SqlValue> values = {});
  // Runs to the end and says how many rows it changed.
  Result<int64_t> run(std::string_view sql, std::initializer_list<SqlValue> values = {});
  // The first column of the first row; kNotFound when there is none.
  Result<int64_t> integer(std::string_view sql, std::initializer_list<SqlValue> values = {});

  // False after a fault inside a transaction that made SQLite roll all of it back.
  bool in_transaction() const;
  int64_t last_insert_rowid() const;

  // From now on changes of rows of this table are noticed, those that are rolled back included.
  void watch_table(std::string table);
  // Whether the watched table was touched since the last call.
  bool take_touched();

  // Writes the database as it is at this moment to a new file (mode 0600), whoever writes
  // meanwhile.
  Status back_up_to(const std::string& path);

  // kDataLoss with SQLite's first finding unless PRAGMA integrity_check says ok.
  Status check_integrity();

 private:
  explicit Database(sqlite3* db) : db_(db) {}
  Result<sqlite3_stmt*> prepare(std::string_view sql);
  Status set_up(int busy_timeout_ms);

  sqlite3* db_;
  std::unordered_map<std::string, sqlite3_stmt*> statements_;
  std::string watched_;
  bool touched_ = false;
};

}  // namespace skein
