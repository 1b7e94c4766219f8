// Batches and their lines in the database. Every change of a batch's state is one verb here, which
// says from which statuses it may be made; where the batch has left them (a cancel may have come
// first) it does nothing.
//
// A line runs on the server that has claimed it. A server has a new epoch from each start on; the
// epoch stands in the lines it has claimed, and is the fence: a result that comes under another
// epoch than the line's is refused, and so is every step of a batch by a server whose epoch has
// ended. An epoch ends when another server with the same name starts (on a folder: any), when its
// server leaves, or, where several share a store, when it has not been renewed for the time of its
// lease by the database's clock; others then end it, unless its server is in the middle of a
// transaction. Claims of an epoch that was ended by others are of a server that died. A line that
// was claimed at a death runs alone from then on, one at a time: that tells the line that kills
// servers from those that stood beside it. A line that was alone at two deaths, or was there at
// three, fails.
//
// What may concern 50,000 lines is done in pieces, so that nobody waits long for the store.
//
// Thread-safety: any thread but the store's, which the verbs without a `done` wait for; `done` is
// called on the store's thread.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "server/store/records.h"
#include "server/store/store_thread.h"

namespace skein {

inline constexpr int64_t kBatchLifetimeS = int64_t{24} * 3600;
// Batches of one owner that have not ended: what bounds the store.
inline constexpr int64_t kMaxLiveBatches = 100;
// Batches of one owner that are remembered; beyond, the oldest that have ended are forgotten. Their
// files stay.
inline constexpr int64_t kMaxKeptBatches = 10'000;
inline constexpr int64_t kMaxDeathsAlone = 2;
inline constexpr int64_t kMaxDeaths = 3;

struct NewBatch {
  std::string owner;
  std::string endpoint;
  std::string input_file;
  std::string metadata;
  int64_t lifetime_s = kBatchLifetimeS;  // until it expires
};

// A batch that there is something to do for: it has not ended, or its lines are still there.
struct OpenBatch {
  int64_t seq = 0;                                // its number in the database
  BatchStatus outcome = BatchStatus::kCompleted;  // while finalizing: the status to come
  int64_t served_s = 0;  // that a server has run since it was made, as far as it is written
  BatchRecord record;
};

struct LineId {
  int64_t batch = 0;  // OpenBatch::seq
  int64_t line = 0;   // of the input file, from 1
  friend auto operator<=>(const LineId&, const LineId&) = default;
};

// One line of an input file that was taken; with a result already when it cannot be run.
struct InputLine {
  int64_t line = 0;
  std::string custom_id;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  LineResult refusal;  // status_code 0: to be run
  std::string model;   // empty: none by name, so that any server can run it
};

// Where a line stands in the input of its batch.
struct LinePlace {
  LineId id;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// A line on its way out.
struct OutputLine {
  int64_t line = 0;
  std::string custom_id;
  LineResult result;  // status_code 0: it never ran
};

// How many lines of a batch are wanted.
struct LineShare {
  int64_t batch = 0;
  int64_t lines = 0;
};

class BatchStore {
 public:
  BatchStore(StoreThread& thread, std::function<int64_t()> unix_time_s)
      : thread_(thread), now_s_(std::move(unix_time_s)) {}

  // kNotFound: the owner has no such input file. kInvalidArgument: its purpose is not "batch".
  // kOutOfRange: kMaxLiveBatches.
  void create(NewBatch batch, Done<BatchRecord> done);
  void get(std::string id, Scope scope, Done<BatchRecord> done);
  void list(Scope scope, ListOptions options, Done<Page<BatchRecord>> done);
  // validating, in_progress -> cancelling. Twice is once; kInvalidArgument for what has ended.
  // Finished lines are kept; nothing is added to them once this is answered.
  void cancel(std::string id, Scope scope, Done<BatchRecord> done);

  // `listener` is called on the store's thread after every commit that changed a batch, by this
  // process or by another. An empty one ends it: after that, none is being called. The listener
  // must not call this.
  void watch(std::function<void()> listener) {
    const std::lock_guard lock(listener_mutex_);
    listener_ = std::move(listener);
  }

  Result<std::vector<OpenBatch>> open_batches();  // oldest first

  // Whether this server is the one to validate or to end the batch, which is in the status that its
  // record says; from now on it is, until it ends or has got on. kNotFound: the epoch has ended.
  Result<bool> take(int64_t epoch, const OpenBatch& batch);

