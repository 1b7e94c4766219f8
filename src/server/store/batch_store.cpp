#include "server/store/batch_store.h"

#include <algorithm>
#include <string_view>

#include "server/store/file_store.h"
#include "server/store/listing.h"
#include "server/store/random.h"

namespace skein {
namespace {

std::optional<BatchStatus> batch_status_named(std::string_view name) {
  const auto* const it = std::find(kBatchStatusNames.begin(), kBatchStatusNames.end(), name);
  if (it == kBatchStatusNames.end()) return std::nullopt;
  return static_cast<BatchStatus>(it - kBatchStatusNames.begin());
}

#define SKEIN_LIVE "status IN ('validating', 'in_progress', 'finalizing', 'cancelling')"

constexpr const char* kBatchColumns =
    "id, owner, endpoint, input_file, output_file, error_file, metadata, status, expires_at, "
    "total, completed + coalesce((SELECT CAST(sum(c.completed) AS BIGINT) FROM batch_counts c "
    "WHERE "
    "c.batch = batches.seq), 0), failed + coalesce((SELECT CAST(sum(c.failed) AS BIGINT) FROM "
    "batch_counts c WHERE c.batch = batches.seq), 0), validating_at, in_progress_at, "
    "finalizing_at, completed_at, "
    "failed_at, expired_at, cancelling_at, cancelled_at";
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
  return db.list<BatchError>(
      "SELECT code, message, line FROM batch_errors WHERE batch = (SELECT seq FROM batches WHERE "
      "id "
      "= $1) ORDER BY ordinal",
      {id}, [](const Cursor& row) {
        return BatchError{row.text(0), row.text(1), row.integer(2)};
      });
}

// Sets the status and the time at which it began; true when the batch was in one of `from`.
Result<bool> move_batch(Database& db, int64_t seq, const char* from, BatchStatus to,
                        int64_t now_s) {
  SKEIN_ASSIGN(const int64_t changed,
               db.run(fmt::format("UPDATE batches SET status = '{0}', {0}_at = $1 WHERE seq = $2 "
                                  "AND status IN ({1})",
                                  name_of(to), from),
                      {now_s, seq}));
  return changed == 1;
}

// As move_batch(), by the server that validates it; false where the batch has left that status.
Result<bool> end_validation(Database& db, int64_t epoch, int64_t seq, BatchStatus to,
                            int64_t now_s) {
  const Status taken = take_batch(db, epoch, seq, name_of(BatchStatus::kValidating));
  if (taken.code() == Code::kNotFound) {
    SKEIN_TRY(check_epoch(db, epoch));
    return false;
  }
  SKEIN_TRY(taken);
  return move_batch(db, seq, "'validating'", to, now_s);
}

Status forget_oldest(Database& db, const std::string& owner) {
  SKEIN_ASSIGN(const int64_t kept,
               db.integer("SELECT count(*) FROM batches WHERE owner = $1", {owner}));
  if (kept < kMaxKeptBatches) return {};
  return db.exec(
      "DELETE FROM batches WHERE seq IN (SELECT seq FROM batches WHERE owner = $1 AND open = 0 "
      "ORDER BY seq LIMIT $2)",
      {owner, kept - kMaxKeptBatches + 1});
}

Status check_input_file(Database& db, const NewBatch& batch) {
  SKEIN_ASSIGN(const FileRecord file, find_file(db, batch.input_file, {batch.owner}));
  if (file.purpose == "batch") return {};
  return invalid_argument("the file '{}' has the purpose '{}'; a batch needs one with 'batch'",
                          file.id, file.purpose);
}

Result<BatchRecord> find_batch(Database& db, const std::string& id, const Scope& scope) {
  SKEIN_ASSIGN(std::vector<BatchRecord> found,
               db.list<BatchRecord>(fmt::format("SELECT {} FROM batches WHERE {} AND id = $2",
                                                kBatchColumns, owner_condition(scope)),
                                    {scope.owner, id}, batch_of));
  if (found.empty()) return not_found("there is no batch with the id '{}'", id);
  SKEIN_ASSIGN(found.front().errors, errors_of(db, id));
  return std::move(found.front());
}

Result<BatchRecord> create_batch(Database& db, const NewBatch& batch, int64_t now_s) {
  SKEIN_TRY(db.be_alone());
  SKEIN_TRY(check_input_file(db, batch));
  SKEIN_ASSIGN(
      const int64_t live,
      db.integer("SELECT count(*) FROM batches WHERE owner = $1 AND " SKEIN_LIVE, {batch.owner}));
  if (live >= kMaxLiveBatches) {
    return out_of_range("{} batches of this key have not ended, and {} is the most", live,
                        kMaxLiveBatches);
  }
  SKEIN_TRY(forget_oldest(db, batch.owner));
  const std::string id = "batch_" + random_hex(16);
  SKEIN_TRY(
      db.exec("INSERT INTO batches (id, owner, endpoint, input_file, metadata, status, "
              "expires_at, validating_at) VALUES ($1, $2, $3, $4, $5, 'validating', $6, $7)",
              {id, batch.owner, batch.endpoint, batch.input_file, batch.metadata,
               now_s + batch.lifetime_s, now_s}));
  return find_batch(db, id, {batch.owner});
}

Result<BatchRecord> cancel_batch(Database& db, const std::string& id, const Scope& scope,
                                 int64_t now_s) {
  SKEIN_ASSIGN(BatchRecord batch, find_batch(db, id, scope));
  if (batch.status == BatchStatus::kCancelling || batch.status == BatchStatus::kCancelled) {
    return batch;
  }
  SKEIN_ASSIGN(const int64_t seq, db.integer("SELECT seq FROM batches WHERE id = $1", {id}));
  SKEIN_ASSIGN(const bool moved,
               move_batch(db, seq, "'validating', 'in_progress'", BatchStatus::kCancelling, now_s));
  if (!moved) {
    return invalid_argument("the batch '{}' is {} and can no longer be cancelled", id,
                            name_of(batch.status));
  }
  return find_batch(db, id, scope);
}

}  // namespace

