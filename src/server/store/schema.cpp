#include "server/store/schema.h"

#include <array>
#include <string>

namespace skein {
namespace {

// A step is never edited once it is released; what changes is added as a new one.
//
// `owner` columns name a key without a foreign key: the anonymous owner '' has no row.
constexpr std::array kSteps = {
    // 1: keys
    R"sql(
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
CREATE TABLE keys (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  tier INTEGER NOT NULL CHECK (tier BETWEEN 0 AND 2),
  models TEXT NOT NULL,              -- one a line; empty: all
  requests_per_minute INTEGER NOT NULL,  -- 0: no limit
  tokens_per_minute INTEGER NOT NULL,
  admin INTEGER NOT NULL,
  salt BLOB NOT NULL,
  digest BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  rotated_at INTEGER,
  revoked_at INTEGER
) STRICT;
CREATE UNIQUE INDEX keys_by_name ON keys (name) WHERE revoked_at IS NULL;
CREATE TABLE usage (
  owner TEXT PRIMARY KEY,
  requests INTEGER NOT NULL,
  prompt_tokens INTEGER NOT NULL,
  cached_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL
) STRICT;
)sql",
    // 2: files and batches
    R"sql(
CREATE TABLE files (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  purpose TEXT NOT NULL,
  name TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX files_by_owner ON files (owner, seq);
CREATE TABLE batches (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  endpoint TEXT NOT NULL,
  input_file TEXT NOT NULL,
  metadata TEXT NOT NULL,
  status TEXT NOT NULL,
  outcome TEXT,                      -- while finalizing: the status to come
  open INTEGER NOT NULL DEFAULT 1,   -- 0: ended, and its lines are removed
  output_file TEXT,
  error_file TEXT,
  total INTEGER NOT NULL DEFAULT 0,
  completed INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0,
  expires_at INTEGER NOT NULL,
  validating_at INTEGER NOT NULL,    -- when each status began
  in_progress_at INTEGER,
  finalizing_at INTEGER,
  completed_at INTEGER,
  failed_at INTEGER,
  expired_at INTEGER,
  cancelling_at INTEGER,
  cancelled_at INTEGER
) STRICT;
CREATE INDEX batches_by_owner ON batches (owner, seq);
CREATE INDEX open_batches ON batches (seq) WHERE open = 1;
CREATE TABLE batch_lines (
  batch INTEGER NOT NULL REFERENCES batches (seq) ON DELETE CASCADE,
  line INTEGER NOT NULL,             -- in the input file, from 1
  custom_id TEXT,
  offset INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  status_code INTEGER,               -- NULL until the line has its result
  request_id TEXT,
  body TEXT,
  UNIQUE (batch, line)
) STRICT;
CREATE TABLE batch_errors (
  batch INTEGER NOT NULL REFERENCES batches (seq) ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  code TEXT NOT NULL,
  message TEXT NOT NULL,
  line INTEGER,
  UNIQUE (batch, ordinal)
) STRICT;
)sql",
};

// The version is read inside the transaction: another process may have been faster.
Status take_step(Database& db) {
  SKEIN_ASSIGN(const int64_t version, db.integer("PRAGMA user_version"));
  if (version >= schema_version()) return {};
  SKEIN_TRY(db.exec(kSteps[static_cast<size_t>(version)]));
  return db.exec(fmt::format("PRAGMA user_version = {}", version + 1));
}

}  // namespace

int64_t schema_version() {
  return kSteps.size();
}

Status migrate(Database& db, int64_t to) {
  for (;;) {
    SKEIN_ASSIGN(const int64_t version, db.integer("PRAGMA user_version"));
    if (version < 0 || version > schema_version()) {
      return invalid_argument(
          "store: the database has version {}, this skein knows versions up to {}", version,
          schema_version());
    }
    if (version >= to) return {};
    SKEIN_TRY(db.exec("BEGIN IMMEDIATE"));
    Status status = take_step(db);
    if (status.ok()) status = db.exec("COMMIT");
    if (!status.ok()) {
      if (db.in_transaction()) SKEIN_TRY(db.exec("ROLLBACK"));
      return status;
    }
  }
}

}  // namespace skein
