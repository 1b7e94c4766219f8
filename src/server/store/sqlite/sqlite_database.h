// SQLite as a Database: one connection to one file, with cached statements.
#pragma once

#include <functional>
#include <map>
#include <unordered_map>

#include "server/store/database.h"

struct sqlite3;
struct sqlite3_stmt;

namespace skein {

const SqlDialect& sqlite_dialect();

class SqliteDatabase final : public Database {
 public:
  // Opens or creates the file (mode 0600) with WAL, synchronous FULL, foreign keys, and a wait of
  // `busy_timeout_ms` for other processes.
  //
  // FULL, because "done" must mean done: a revoked key that comes back after a power cut is a
  // security fault. The price, one fsync a commit, is paid once per group of writes.
  static Result<std::unique_ptr<SqliteDatabase>> open(const std::string& path, int busy_timeout_ms);
  ~SqliteDatabase() override;
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  const SqlDialect& dialect() const override;
  using Database::exec;
  Status exec(const std::string& sql) override;
  using Database::query;
  Result<std::unique_ptr<Cursor>> query(std::string_view sql,
                                        std::span<const SqlValue> values) override;
  bool in_transaction() const override;
  void watch_table(std::string table) override;
  bool take_touched(std::string_view table) override;
  Result<bool> changed_elsewhere() override;
  void shrink() override;

  // Writes the database as it is at this moment to a new file (mode 0600), whoever writes
  // meanwhile.
  Status back_up_to(const std::string& path);

  // kDataLoss with SQLite's first finding unless PRAGMA integrity_check says ok.
  Status check_integrity();

 private:
  explicit SqliteDatabase(sqlite3* db) : db_(db) {}
  Result<sqlite3_stmt*> prepare(std::string_view sql);
  Status set_up(int busy_timeout_ms);
  Status use_log(int busy_timeout_ms);
  Result<std::string> word(std::string_view sql);  // the first column of the first row

  sqlite3* db_;
  std::unordered_map<std::string, sqlite3_stmt*> statements_;
  std::map<std::string, bool, std::less<>> touched_;  // by watched table
  int64_t data_version_ = -1;                         // of the last look for changes elsewhere
};

}  // namespace skein