Status cancel_batches_of(Database& db, const std::string& owner, int64_t now_s) {
  return db.exec(
      "UPDATE batches SET status = 'cancelling', cancelling_at = $1 WHERE owner = $2 AND "
      "status IN ('validating', 'in_progress')",
      {now_s, owner});
}

Result<bool> is_input_of_live_batch(Database& db, const std::string& file) {
  SKEIN_ASSIGN(
      const int64_t count,
      db.integer("SELECT count(*) FROM batches WHERE open = 1 AND input_file = $1 AND " SKEIN_LIVE,
                 {file}));
  return count != 0;
}

void BatchStore::create(NewBatch batch, Done<BatchRecord> done) {
  thread_.write<BatchRecord>(job_of(create_batch, std::move(batch), now_s_()), std::move(done));
}

void BatchStore::get(std::string id, Scope scope, Done<BatchRecord> done) {
  thread_.read<BatchRecord>(job_of(find_batch, std::move(id), std::move(scope)), std::move(done));
}

void BatchStore::list(Scope scope, ListOptions options, Done<Page<BatchRecord>> done) {
  thread_.read<Page<BatchRecord>>(
      [scope = std::move(scope), options = std::move(options)](Database& db) {
        return list_rows<BatchRecord>(db, kBatchColumns, "batches", "$2 IS NOT NULL", scope,
                                      options, [&db](const Cursor& row) -> Result<BatchRecord> {
                                        SKEIN_ASSIGN(BatchRecord batch, batch_of(row));
                                        SKEIN_ASSIGN(batch.errors, errors_of(db, batch.id));
                                        return batch;
                                      });
      },
      std::move(done));
}

