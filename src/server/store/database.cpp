#include "server/store/database.h"

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
  Status status = work();
  if (status.ok()) status = exec("COMMIT");
  if (status.ok() || !in_transaction()) return status;
  if (const Status undone = exec("ROLLBACK"); !undone.ok()) {
    log_error("store: ROLLBACK failed: {}", undone.message());
  }
  return status;
}

}  // namespace skein
