#include "server/store/batch_rows.h"

#include <utility>

#include "server/store/file_store.h"
#include "server/store/listing.h"
#include "server/store/random.h"

namespace skein {
namespace {

#define SKEIN_LIVE "status IN ('validating', 'in_progress', 'finalizing', 'cancelling')"

constexpr const char* kBatchColumns =
    "id, owner, endpoint, input_file, output_file, error_file, metadata, status, expires_at, "
    "total, completed, failed, validating_at, in_progress_at, finalizing_at, completed_at, "
    "failed_at, expired_at, cancelling_at, cancelled_at";
constexpr const char* kDeleteLines =
    "DELETE FROM batch_lines WHERE batch = ?1 AND line <= (SELECT max(line) FROM "
    "(SELECT line FROM batch_lines WHERE batch = ?1 ORDER BY line LIMIT ?2))";
constexpr int kFirstTime = 12;  // the columns of times stand in the order of BatchStatus
constexpr int kColumnCount = 20;
static_assert(kFirstTime + static_cast<int>(kBatchStatuses) == kColumnCount);

Result<BatchRecord> batch_of(const Cursor& row) {
  BatchRecord batch;
  batch.id = row.text(0);
  batch.owner = row.text(1);
  batch.endpoint = row.text(2);
  batch.input_file = row.text(3);
  batch.output_file = row.text(4);
  batch.error_file = row.text(5);
  batch.metadata = row.text(6);
  const auto status = batch_status_named(row.text(7));
  if (!status) return data_loss("store: the batch {} has no known status", batch.id);
  batch.status = *status;
  batch.expires_at_s = row.integer(8);
  batch.total_lines = static_cast<uint64_t>(row.integer(9));
  batch.completed_lines = static_cast<uint64_t>(row.integer(10));
  batch.failed_lines = static_cast<uint64_t>(row.integer(11));
  for (size_t i = 0; i < kBatchStatuses; ++i) {
    batch.began_at_s[i] = row.integer(kFirstTime + static_cast<int>(i));
  }
  return batch;
}

Result<std::vector<BatchError>> errors_of(Database& db, const std::string& id) {
  SKEIN_ASSIGN(Cursor rows, db.query("SELECT code, message, line FROM batch_errors WHERE batch = "
                                     "(SELECT seq FROM batches WHERE id = ?1) ORDER BY ordinal",
                                     {id}));
  std::vector<BatchError> errors;
  for (;;) {
    SKEIN_ASSIGN(const bool row, rows.next());
    if (!row) return errors;
    errors.push_back({rows.text(0), rows.text(1), rows.integer(2)});
  }
}

// Sets the status and the time at which it began; true when the batch was in one of `from`.
Result<bool> move_batch(Database& db, int64_t seq, const char* from, BatchStatus to,
                        int64_t now_s) {
  SKEIN_ASSIGN(const int64_t changed,
               db.run(fmt::format("UPDATE batches SET status = '{0}', {0}_at = ?1 WHERE seq = ?2 "
                                  "AND status IN ({1})",
                                  name_of(to), from),
                      {now_s, seq}));
  return changed == 1;
}

SqlValue text_or_null(const std::string& text) {
  if (text.empty()) return std::monostate{};
  return std::string_view(text);
}

Status insert_line(Database& db, int64_t seq, const InputLine& line) {
  const LineResult& refusal = line.refusal;
  const bool refused = refusal.status_code != 0;
  const auto value = [refused](SqlValue v) { return refused ? v : SqlValue{}; };
  return db
      .run(
          "INSERT INTO batch_lines (batch, line, custom_id, offset, bytes, status_code, "
          "request_id, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
          {seq, line.line, text_or_null(line.custom_id), static_cast<int64_t>(line.offset),
           static_cast<int64_t>(line.bytes), value(static_cast<int64_t>(refusal.status_code)),
           value(std::string_view(refusal.request_id)), value(std::string_view(refusal.body))})
      .status();
}

Status forget_oldest(Database& db, const std::string& owner) {
  SKEIN_ASSIGN(const int64_t kept,
               db.integer("SELECT count(*) FROM batches WHERE owner = ?1", {owner}));
  if (kept < kMaxKeptBatches) return {};
  return db
      .run(
          "DELETE FROM batches WHERE seq IN (SELECT seq FROM batches WHERE owner = ?1 AND open = 0 "
          "ORDER BY seq LIMIT ?2)",
          {owner, kept - kMaxKeptBatches + 1})
      .status();
}

Status check_validating(Database& db, int64_t seq) {
  SKEIN_ASSIGN(
      const int64_t count,
      db.integer("SELECT count(*) FROM batches WHERE seq = ?1 AND status = 'validating'", {seq}));
  return count == 1 ? Status{} : not_found("the batch is no longer being validated");
}

Status check_input_file(Database& db, const NewBatch& batch) {
  SKEIN_ASSIGN(const FileRecord file, find_file(db, batch.input_file, {batch.owner}));
  if (file.purpose == "batch") return {};
  return invalid_argument("the file '{}' has the purpose '{}'; a batch needs one with 'batch'",
                          file.id, file.purpose);
}

}  // namespace

Result<BatchRecord> create_batch(Database& db, const NewBatch& batch, int64_t now_s) {
  SKEIN_TRY(check_input_file(db, batch));
  SKEIN_ASSIGN(
      const int64_t live,
      db.integer("SELECT count(*) FROM batches WHERE owner = ?1 AND " SKEIN_LIVE, {batch.owner}));
  if (live >= kMaxLiveBatches) {
    return out_of_range("{} batches of this key have not ended, and {} is the most", live,
                        kMaxLiveBatches);
  }
  SKEIN_TRY(forget_oldest(db, batch.owner));
  const std::string id = "batch_" + random_hex(16);
  SKEIN_TRY(db.run("INSERT INTO batches (id, owner, endpoint, input_file, metadata, status, "
                   "expires_at, validating_at) VALUES (?1, ?2, ?3, ?4, ?5, 'validating', ?6, ?7)",
                   {id, batch.owner, batch.endpoint, batch.input_file, batch.metadata,
                    now_s + batch.lifetime_s, now_s})
                .status());
  return find_batch(db, id, {batch.owner});
}

Result<BatchRecord> find_batch(Database& db, const std::string& id, const Scope& scope) {
  SKEIN_ASSIGN(Cursor rows, db.query(fmt::format("SELECT {} FROM batches WHERE {} AND id = ?2",
                                                 kBatchColumns, owner_condition(scope)),
                                     {scope.owner, id}));
  SKEIN_ASSIGN(const bool row, rows.next());
  if (!row) return not_found("there is no batch with the id '{}'", id);
  SKEIN_ASSIGN(BatchRecord batch, batch_of(rows));
  SKEIN_ASSIGN(batch.errors, errors_of(db, id));
  return batch;
}

Result<Page<BatchRecord>> list_batches(Database& db, const Scope& scope,
                                       const ListOptions& options) {
  return list_rows<BatchRecord>(db, kBatchColumns, "batches", "?2 IS NOT NULL", scope, options,
                                [&db](const Cursor& row) -> Result<BatchRecord> {
                                  SKEIN_ASSIGN(BatchRecord batch, batch_of(row));
                                  SKEIN_ASSIGN(batch.errors, errors_of(db, batch.id));
                                  return batch;
                                });
}

Result<BatchRecord> cancel_batch(Database& db, const std::string& id, const Scope& scope,
                                 int64_t now_s) {
  SKEIN_ASSIGN(BatchRecord batch, find_batch(db, id, scope));
  if (batch.status == BatchStatus::kCancelling || batch.status == BatchStatus::kCancelled) {
    return batch;
  }
  SKEIN_ASSIGN(const int64_t seq, db.integer("SELECT seq FROM batches WHERE id = ?1", {id}));
  SKEIN_ASSIGN(const bool moved,
               move_batch(db, seq, "'validating', 'in_progress'", BatchStatus::kCancelling, now_s));
  if (!moved) {
    return invalid_argument("the batch '{}' is {} and can no longer be cancelled", id,
                            name_of(batch.status));
  }
  return find_batch(db, id, scope);
}

Status cancel_batches_of(Database& db, const std::string& owner, int64_t now_s) {
  return db
      .run(
          "UPDATE batches SET status = 'cancelling', cancelling_at = ?1 WHERE owner = ?2 AND "
          "status IN ('validating', 'in_progress')",
          {now_s, owner})
      .status();
}

Result<bool> is_input_of_live_batch(Database& db, const std::string& file) {
  SKEIN_ASSIGN(
      const int64_t count,
      db.integer("SELECT count(*) FROM batches WHERE open = 1 AND input_file = ?1 AND " SKEIN_LIVE,
                 {file}));
  return count != 0;
}

Result<std::vector<OpenBatch>> open_batches(Database& db) {
  SKEIN_ASSIGN(Cursor rows,
               db.query(fmt::format("SELECT {}, seq, outcome, served_s FROM batches WHERE open = 1 "
                                    "ORDER BY seq",
                                    kBatchColumns)));
  std::vector<OpenBatch> batches;
  for (;;) {
    SKEIN_ASSIGN(const bool row, rows.next());
    if (!row) return batches;
    OpenBatch batch;
    SKEIN_ASSIGN(batch.record, batch_of(rows));
    batch.seq = rows.integer(kColumnCount);
    batch.outcome =
        batch_status_named(rows.text(kColumnCount + 1)).value_or(BatchStatus::kCompleted);
    batch.served_s = rows.integer(kColumnCount + 2);
    batches.push_back(std::move(batch));
  }
}

Result<int64_t> discard_lines(Database& db, int64_t seq, int64_t limit) {
  SKEIN_TRY(check_validating(db, seq));
  return db.run(kDeleteLines, {seq, limit});
}

Status insert_lines(Database& db, int64_t seq, std::span<const InputLine> lines) {
  SKEIN_TRY(check_validating(db, seq));
  for (const InputLine& line : lines) SKEIN_TRY(insert_line(db, seq, line));
  return {};
}

Status begin_batch(Database& db, int64_t seq, int64_t now_s) {
  SKEIN_ASSIGN(const bool moved,
               move_batch(db, seq, "'validating'", BatchStatus::kInProgress, now_s));
  if (!moved) return {};
  return db
      .run(
          "UPDATE batches SET (total, failed) = (SELECT count(*), count(status_code) FROM "
          "batch_lines "
          "WHERE batch = ?1) WHERE seq = ?1",
          {seq})
      .status();
}

Status add_served_time(Database& db, int64_t seq, int64_t seconds) {
  return db.run("UPDATE batches SET served_s = served_s + ?1 WHERE seq = ?2", {seconds, seq})
      .status();
}

Status fail_batch(Database& db, int64_t seq, const std::vector<BatchError>& errors, int64_t now_s) {
  SKEIN_ASSIGN(const bool moved, move_batch(db, seq, "'validating'", BatchStatus::kFailed, now_s));
  if (!moved) return {};
  int64_t ordinal = 0;
  for (const BatchError& error : errors) {
    const SqlValue line = error.line == 0 ? SqlValue{} : SqlValue{error.line};
    SKEIN_TRY(db.run("INSERT INTO batch_errors VALUES (?1, ?2, ?3, ?4, ?5)",
                     {seq, ordinal++, error.code, error.message, line})
                  .status());
  }
  return {};
}

Status start_finalizing(Database& db, int64_t seq, BatchStatus outcome, int64_t now_s) {
  SKEIN_ASSIGN(const bool moved,
               move_batch(db, seq, "'validating', 'in_progress'", BatchStatus::kFinalizing, now_s));
  if (!moved) return {};
  return db.run("UPDATE batches SET outcome = ?1 WHERE seq = ?2", {name_of(outcome), seq}).status();
}

Status end_batch(Database& db, const OpenBatch& batch, BatchStatus outcome,
                 const FileRecord& output, const FileRecord& errors, int64_t now_s) {
  SKEIN_ASSIGN(const bool moved,
               move_batch(db, batch.seq, "'finalizing', 'cancelling'", outcome, now_s));
  if (!moved) return not_found("the batch '{}' has ended", batch.record.id);
  for (const FileRecord* file : {&output, &errors}) {
    if (!file->id.empty()) SKEIN_TRY(insert_file(db, *file));
  }
  return db
      .run("UPDATE batches SET output_file = ?1, error_file = ?2 WHERE seq = ?3",
           {text_or_null(output.id), text_or_null(errors.id), batch.seq})
      .status();
}

Status drop_lines(Database& db, int64_t seq, int64_t limit) {
  SKEIN_ASSIGN(const int64_t dropped, db.run(kDeleteLines, {seq, limit}));
  if (dropped == limit) return {};
  return db.run("UPDATE batches SET open = 0 WHERE seq = ?1", {seq}).status();
}

Result<std::vector<InputLine>> pending_lines(Database& db, int64_t seq, int64_t from,
                                             int64_t limit) {
  SKEIN_ASSIGN(
      Cursor rows,
      db.query("SELECT line, custom_id, offset, bytes FROM batch_lines WHERE batch = ?1 "
               "AND line >= ?2 AND status_code IS NULL AND deaths = 0 ORDER BY line LIMIT ?3",
               {seq, from, limit}));
  std::vector<InputLine> lines;
  for (;;) {
    SKEIN_ASSIGN(const bool row, rows.next());
    if (!row) return lines;
    lines.push_back({rows.integer(0),
                     rows.text(1),
                     static_cast<uint64_t>(rows.integer(2)),
                     static_cast<uint64_t>(rows.integer(3)),
                     {}});
  }
}

Result<std::vector<OutputLine>> output_lines(Database& db, int64_t seq, int64_t after,
                                             int64_t limit) {
  SKEIN_ASSIGN(Cursor rows,
               db.query("SELECT line, custom_id, status_code, request_id, body FROM batch_lines "
                        "WHERE batch = ?1 AND line > ?2 ORDER BY line LIMIT ?3",
                        {seq, after, limit}));
  std::vector<OutputLine> lines;
  for (;;) {
    SKEIN_ASSIGN(const bool row, rows.next());
    if (!row) return lines;
    lines.push_back({rows.integer(0),
                     rows.text(1),
                     {static_cast<int32_t>(rows.integer(2)), rows.text(3), rows.text(4)}});
  }
}

Status finish_line(Database& db, const std::string& batch, int64_t line, const LineResult& result) {
  auto seq =
      db.integer("SELECT seq FROM batches WHERE id = ?1 AND status = 'in_progress'", {batch});
  if (seq.status().code() == Code::kNotFound) {
    return not_found("the batch '{}' is not in progress", batch);
  }
  SKEIN_TRY(seq.status());
  SKEIN_ASSIGN(
      const int64_t changed,
      db.run(
          "UPDATE batch_lines SET status_code = ?1, request_id = ?2, body = ?3, running = 0 "
          "WHERE batch = ?4 AND line = ?5 AND status_code IS NULL",
          {static_cast<int64_t>(result.status_code), result.request_id, result.body, *seq, line}));
  if (changed == 0) {
    SKEIN_ASSIGN(const int64_t exists,
                 db.integer("SELECT count(*) FROM batch_lines WHERE batch = ?1 AND line = ?2",
                            {*seq, line}));
    if (exists == 0) return not_found("the batch '{}' has no line {}", batch, line);
    return already_exists("line {} of the batch '{}' has its result", line, batch);
  }
  const bool success = result.status_code >= 200 && result.status_code < 300;
  return db
      .run(success ? "UPDATE batches SET completed = completed + 1 WHERE seq = ?1"
                   : "UPDATE batches SET failed = failed + 1 WHERE seq = ?1",
           {*seq})
      .status();
}

}  // namespace skein
