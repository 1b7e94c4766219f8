// Batches and their lines as rows: every change of a batch's state is one function here, and each
// says from which statuses it may be made. All of it runs on the store's thread; a function that
// changes rows runs inside a write job, so it is kept whole or not at all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/store/records.h"
#include "server/store/sqlite.h"

namespace skein {

inline constexpr int64_t kBatchLifetimeS = int64_t{24} * 3600;
// Batches of one owner that have not ended: what bounds the store.
inline constexpr int64_t kMaxLiveBatches = 100;
// Batches of one owner that are remembered; beyond, the oldest that have ended are forgotten. Their
// files stay.
inline constexpr int64_t kMaxKeptBatches = 10'000;

struct NewBatch {
  std::string owner;
  std::string endpoint;
  std::string input_file;
  std::string metadata;
  int64_t lifetime_s = kBatchLifetimeS;  // until it expires
};

// A batch that the runner has something to do for: it has not ended, or its lines are still there.
struct OpenBatch {
  int64_t seq = 0;
  BatchStatus outcome = BatchStatus::kCompleted;  // while finalizing: the status to come
  int64_t served_s = 0;  // that a server has run since it was made, as far as it is written
  BatchRecord record;
};

// One line of an input file that was taken; with a result already when it cannot be run.
struct InputLine {
  int64_t line = 0;
  std::string custom_id;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  LineResult refusal;  // status_code 0: to be run
};

// A line on its way out.
struct OutputLine {
  int64_t line = 0;
  std::string custom_id;
  LineResult result;  // status_code 0: it never ran
};

// kNotFound: the owner has no such input file. kInvalidArgument: its purpose is not "batch".
// kOutOfRange: kMaxLiveBatches.
Result<BatchRecord> create_batch(Database& db, const NewBatch& batch, int64_t now_s);
Result<BatchRecord> find_batch(Database& db, const std::string& id, const Scope& scope);
Result<Page<BatchRecord>> list_batches(Database& db, const Scope& scope,
                                       const ListOptions& options);
// validating, in_progress -> cancelling. Twice is once; kInvalidArgument for what has ended.
Result<BatchRecord> cancel_batch(Database& db, const std::string& id, const Scope& scope,
                                 int64_t now_s);
Status cancel_batches_of(Database& db, const std::string& owner, int64_t now_s);

Result<bool> is_input_of_live_batch(Database& db, const std::string& file);
Result<std::vector<OpenBatch>> open_batches(Database& db);  // oldest first

// The transitions below do nothing when the batch has left the status they start from (a cancel
// may have come first).

// While validating, piece by piece: 50,000 lines at once would hold up every other caller of the
// store. kNotFound: the batch has left that status. A server that died in the middle leaves lines
// behind; discard_lines() removes up to `limit` of them and says how many those were.
Result<int64_t> discard_lines(Database& db, int64_t seq, int64_t limit);
Status insert_lines(Database& db, int64_t seq, std::span<const InputLine> lines);
// validating -> in_progress, when all its lines are in.
Status begin_batch(Database& db, int64_t seq, int64_t now_s);
// validating -> failed
Status fail_batch(Database& db, int64_t seq, const std::vector<BatchError>& errors, int64_t now_s);
// validating, in_progress -> finalizing, on the way to completed or expired
Status start_finalizing(Database& db, int64_t seq, BatchStatus outcome, int64_t now_s);
// finalizing, cancelling -> outcome, together with the files' rows: it happens once however often
// it is tried.
Status end_batch(Database& db, const OpenBatch& batch, BatchStatus outcome,
                 const FileRecord& output, const FileRecord& errors, int64_t now_s);

// Counts seconds that a server has run towards the batch's lifetime.
Status add_served_time(Database& db, int64_t seq, int64_t seconds);

// Removes up to `limit` lines of a batch that has ended.
Status drop_lines(Database& db, int64_t seq, int64_t limit);

// Up to `limit` lines without a result, from line `from` on; not those of suspect_lines().
Result<std::vector<InputLine>> pending_lines(Database& db, int64_t seq, int64_t from,
                                             int64_t limit);
// Up to `limit` lines after line `after`, with and without results.
Result<std::vector<OutputLine>> output_lines(Database& db, int64_t seq, int64_t after,
                                             int64_t limit);
// The line's one and only result. kAlreadyExists when it has one, kNotFound when the batch or the
// line does not exist or the batch is no longer in progress.
Status finish_line(Database& db, const std::string& batch, int64_t line, const LineResult& result);

}  // namespace skein