  // From here on every verb with an epoch answers kNotFound when that has ended, and does nothing.

  // While validating. kNotFound: the batch has left that status. A server that died in the middle
  // leaves lines behind; discard_lines() removes up to `limit` of them and says how many.
  Result<int64_t> discard_lines(int64_t epoch, int64_t batch, int64_t limit);
  Status insert_lines(int64_t epoch, int64_t batch, std::span<const InputLine> lines);
  // validating -> in_progress, when all its lines are in.
  Status begin(int64_t epoch, int64_t batch);
  // validating -> failed
  Status fail(int64_t epoch, int64_t batch, const std::vector<BatchError>& errors);

  // Claims up to so many lines of each batch that nobody has and that were at no death, in the
  // order of the input. Lines that name another model than these are left to other servers.
  Result<std::vector<LinePlace>> claim_lines(int64_t epoch, std::span<const LineShare> shares,
                                             const std::vector<std::string>& models);
  // Lines that were claimed at a death and nobody has now, as far as a server with these models can
  // run them; oldest first.
  Result<std::vector<LinePlace>> suspect_lines(const std::vector<std::string>& models,
                                               int64_t limit);
  // Claims one of them, to be run alone. kNotFound: it is not to be had.
  Status claim_suspect(int64_t epoch, const LineId& line);
  // The one and only result of a line that this epoch has. kAlreadyExists: it has one. kNotFound:
  // its batch is not in progress, or another epoch has it, or none.
  void finish_line(int64_t epoch, const LineId& line, LineResult result, DoneStatus done);
  // Gives up claims of this epoch: of some lines, or of all that it has.
  Status return_lines(int64_t epoch, std::span<const LineId> lines);
  Status return_all_lines(int64_t epoch);
  // Each of these batches was served for so many seconds more of its lifetime. Of several servers
  // one counts: the one that has been there for longest.
  Status renew(int64_t epoch, const std::map<int64_t, int64_t>& served_s);

  // validating, in_progress -> finalizing, on the way to completed or expired
  Status finalize(int64_t epoch, int64_t batch, BatchStatus outcome);
  // Up to `limit` lines after line `after`, with and without results.
  Result<std::vector<OutputLine>> output_lines(int64_t batch, int64_t after, int64_t limit);
  // finalizing, cancelling -> outcome, together with the files' rows: it happens once however often
  // it is tried. kNotFound: it has happened.
  Status end(int64_t epoch, const OpenBatch& batch, BatchStatus outcome, const FileRecord& output,
             const FileRecord& errors);
  // Removes up to `limit` lines of a batch that has ended, which is no longer open with the last.
  Status drop_lines(int64_t epoch, int64_t batch, int64_t limit);

 private:
  friend class Store;
  void tell() {  // on the store's thread
    const std::lock_guard lock(listener_mutex_);
    if (listener_) listener_();
  }

  StoreThread& thread_;
  const std::function<int64_t()> now_s_;
  std::mutex listener_mutex_;
  std::function<void()> listener_;
};

// On the store's thread.
Status cancel_batches_of(Database& db, const std::string& owner, int64_t now_s);
Result<bool> is_input_of_live_batch(Database& db, const std::string& file);
Status check_epoch(Database& db, int64_t epoch);  // kNotFound: it has ended

// Where the batch is in that status, this server is the one to take it on. kNotFound: it is not, or
// the epoch has ended.
Status take_batch(Database& db, int64_t epoch, int64_t batch, std::string_view status);

// A server of the store.
struct NodeInfo {
  std::string name;  // no two that run at a time have the same; empty: it is alone
  int64_t lease_ms = 0;
  int64_t now_s = 0;  // in the calendar's time
};

// When a server starts: earlier epochs of its name end (where it is alone: all). Counts a death for
// every line that one of them has (unless `died` is false: the machine itself was started anew),
// fails those that have had enough, and gives the others back. The new epoch, which no server had
// before. Inside a transaction.
Result<int64_t> begin_epoch(Database& db, const NodeInfo& node, bool died);
// A new epoch beside what there is.
Result<int64_t> insert_node(Database& db, const NodeInfo& node);
Status renew_node(Database& db, int64_t epoch, const NodeInfo& node);  // as check_epoch()
// Ends the epochs whose leases are over, as begin_epoch() does; how many. Inside a transaction.
Result<int64_t> end_dead_nodes(Database& db);

}  // namespace skein