void BatchStore::cancel(std::string id, Scope scope, Done<BatchRecord> done) {
  thread_.write_freeing<BatchRecord>(
      job_of(cancel_batch, std::move(id), std::move(scope), now_s_()), std::move(done));
}

Result<std::vector<OpenBatch>> BatchStore::open_batches() {
  return thread_.read_and_wait<std::vector<OpenBatch>>([](Database& db) {
    return db.list<OpenBatch>(
        fmt::format("SELECT {}, seq, outcome, served_s FROM batches WHERE open = 1 ORDER BY seq",
                    kBatchColumns),
        {}, [](const Cursor& row) -> Result<OpenBatch> {
          SKEIN_ASSIGN(BatchRecord record, batch_of(row));
          const auto outcome = batch_status_named(row.text(kColumnCount + 1));
          return OpenBatch{row.integer(kColumnCount), outcome.value_or(BatchStatus::kCompleted),
                           row.integer(kColumnCount + 2), std::move(record)};
        });
  });
}

Status BatchStore::begin(int64_t epoch, int64_t batch) {
  return thread_.write_and_wait([epoch, batch, now_s = now_s_()](Database& db) -> Status {
    SKEIN_ASSIGN(const bool moved,
                 end_validation(db, epoch, batch, BatchStatus::kInProgress, now_s));
    if (!moved) return {};
    return db.exec(
        "UPDATE batches SET (total, failed) = (SELECT count(*), count(status_code) FROM "
        "batch_lines WHERE batch = $1), epoch = NULL WHERE seq = $1",
        {batch});
  });
}

Status BatchStore::fail(int64_t epoch, int64_t batch, const std::vector<BatchError>& errors) {
  return thread_.write_and_wait([epoch, batch, &errors, now_s = now_s_()](Database& db) -> Status {
    SKEIN_ASSIGN(const bool moved, end_validation(db, epoch, batch, BatchStatus::kFailed, now_s));
    if (!moved) return {};
    int64_t ordinal = 0;
    for (const BatchError& error : errors) {
      const SqlValue line = error.line == 0 ? SqlValue{} : SqlValue{error.line};
      SKEIN_TRY(db.exec("INSERT INTO batch_errors VALUES ($1, $2, $3, $4, $5)",
                        {batch, ordinal++, error.code, error.message, line}));
    }
    return {};
  });
}

Status BatchStore::finalize(int64_t epoch, int64_t batch, BatchStatus outcome) {
  return thread_.write_and_wait([epoch, batch, outcome, now_s = now_s_()](Database& db) -> Status {
    SKEIN_TRY(check_epoch(db, epoch));
    SKEIN_ASSIGN(const bool moved, move_batch(db, batch, "'validating', 'in_progress'",
                                              BatchStatus::kFinalizing, now_s));
    if (!moved) return {};
    return db.exec("UPDATE batches SET outcome = $1, epoch = NULL WHERE seq = $2",
                   {name_of(outcome), batch});
  });
}

Status BatchStore::end(int64_t epoch, const OpenBatch& batch, BatchStatus outcome,
                       const FileRecord& output, const FileRecord& errors) {
  return thread_.write_and_wait([&, now_s = now_s_()](Database& db) -> Status {
    SKEIN_TRY(check_epoch(db, epoch));
    SKEIN_ASSIGN(const bool moved,
                 move_batch(db, batch.seq, "'finalizing', 'cancelling'", outcome, now_s));
    if (!moved) return not_found("the batch '{}' has ended", batch.record.id);
    for (const FileRecord* file : {&output, &errors}) {
      if (!file->id.empty()) SKEIN_TRY(insert_file(db, *file));
    }
    return db.exec(
        "UPDATE batches SET output_file = $1, error_file = $2, epoch = NULL WHERE seq = $3",
        {text_or_null(output.id), text_or_null(errors.id), batch.seq});
  });
}

}  // namespace skein
