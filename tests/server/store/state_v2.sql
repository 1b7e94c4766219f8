-- The state of a server of version 0.1 (schema 2): a key, its usage, a file, and a batch of four lines of which one is done.
-- The file's content is state_v2.jsonl. Never edited: what that version wrote is what must be read.
PRAGMA foreign_keys = OFF;
BEGIN TRANSACTION;
CREATE TABLE batch_errors (
  batch INTEGER NOT NULL REFERENCES batches (seq) ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  code TEXT NOT NULL,
  message TEXT NOT NULL,
  line INTEGER,
  UNIQUE (batch, ordinal)
) STRICT;
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
INSERT INTO "batch_lines" VALUES(1,1,'c1',0,89,NULL,NULL,NULL);
INSERT INTO "batch_lines" VALUES(1,2,'c2',90,89,200,'req-2','{"kept": true}');
INSERT INTO "batch_lines" VALUES(1,3,'c3',180,89,NULL,NULL,NULL);
INSERT INTO "batch_lines" VALUES(1,4,'c4',270,89,NULL,NULL,NULL);
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
INSERT INTO "batches" VALUES(1,'batch_00112233445566778899aabbccddeeff','0123456789abcdef','/v1/chat/completions','file-000102030405060708090a0b','{}','in_progress',NULL,1,NULL,NULL,4,1,0,1767312000,1767225600,1767225601,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE files (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  purpose TEXT NOT NULL,
  name TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
INSERT INTO "files" VALUES(1,'file-000102030405060708090a0b','0123456789abcdef','batch','in.jsonl',360,1767225600);
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
INSERT INTO "keys" VALUES(1,'0123456789abcdef','team',0,'tiny
',60,1000,1,X'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA',X'BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB',1767225600,NULL,NULL);
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
INSERT INTO "meta" VALUES('salt_key',X'000102030405060708090A0B0C0D0E0F');
CREATE TABLE usage (
  owner TEXT PRIMARY KEY,
  requests INTEGER NOT NULL,
  prompt_tokens INTEGER NOT NULL,
  cached_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL
) STRICT;
INSERT INTO "usage" VALUES('0123456789abcdef',7,70,10,77);
CREATE UNIQUE INDEX keys_by_name ON keys (name) WHERE revoked_at IS NULL;
CREATE INDEX files_by_owner ON files (owner, seq);
CREATE INDEX batches_by_owner ON batches (owner, seq);
CREATE INDEX open_batches ON batches (seq) WHERE open = 1;
COMMIT;
PRAGMA user_version = 2;
