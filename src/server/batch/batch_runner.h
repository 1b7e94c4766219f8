// Brings batches from created to ended: which step each takes next, and which of their lines run.
//
//   while (runner->wait()) {                               // one thread
//     SKEIN_ASSIGN(lines, runner->next_lines(free_slots));
//     for (line : lines) answer(line);                     // -> finish_line() or return_line()
//   }
//
// Everything that must survive is in the store; what is here is what this process does about it.
// After a kill -9 a new runner goes on: lines with a result keep it, and the others are handed
// out again; those that ran at the kill run one at a time (batch_store.h).
//
// The runner sleeps until something happens: a batch was made, changed or cancelled (the store
// tells), a line has ended, a file was checked, the server drains; or until what it waits for is
// due: the end of a rest, a retry, the end of a batch's lifetime. Where there is no batch, nothing
// is due.
//
// A server whose epoch has ended (batch_store.h) has been replaced by others: its runner cancels
// what runs, without a result, and does nothing any more. Where servers share the store, it begins
// a new epoch and goes on with what is nobody's.
//
// Invariants: (1) a line is handed out once in the life of a runner unless return_line() gave it
// back or its result could not be stored; (2) a line has at most one result, ever; (3) lines come
// from the owners in turn, and for one owner from the oldest batch first, so that one tenant's
// 50,000 lines do not hold up another's ten; (4) a fault of one batch (a disk that is full, an
// input that is gone) holds up that batch, not the others.
//
// Thread-safety: wait(), next_lines(), forget_running() and stop() on one thread, which they block
// (outputs are written there); the others on any. After stop() they touch nothing any more.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/answer/live_requests.h"
#include "server/batch/batch_lifetimes.h"
#include "server/batch/batch_validator.h"
#include "server/store/store.h"

namespace skein {

// How long a batch (or, when the store fails, all of them) waits after a fault.
inline constexpr TimeUs kBatchRetryAfterUs = 2 * kUsPerSecond;

// A line to run.
struct BatchLine {
  LineId id;
  std::string batch;  // the id that clients know
  std::string owner;  // it runs as this key
  std::string endpoint;
  std::string text;  // as it stands in the file: {custom_id, method, url, body}
};

class BatchRunner {
 public:
  // Both outlive stop(). Lines that name another model than these are left to other servers.
  BatchRunner(Store& store, const Clock& clock, BatchValidator::Models models);
  ~BatchRunner() { stop(); }

  // Waits until there may be something to do. False: close() was called.
  bool wait();
  // When to look again whatever happens; kNever: only events count. For tests.
  TimeUs due_us() const { return due_us_; }
  // Something has happened.
  void wake();
  void close();

  // Takes every batch one step on (validates, expires, writes files) and hands out up to `n` lines;
  // with 0 it only does the former. Fails when the store cannot be read; then nothing was handed
  // out.
  Result<std::vector<BatchLine>> next_lines(size_t n);
  // Lines that were handed out and have neither ended nor been returned.
  size_t running() const;
  // How the line is cancelled when its batch ends before it; it may have ended already.
  void set_request(const LineId& line, std::shared_ptr<LiveRequest> request);

  // Stores the line's result; `done` comes on the store's thread after the commit. kNotFound: the
  // batch has ended or the line was returned; the result is dropped. After any failure of the store
  // the line is handed out again, a little later.
  void finish_line(const LineId& line, LineResult result, DoneStatus done);
  // The line could not be run for now (draining, no model); it is handed out again. Its batch rests
  // for `rest_us` first; the others go on.
  void return_line(const LineId& line, TimeUs rest_us = 0);

  // Cancels what runs and gives it back, without a word about it: the server drains.
  void forget_running();
  // An orderly end: as forget_running(), and leaves the store alone from here on.
  void stop();

 private:
  struct InProgress {
    OpenBatch batch;
    std::unique_ptr<FileReader> input;
    bool exhausted = false;     // nobody's lines are left in it
    TimeUs rests_until_us = 0;  // hands out nothing before
  };
  struct RunningLine {
    int64_t epoch = 0;  // under which it was claimed
    std::shared_ptr<LiveRequest> request;
    bool has_ended = false;  // its result is being stored
  };

  void look_again_at(TimeUs at_us) { due_us_ = std::min(due_us_, at_us); }
  bool has_lost_epoch(const Status& status);  // whether that is why a step failed
  bool begin_new_epoch();
  void look_at_others();
  Status take_on(const OpenBatch& batch);
  void ask_models();
  void forget_ended(const std::vector<OpenBatch>& open);
  void advance(const OpenBatch& batch);
  Status take_step(const OpenBatch& batch);
  Status join(const OpenBatch& batch);
  bool give_back();  // false: the store had a fault a moment ago
  void hand_out(size_t n, std::vector<BatchLine>& lines);
  Result<bool> hand_out_suspect(bool may_run, std::vector<BatchLine>& lines);
  Status fill(size_t n, std::vector<BatchLine>& lines);
  std::vector<LineShare> share(size_t n);
  bool is_resting(const InProgress& batch);
  void run_line(const InProgress& batch, const LinePlace& place, std::vector<BatchLine>& lines);
  void cancel_running(const std::function<bool(const LineId&)>& which);

  Store& store_;
  const Clock& clock_;
  int64_t epoch_;
  const BatchValidator::Models models_;
  std::vector<std::string> known_models_;
  bool lost_ = false;  // the epoch has ended
  BatchLifetimes lifetimes_;
  std::map<int64_t, InProgress> in_progress_;  // by seq: oldest first
  std::map<int64_t, TimeUs> retry_at_us_;      // batches whose last step failed
  bool has_suspects_ = true;                   // there may be lines that were there at a death
  TimeUs not_before_us_ = 0;                   // no line is handed out: the store had a fault
  TimeUs due_us_ = 0;
  TimeUs look_at_others_us_ = 0;  // what they have given back may be had from then on
  std::string last_owner_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<LineId, RunningLine> running_;  // mutex_
  bool runs_alone_ = false;                // mutex_; what runs is a suspect
  std::map<LineId, TimeUs> returned_;      // mutex_; until when the batch is to rest
  TimeUs faulty_until_us_ = 0;             // mutex_; a result could not be stored
  bool woken_ = false;                     // mutex_
  bool closed_ = false;                    // mutex_
  bool stopped_ = false;                   // mutex_

  BatchValidator validator_;  // last: its thread wakes this
};

}  // namespace skein
