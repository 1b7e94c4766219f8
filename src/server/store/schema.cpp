#include "server/store/schema.h"

#include <fmt/format.h>

namespace skein {

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
