// The database's tables, as the steps of its SqlDialect make them.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "server/store/database.h"

namespace skein {

// kInvalidArgument when the database is from a newer skein.
Status check_version(Database& db);

// Brings the database up to version `to` (or to today's) in one transaction; two processes that
// migrate at once take turns. kInvalidArgument as check_version().
Status migrate(Database& db, size_t to);
Status migrate(Database& db);

}  // namespace skein
