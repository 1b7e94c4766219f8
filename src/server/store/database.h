// A database behind Status: what the store's SQL runs on. A driver is one folder that implements
// this and has a SqlDialect (sqlite/, postgres/).
//
//   SKEIN_ASSIGN(const std::vector<std::string> ids,
//                db.list<std::string>("SELECT id FROM files WHERE owner = $1", {owner},
//                                     [](const Cursor& row) { return row.text(0); }));
//
// Thread-safety: none; a Database belongs to one thread at a time (the store's).
//
// Errors: kResourceExhausted for a full disk, kUnavailable for what may pass (I/O error, locked by
// another process, a server that is away), kDataLoss for a file that is no sound database,
// kAlreadyExists for a broken UNIQUE rule, kInternal for everything that is our own fault.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace skein {

// The words that two kinds of databases spell differently. A driver has one of these; all other SQL
// of the store is written once, in what they have in common: $1 for parameters, RETURNING, ON
// CONFLICT.
struct SqlDialect {
  // The steps that lead from an empty database to today's. A step is never edited once it is
  // released; what changes is added as a new one.
  std::span<const char* const> schema;
  std::string version;      // a query: how many of those steps the database has been through
  std::string set_version;  // the number follows
  std::string begin;        // of a transaction that reads what it will change
  // Begins a read of several statements, which see one moment; empty: they do so anyway.
  std::string begin_read;
  // Behind the choice of lines to claim: passes over those that another server is claiming just
  // now.
  std::string skip_locked;
  // Behind the choice of a row that must stay as it is until the transaction ends.
  std::string hold;
  // A statement: what begins with it runs in one server at a time, until its transaction ends.
  // Empty: a writer is alone anyway.
  std::string alone;
  // Whether the server of a row of nodes lives, as far as the database can know.
  std::string lives;
  // When a lease of so many milliseconds from now ends; {} is the parameter.
  std::string lease_end;
  // Whether a text is in the list that a parameter holds as a JSON array; {} is the parameter.
  std::string one_of;
};

// A parameter is bound to one of these; std::monostate is NULL.
using SqlValue =
    std::variant<std::monostate, int64_t, std::string_view, std::span<const std::byte>>;
using SqlValues = std::initializer_list<SqlValue>;
// Where nothing is no text.
inline SqlValue text_or_null(std::string_view text) {
  return text.empty() ? SqlValue{} : SqlValue{text};
}

// One run of a statement. The statement is free for the next run when the cursor goes.
class Cursor {
 public:
  virtual ~Cursor() = default;

  // True: stands on the next row. False: there are no more.
  virtual Result<bool> next() = 0;
  // How many rows the statement changed, once there are no more.
  virtual int64_t changes() const = 0;

  // Columns of the current row, from 0. NULL reads as 0 and as empty.
  virtual int64_t integer(int column) const = 0;
  virtual std::string text(int column) const = 0;  // also of bytes
};

class Database {
 public:
  virtual ~Database() = default;

  virtual const SqlDialect& dialect() const = 0;
  // Statements without parameters or rows.
  virtual Status exec(const std::string& sql) = 0;
  // Prepares (once per text) and binds $1, $2, ... One cursor per text at a time.
  virtual Result<std::unique_ptr<Cursor>> query(std::string_view sql,
                                                std::span<const SqlValue> values) = 0;
  Result<std::unique_ptr<Cursor>> query(std::string_view sql, SqlValues values = {}) {
    return query(sql, std::span(values.begin(), values.size()));
  }
  // False after a fault inside a transaction that made the database roll all of it back.
  virtual bool in_transaction() const = 0;
  // A transaction is over, however it ended.
  virtual void transaction_over() {}
  // Whether the last transaction was given up for another server's sake: it can be run again at
  // once.
  virtual bool gave_way() const { return false; }
  // Whether the last transaction may have been kept although its commit failed: the server went
  // away in it.
  virtual bool is_in_doubt() const { return false; }

  // From now on changes of rows of this table are noticed, those that are rolled back included.
  virtual void watch_table(std::string table) = 0;
  // Whether the watched table was touched since the last call.
  virtual bool take_touched(std::string_view table) = 0;
  // Whether another process has committed anything since the last call.
  virtual Result<bool> changed_elsewhere() = 0;
  // Whether the database has said by itself that changed_elsewhere() would say yes, and what can be
  // read when it may have; -1: it says nothing by itself.
  virtual bool has_news() { return false; }
  virtual int news_socket() const { return -1; }
  // Gives back room on the disk that the database can do without.
  virtual void shrink() = 0;
  // The process ends: after that time nothing waits for a server that does not answer. Any thread
  // may call it.
  virtual void finish_by(std::chrono::steady_clock::time_point) {}

  // Runs to the end, and says how many rows it changed.
  Status exec(std::string_view sql, SqlValues values) { return run(sql, values).status(); }
  Result<int64_t> run(std::string_view sql, SqlValues values = {});
  // The first column of the first row; kNotFound when there is none.
  Result<int64_t> integer(std::string_view sql, SqlValues values = {});
  // Every row, as `make(const Cursor&)` reads it into a T or a Result<T>.
  template <class T, class Make>
  Result<std::vector<T>> list(std::string_view sql, SqlValues values, const Make& make) {
    SKEIN_ASSIGN(const std::unique_ptr<Cursor> rows, query(sql, values));
    std::vector<T> all;
    for (;;) {
      SKEIN_ASSIGN(const bool row, rows->next());
      if (!row) return all;
      Result<T> one = make(*rows);
      SKEIN_TRY(one.status());
      all.push_back(std::move(*one));
    }
  }
  // What `work` does is kept whole, or not at all when it fails.
  Status transaction(const std::function<Status()>& work);
  // What `work` reads is of one moment.
  Status reading(const std::function<Status()>& work);
  // Inside a transaction: SqlDialect::alone.
  Status be_alone();

 private:
  Status end_transaction(Status status);
};

// The database's tables, as the steps of its SqlDialect make them.
// kInvalidArgument when the database is from a newer skein.
Status check_version(Database& db);

// Brings the database up to version `to` (or to today's) in one transaction; two processes that
// migrate at once take turns. kInvalidArgument as check_version().
Status migrate(Database& db, size_t to);
Status migrate(Database& db);

}  // namespace skein
