// PostgreSQL as a Database: one connection, which is made anew when it breaks, with prepared
// statements.
//
// Texts come from outside and hold whatever a client wrote; PostgreSQL takes neither a zero byte
// nor what is no UTF-8, so such bytes are written as an escape and read back as they were
// (postgres_text.h).
//
// A transaction that its server left idle for `patience_ms` is ended by PostgreSQL itself: a
// process that is stopped in the middle of one holds up nobody for longer than that. Nor does a
// statement wait longer for what another holds. A PostgreSQL that says nothing for some seconds
// (its process or its disk stands still, while its machine goes on confirming what is sent) is
// given up like one that is gone.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "server/store/database.h"
#include "server/store/store.h"

struct pg_conn;
struct pg_result;

namespace skein {

const SqlDialect& postgres_dialect();

class PostgresDatabase final : public Database {
 public:
  // `url` as libpq takes it (postgresql://..., several hosts for failover). kInvalidArgument: it is
  // none, or has a password in it. kUnavailable: nobody answers.
  static Result<std::unique_ptr<PostgresDatabase>> open(const std::string& url,
                                                        int64_t patience_ms = 5'000);
  ~PostgresDatabase() override;
  PostgresDatabase(const PostgresDatabase&) = delete;
  PostgresDatabase& operator=(const PostgresDatabase&) = delete;

  const SqlDialect& dialect() const override { return postgres_dialect(); }
  using Database::exec;
  Status exec(const std::string& sql) override;
  using Database::query;
  Result<std::unique_ptr<Cursor>> query(std::string_view sql,
                                        std::span<const SqlValue> values) override;
  bool in_transaction() const override;
  void transaction_over() override { is_inside_ = false; }
  bool gave_way() const override { return gave_way_; }
  bool is_in_doubt() const override { return is_in_doubt_; }
  void watch_table(std::string table) override;
  bool take_touched(std::string_view table) override;
  // Of watched tables, since PostgreSQL tells of no others.
  Result<bool> changed_elsewhere() override;
  bool has_news() override;
  int news_socket() const override;
  void shrink() override {}
  void finish_by(std::chrono::steady_clock::time_point when) override { finish_by_ = when; }

 private:
  struct Finish {
    void operator()(pg_conn* connection) const;
  };
  using Connection = std::unique_ptr<pg_conn, Finish>;
  struct Clear {
    void operator()(pg_result* result) const;
  };
  using Answer = std::unique_ptr<pg_result, Clear>;
  class Parameters;
  class Rows;

  PostgresDatabase(std::string url, int64_t patience_ms)
      : url_(std::move(url)), patience_ms_(patience_ms) {}
  Status connect();
  // Makes the connection anew where it is broken, at most once a second; never for the rest of a
  // transaction.
  Status ready();
  Status failure(const pg_result* result);
  // As PQexec() and its like do it, but for a bounded time: null, and no connection any more, where
  // nobody answers. `sent`: what the function that sends it said.
  Answer answer(int sent);
  bool wait_for(short events, std::chrono::steady_clock::time_point began) const;
  Result<std::string> prepare(std::string_view sql, std::span<const SqlValue> values);
  bool is_connected() const;
  void read_notices();
  Result<int64_t> version_of_changes();

  const std::string url_;
  const int64_t patience_ms_;
  std::atomic<std::chrono::steady_clock::time_point> finish_by_{
      std::chrono::steady_clock::time_point::max()};
  Connection connection_;
  std::unordered_map<std::string, std::string> statements_;  // names, by SQL and types
  std::map<std::string, bool, std::less<>> touched_;         // by watched table
  bool changed_elsewhere_ = true;                            // what was before is not known either
  bool is_inside_ = false;  // a transaction has begun and is not over
  bool gave_way_ = false;
  bool is_in_doubt_ = false;
  int64_t seen_changes_ = -1;
  std::chrono::steady_clock::time_point next_poll_;
  std::chrono::steady_clock::time_point next_try_;
};

// kInvalidArgument as PostgresDatabase::open().
Status check_postgres_url(const std::string& url);
Result<StoreAccess> postgres_access(const std::string& url);

}  // namespace skein
