// How SQLite spells the store's tables and what else a SqlDialect holds.
#include <array>

#include "server/store/sqlite/sqlite_database.h"

namespace skein {
namespace {

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
    // 3: what was running when the process died, and time that no wall clock counts
    R"sql(
ALTER TABLE batches ADD COLUMN served_s INTEGER NOT NULL DEFAULT 0;  -- of its lifetime
ALTER TABLE batch_lines ADD COLUMN running INTEGER NOT NULL DEFAULT 0;  -- 1: among others, 2: alone
ALTER TABLE batch_lines ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0;
ALTER TABLE batch_lines ADD COLUMN alone_deaths INTEGER NOT NULL DEFAULT 0;
CREATE INDEX running_lines ON batch_lines (batch, line) WHERE running != 0;
CREATE INDEX suspect_lines ON batch_lines (batch, line) WHERE deaths != 0 AND status_code IS NULL;
CREATE TABLE model_loads (
  path TEXT PRIMARY KEY,
  fingerprint TEXT NOT NULL,         -- of its files
  quarantined INTEGER NOT NULL       -- 0: it is being loaded
) STRICT;
)sql",
    // 4: which server a line runs on
    R"sql(
CREATE TABLE nodes (
  epoch INTEGER PRIMARY KEY AUTOINCREMENT,  -- one server from its start to its end
  renewed_at INTEGER NOT NULL
) STRICT;
ALTER TABLE batch_lines ADD COLUMN epoch INTEGER;  -- of the server that has claimed the line
UPDATE batch_lines SET epoch = 0 WHERE running != 0;
DROP INDEX running_lines;
ALTER TABLE batch_lines RENAME COLUMN running TO alone;  -- 1: it runs beside no other line
UPDATE batch_lines SET alone = alone / 2 WHERE alone != 0;
ALTER TABLE batch_lines RENAME COLUMN offset TO first_byte;
CREATE INDEX claimed_lines ON batch_lines (epoch) WHERE epoch IS NOT NULL;
CREATE INDEX free_lines ON batch_lines (batch, line)
  WHERE status_code IS NULL AND epoch IS NULL AND deaths = 0;
)sql",
    // 5: which model a line asks for
    R"sql(
ALTER TABLE batch_lines ADD COLUMN model TEXT;  -- NULL: none by name
DROP INDEX free_lines;
CREATE INDEX free_lines ON batch_lines (batch, line, model)
  WHERE status_code IS NULL AND epoch IS NULL AND deaths = 0;
)sql",
    // 6: responses
    R"sql(
CREATE TABLE responses (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  previous INTEGER REFERENCES responses (seq),  -- the one that it continues
  hidden INTEGER NOT NULL DEFAULT 0,   -- 1: it is there for those that continue it alone; 2: it is to go
  served_s INTEGER NOT NULL,           -- for how long servers had run here before it
  turns INTEGER NOT NULL,              -- up to this one
  bytes INTEGER NOT NULL,              -- of the texts below
  chain_bytes INTEGER NOT NULL,        -- the same up to this one
  conversation_bytes INTEGER NOT NULL,  -- input and output up to this one
  input TEXT NOT NULL,
  output TEXT NOT NULL,
  head TEXT NOT NULL,                  -- head, output and tail are the response
  tail TEXT NOT NULL
) STRICT;
CREATE INDEX responses_by_owner ON responses (owner, seq) WHERE hidden = 0;
CREATE INDEX responses_by_age ON responses (served_s) WHERE hidden = 0;
CREATE INDEX responses_by_previous ON responses (previous) WHERE previous IS NOT NULL;
CREATE INDEX hidden_responses ON responses (seq) WHERE hidden = 1;
CREATE INDEX responses_to_go ON responses (owner) WHERE hidden = 2;
CREATE TABLE served_time (
  seconds INTEGER NOT NULL             -- in which servers have run here, now and then
) STRICT;
INSERT INTO served_time VALUES (0);
CREATE TABLE response_use (
  owner TEXT PRIMARY KEY,
  kept INTEGER NOT NULL,               -- that are not hidden
  bytes INTEGER NOT NULL               -- of all
) STRICT;
)sql",
    // 7: what several servers of one store need to know of each other
    R"sql(
ALTER TABLE nodes ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN lease_until INTEGER NOT NULL DEFAULT 0;
ALTER TABLE batches ADD COLUMN epoch INTEGER;  -- of the server that validates or ends it
CREATE TABLE batch_counts (            -- what each server has added to the batch's own counts
  batch INTEGER NOT NULL REFERENCES batches (seq) ON DELETE CASCADE,
  epoch INTEGER NOT NULL,
  completed INTEGER NOT NULL,
  failed INTEGER NOT NULL,
  PRIMARY KEY (batch, epoch)
) STRICT;
)sql",
    // 8: headers of answers, which stood behind their bodies (", "headers": {..}", as they still do
    // in lines that have ended)
    R"sql(
ALTER TABLE batch_lines ADD COLUMN headers TEXT;  -- a JSON object
)sql",
};

}  // namespace

const SqlDialect& sqlite_dialect() {
  static const SqlDialect dialect{.schema = kSteps,
                                  .version = "PRAGMA user_version",
                                  .set_version = "PRAGMA user_version = ",
                                  .begin = "BEGIN IMMEDIATE",
                                  .begin_read = "",
                                  .skip_locked = "",  // a writer is alone
                                  .hold = "",
                                  .alone = "",
                                  .lives = "1 = 1",  // the folder has one server at a time
                                  .lease_end = "unixepoch() + {} / 1000",
                                  .one_of = "IN (SELECT value FROM json_each({}))"};
  return dialect;
}

}  // namespace skein
