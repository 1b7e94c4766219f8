// The database's tables, as the steps that lead from an empty file to today's. PRAGMA user_version
// counts the steps that a file has been through.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "server/store/sqlite.h"

namespace skein {

// The newest version this build knows.
int64_t schema_version();

// Brings the database up to version `to` in one transaction; two processes that migrate at once
// take turns. kInvalidArgument when the file is from a newer skein.
Status migrate(Database& db, int64_t to = schema_version());

}  // namespace skein
