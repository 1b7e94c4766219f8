// Pages of rows that have an id, an owner and a place in time (`seq`).
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "base/status.h"
#include "server/store/database.h"
#include "server/store/records.h"

namespace skein {

// The condition that keeps a query to its scope; $1 is the owner. Spelled so that an index on
// (owner, seq) serves the common case.
inline const char* owner_condition(const Scope& scope) {
  return scope.all ? "$1 IS NOT NULL" : "owner = $1";
}

// Items of `table` in the scope; `make(cursor)` turns a row of `columns` into a Result<T>. `filter`
// is a condition with $2 in it, or "$2 IS NOT NULL". kNotFound when `options.after` is not an id of
// the scope.
template <class T, class Make>
Result<Page<T>> list_rows(Database& db, const std::string& columns, const std::string& table,
                          const std::string& filter, const Scope& scope, const ListOptions& options,
                          const Make& make) {
  int64_t from = options.oldest_first ? 0 : std::numeric_limits<int64_t>::max();
  if (!options.after.empty()) {
    auto seq = db.integer(
        fmt::format("SELECT seq FROM {} WHERE {} AND id = $2", table, owner_condition(scope)),
        {scope.owner, options.after});
    if (seq.status().code() == Code::kNotFound) {
      return not_found("'after': there is nothing with the id '{}'", options.after);
    }
    SKEIN_TRY(seq.status());
    from = *seq;
  }
  const std::string sql =
      fmt::format("SELECT {} FROM {} WHERE {} AND {} AND seq {} $3 ORDER BY seq {} LIMIT $4",
                  columns, table, owner_condition(scope), filter, options.oldest_first ? ">" : "<",
                  options.oldest_first ? "ASC" : "DESC");
  Page<T> page;
  SKEIN_ASSIGN(
      page.items,
      db.list<T>(sql, {scope.owner, options.purpose, from, static_cast<int64_t>(options.limit) + 1},
                 make));
  page.has_more = page.items.size() > options.limit;
  if (page.has_more) page.items.pop_back();
  return page;
}

}  // namespace skein
