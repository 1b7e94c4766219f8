#include "server/store/database.h"

#include <fmt/format.h>

#include "base/log.h"

namespace skein {

Result<int64_t> Database::run(std::string_view sql, SqlValues values) {
  SKEIN_ASSIGN(const std::unique_ptr<Cursor> cursor, query(sql, values));
  for (;;) {
    SKEIN_ASSIGN(const bool row, cursor->next());
    if (!row) return cursor->changes();
  }
}

Result<int64_t> Database::integer(std::string_view sql, SqlValues values) {
  SKEIN_ASSIGN(const std::unique_ptr<Cursor> cursor, query(sql, values));
  SKEIN_ASSIGN(const bool row, cursor->next());
  if (!row) return not_found("store: no row for {}", sql);
  return cursor->integer(0);
}

Status Database::transaction(const std::function<Status()>& work) {
  SKEIN_TRY(exec(dialect().begin));
  return end_transaction(work());
}

Status Database::reading(const std::function<Status()>& work) {
  if (dialect().begin_read.empty()) return work();
  SKEIN_TRY(exec(dialect().begin_read));
  return end_transaction(work());
}

Status Database::be_alone() {
  return dialect().alone.empty() ? Status{} : run(dialect().alone).status();
}

Status Database::end_transaction(Status status) {
  if (status.ok()) status = exec("COMMIT");
  if (!status.ok() && in_transaction()) {
    if (const Status undone = exec("ROLLBACK"); !undone.ok()) {
      log_error("store: ROLLBACK failed: {}", undone.message());
    }
  }
  transaction_over();
  return status;
}

Status check_version(Database& db) {
  SKEIN_ASSIGN(const int64_t version, db.integer(db.dialect().version));
  const auto known = static_cast<int64_t>(db.dialect().schema.size());
  if (version >= 0 && version <= known) return {};
  return invalid_argument(
      "the database has version {}, this skein knows versions up to {}; use the skein that wrote "
      "it, or a newer one",
      version, known);
}

Status migrate(Database& db, size_t to) {
  SKEIN_TRY(check_version(db));
  const SqlDialect& dialect = db.dialect();
  SKEIN_ASSIGN(const int64_t version, db.integer(dialect.version));
  if (static_cast<size_t>(version) >= to) return {};
  return db.transaction([&]() -> Status {
    SKEIN_TRY(db.be_alone());
    // Read again: another process may have been faster.
    SKEIN_ASSIGN(const int64_t from, db.integer(dialect.version));
    if (static_cast<size_t>(from) >= to) return {};
    for (auto step = static_cast<size_t>(from); step < to; ++step) {
      SKEIN_TRY(db.exec(dialect.schema[step]));
    }
    return db.exec(fmt::format("{}{}", dialect.set_version, to));
  });
}

Status migrate(Database& db) {
  return migrate(db, db.dialect().schema.size());
}

}  // namespace skein
