// How PostgreSQL spells the store's tables and what else a SqlDialect holds. The first step makes
// what SQLite has come to step by step.
#include <array>

#include "server/store/postgres/postgres_database.h"

namespace skein {
namespace {

constexpr std::array kPostgresSteps = {
    // 1: as of SQLite's step 7
    R"sql(
CREATE TABLE meta (name TEXT PRIMARY KEY, value BYTEA NOT NULL);
CREATE TABLE keys (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  tier BIGINT NOT NULL CHECK (tier BETWEEN 0 AND 2),
  models TEXT NOT NULL,
  requests_per_minute BIGINT NOT NULL,
  tokens_per_minute BIGINT NOT NULL,
  admin BIGINT NOT NULL,
  salt BYTEA NOT NULL,
  digest BYTEA NOT NULL,
  created_at BIGINT NOT NULL,
  rotated_at BIGINT,
  revoked_at BIGINT
);
CREATE UNIQUE INDEX keys_by_name ON keys (name) WHERE revoked_at IS NULL;
CREATE TABLE usage (
  owner TEXT COLLATE "C" PRIMARY KEY,
  requests BIGINT NOT NULL,
  prompt_tokens BIGINT NOT NULL,
  cached_tokens BIGINT NOT NULL,
  output_tokens BIGINT NOT NULL
);
CREATE TABLE files (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  purpose TEXT NOT NULL,
  name TEXT NOT NULL,
  bytes BIGINT NOT NULL,
  created_at BIGINT NOT NULL
);
CREATE INDEX files_by_owner ON files (owner, seq);
CREATE TABLE file_parts (
  file TEXT NOT NULL,
  part BIGINT NOT NULL,              -- 1 MiB each, but for the last
  epoch BIGINT NOT NULL,             -- of the server that wrote it
  written_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
  bytes BYTEA NOT NULL,
  PRIMARY KEY (file, part)
);
ALTER TABLE file_parts ALTER COLUMN bytes SET STORAGE EXTERNAL;
CREATE TABLE nodes (
  epoch BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name TEXT NOT NULL,
  renewed_at BIGINT NOT NULL,
  lease_until TIMESTAMPTZ NOT NULL   -- by this database's clock
);
CREATE TABLE batches (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  endpoint TEXT NOT NULL,
  input_file TEXT NOT NULL,
  metadata TEXT NOT NULL,
  status TEXT NOT NULL,
  outcome TEXT,
  open BIGINT NOT NULL DEFAULT 1,
  output_file TEXT,
  error_file TEXT,
  total BIGINT NOT NULL DEFAULT 0,
  completed BIGINT NOT NULL DEFAULT 0,
  failed BIGINT NOT NULL DEFAULT 0,
  expires_at BIGINT NOT NULL,
  validating_at BIGINT NOT NULL,
  in_progress_at BIGINT,
  finalizing_at BIGINT,
  completed_at BIGINT,
  failed_at BIGINT,
  expired_at BIGINT,
  cancelling_at BIGINT,
  cancelled_at BIGINT,
  served_s BIGINT NOT NULL DEFAULT 0,
  epoch BIGINT
);
CREATE INDEX batches_by_owner ON batches (owner, seq);
CREATE INDEX open_batches ON batches (seq) WHERE open = 1;
CREATE TABLE batch_lines (
  batch BIGINT NOT NULL REFERENCES batches (seq) ON DELETE CASCADE,
  line BIGINT NOT NULL,
  custom_id TEXT,
  first_byte BIGINT NOT NULL,
  bytes BIGINT NOT NULL,
  status_code BIGINT,
  request_id TEXT,
  body TEXT,
  alone BIGINT NOT NULL DEFAULT 0,
  deaths BIGINT NOT NULL DEFAULT 0,
  alone_deaths BIGINT NOT NULL DEFAULT 0,
  epoch BIGINT,
  model TEXT,
  PRIMARY KEY (batch, line)
);
CREATE INDEX suspect_lines ON batch_lines (batch, line) WHERE deaths != 0 AND status_code IS NULL;
CREATE INDEX claimed_lines ON batch_lines (epoch) WHERE epoch IS NOT NULL;
CREATE INDEX free_lines ON batch_lines (batch, line, model)
  WHERE status_code IS NULL AND epoch IS NULL AND deaths = 0;
CREATE TABLE batch_counts (
  batch BIGINT NOT NULL REFERENCES batches (seq) ON DELETE CASCADE,
  epoch BIGINT NOT NULL,
  completed BIGINT NOT NULL,
  failed BIGINT NOT NULL,
  PRIMARY KEY (batch, epoch)
);
CREATE TABLE batch_errors (
  batch BIGINT NOT NULL REFERENCES batches (seq) ON DELETE CASCADE,
  ordinal BIGINT NOT NULL,
  code TEXT NOT NULL,
  message TEXT NOT NULL,
  line BIGINT,
  PRIMARY KEY (batch, ordinal)
);
CREATE TABLE model_loads (
  path TEXT PRIMARY KEY,
  fingerprint TEXT NOT NULL,
  quarantined BIGINT NOT NULL
);
CREATE TABLE responses (
  seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  previous BIGINT REFERENCES responses (seq),
  hidden BIGINT NOT NULL DEFAULT 0,
  served_s BIGINT NOT NULL,
  turns BIGINT NOT NULL,
  bytes BIGINT NOT NULL,
  chain_bytes BIGINT NOT NULL,
  conversation_bytes BIGINT NOT NULL,
  input TEXT NOT NULL,
  output TEXT NOT NULL,
  head TEXT NOT NULL,
  tail TEXT NOT NULL
);
CREATE INDEX responses_by_owner ON responses (owner, seq) WHERE hidden = 0;
CREATE INDEX responses_by_age ON responses (served_s) WHERE hidden = 0;
CREATE INDEX responses_by_previous ON responses (previous) WHERE previous IS NOT NULL;
CREATE INDEX hidden_responses ON responses (seq) WHERE hidden = 1;
CREATE INDEX responses_to_go ON responses (owner) WHERE hidden = 2;
CREATE TABLE served_time (seconds BIGINT NOT NULL);
INSERT INTO served_time VALUES (0);
CREATE TABLE response_use (
  owner TEXT PRIMARY KEY,
  kept BIGINT NOT NULL,
  bytes BIGINT NOT NULL
);

-- What a key has left of its minute, as TokenBucket of auth/rate_limiter.h counts it: levels are tokens times the
-- microseconds of a minute. Lost in a crash, which makes them full again.
CREATE UNLOGGED TABLE buckets (
  key TEXT PRIMARY KEY,
  requests BIGINT NOT NULL,          -- a minute, when it was last looked at
  tokens BIGINT NOT NULL,
  requests_level BIGINT NOT NULL,
  tokens_level BIGINT NOT NULL,
  at TIMESTAMPTZ NOT NULL
) WITH (fillfactor = 50);
-- The level of a bucket after so long; a new rate keeps what was used, not what was left.
CREATE FUNCTION refilled(level BIGINT, old_rate BIGINT, rate BIGINT, elapsed_us BIGINT) RETURNS BIGINT
LANGUAGE plpgsql IMMUTABLE AS $body$
DECLARE
  capacity BIGINT := rate * 60000000;
  now_level BIGINT := level + (rate - old_rate) * 60000000;
BEGIN
  IF rate = 0 THEN RETURN 0; END IF;
  IF elapsed_us >= (capacity - now_level) / rate + 1 THEN RETURN capacity; END IF;
  RETURN least(capacity, now_level + greatest(0, elapsed_us) * rate);
END $body$;
-- Locks the row and fills it up to this moment.
CREATE FUNCTION bucket_of(who TEXT, rpm BIGINT, tpm BIGINT) RETURNS buckets LANGUAGE plpgsql AS $body$
DECLARE
  b buckets;
  elapsed_us BIGINT;
BEGIN
  INSERT INTO buckets VALUES (who, rpm, tpm, rpm * 60000000, tpm * 60000000, clock_timestamp())
    ON CONFLICT (key) DO NOTHING;
  SELECT * INTO b FROM buckets WHERE key = who FOR UPDATE;
  elapsed_us := greatest(0, CAST(extract(epoch FROM clock_timestamp() - b.at) * 1000000 AS BIGINT));
  b.requests_level := refilled(b.requests_level, b.requests, rpm, elapsed_us);
  b.tokens_level := refilled(b.tokens_level, b.tokens, tpm, elapsed_us);
  b.requests := rpm;
  b.tokens := tpm;
  b.at := b.at + elapsed_us * interval '1 microsecond';
  RETURN b;
END $body$;
CREATE FUNCTION keep_bucket(b buckets) RETURNS VOID LANGUAGE sql AS $body$
  UPDATE buckets SET requests = b.requests, tokens = b.tokens, requests_level = b.requests_level,
    tokens_level = b.tokens_level, at = b.at WHERE key = b.key;
$body$;
-- So many requests and tokens, or nothing and how long to wait for each.
CREATE FUNCTION admit(who TEXT, rpm BIGINT, tpm BIGINT, need BIGINT, takes_all BIGINT, asked BIGINT,
                      OUT requests_wait_us BIGINT, OUT tokens_wait_us BIGINT, OUT reserved BIGINT)
LANGUAGE plpgsql AS $body$
DECLARE
  b buckets := bucket_of(who, rpm, tpm);
BEGIN
  requests_wait_us := 0;
  tokens_wait_us := 0;
  reserved := 0;
  IF rpm > 0 AND asked > 0 AND b.requests_level < asked * 60000000 THEN
    requests_wait_us := (asked * 60000000 - b.requests_level + rpm - 1) / rpm;
  END IF;
  IF tpm > 0 AND b.tokens_level < need * 60000000 THEN
    tokens_wait_us := (need * 60000000 - b.tokens_level + tpm - 1) / tpm;
  END IF;
  IF requests_wait_us > 0 OR tokens_wait_us > 0 THEN RETURN; END IF;
  IF rpm > 0 THEN b.requests_level := b.requests_level - asked * 60000000; END IF;
  IF tpm > 0 THEN
    reserved := CASE WHEN takes_all = 1 THEN greatest(0, b.tokens_level / 60000000) ELSE need END;
    b.tokens_level := b.tokens_level - reserved * 60000000;
  END IF;
  PERFORM keep_bucket(b);
END $body$;
-- A bucket may go below zero, by as much as 64 bits hold, and is never above full.
CREATE FUNCTION settle(who TEXT, rpm BIGINT, tpm BIGINT, more BIGINT) RETURNS VOID LANGUAGE plpgsql AS $body$
DECLARE
  b buckets := bucket_of(who, rpm, tpm);
BEGIN
  b.tokens_level := greatest(-(1::BIGINT << 61), least(tpm * 60000000, b.tokens_level - more * 60000000));
  PERFORM keep_bucket(b);
END $body$;

-- Every server hears of changes of keys and batches: at once, and by the number where no notice comes.
CREATE TABLE changes (n BIGINT NOT NULL);
INSERT INTO changes VALUES (0);
CREATE FUNCTION tell_of_table() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
  PERFORM pg_notify('skein', TG_TABLE_NAME);
  RETURN NULL;
END $body$;
CREATE FUNCTION count_change() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
  EXECUTE format('UPDATE %I.changes SET n = n + 1', TG_TABLE_SCHEMA);
  RETURN NULL;
END $body$;
CREATE TRIGGER keys_told AFTER INSERT OR UPDATE OR DELETE ON keys
  FOR EACH STATEMENT EXECUTE FUNCTION tell_of_table();
CREATE TRIGGER keys_counted AFTER INSERT OR UPDATE OR DELETE ON keys
  FOR EACH STATEMENT EXECUTE FUNCTION count_change();
CREATE TRIGGER batches_told AFTER INSERT OR UPDATE OR DELETE ON batches
  FOR EACH STATEMENT EXECUTE FUNCTION tell_of_table();

-- A content goes with its row, and a row comes with its whole content or not at all.
CREATE FUNCTION remove_parts() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
  EXECUTE format('DELETE FROM %I.file_parts WHERE file = $1', TG_TABLE_SCHEMA) USING OLD.id;
  RETURN NULL;
END $body$;
CREATE TRIGGER files_removed AFTER DELETE ON files
  FOR EACH ROW EXECUTE FUNCTION remove_parts();
CREATE FUNCTION check_parts() RETURNS trigger LANGUAGE plpgsql AS $body$
DECLARE there BIGINT;
BEGIN
  EXECUTE format('SELECT coalesce(sum(length(bytes)), 0) FROM %I.file_parts WHERE file = $1',
                 TG_TABLE_SCHEMA) INTO there USING NEW.id;
  IF there != NEW.bytes THEN
    RAISE EXCEPTION 'of % there are % bytes, not %', NEW.id, there, NEW.bytes USING ERRCODE = 'SK001';
  END IF;
  RETURN NEW;
END $body$;
CREATE TRIGGER files_checked BEFORE INSERT ON files
  FOR EACH ROW EXECUTE FUNCTION check_parts();
)sql",
    // 2: SQLite's step 8; a clock that was ahead and was set right fills no bucket for as long as
    // it
    // was ahead no more
    R"sql(
ALTER TABLE batch_lines ADD COLUMN headers TEXT;  -- a JSON object
CREATE OR REPLACE FUNCTION bucket_of(who TEXT, rpm BIGINT, tpm BIGINT) RETURNS buckets LANGUAGE plpgsql AS $body$
DECLARE
  b buckets;
  now TIMESTAMPTZ;
  elapsed_us BIGINT;
BEGIN
  INSERT INTO buckets VALUES (who, rpm, tpm, rpm * 60000000, tpm * 60000000, clock_timestamp())
    ON CONFLICT (key) DO NOTHING;
  SELECT * INTO b FROM buckets WHERE key = who FOR UPDATE;
  now := clock_timestamp();
  -- Kept also where nothing is taken: it would stay ahead.
  IF b.at > now THEN UPDATE buckets SET at = now WHERE key = who; END IF;
  elapsed_us := greatest(0, CAST(extract(epoch FROM now - b.at) * 1000000 AS BIGINT));
  b.requests_level := refilled(b.requests_level, b.requests, rpm, elapsed_us);
  b.tokens_level := refilled(b.tokens_level, b.tokens, tpm, elapsed_us);
  b.requests := rpm;
  b.tokens := tpm;
  b.at := now;
  RETURN b;
END $body$;
)sql",
};

}  // namespace

const SqlDialect& postgres_dialect() {
  static const SqlDialect dialect{
      .schema = kPostgresSteps,
      .version = "SELECT n FROM skein_version",
      .set_version = "UPDATE skein_version SET n = ",
      .begin = "BEGIN",
      .begin_read = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
      .skip_locked = " FOR UPDATE SKIP LOCKED",
      .hold = " FOR SHARE",
      .alone = "SELECT 1 FROM (SELECT pg_advisory_xact_lock(7355608)) AS lock",
      .lives = "lease_until > clock_timestamp()",
      .lease_end = "clock_timestamp() + {} * interval '1 millisecond'",
      .one_of = "IN (SELECT jsonb_array_elements_text(CAST({} AS jsonb)))"};
  return dialect;
}

}  // namespace skein
