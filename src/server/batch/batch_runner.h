// Brings batches from created to ended. The server only runs lines:
//
//   for (;;) {                                        // one thread, about every 100 ms
//     SKEIN_ASSIGN(const BatchWork work, runner.next_lines(free_slots));
//     for (id : work.ended) stop_running_lines_of(id);
//     for (line : work.lines) run(line, [&](LineResult r) { runner.finish_line(line, r); });
//   }
//
// Everything that must survive is in the database; what is here is only which lines were handed
// out. After a kill -9 a new runner goes on: lines with a result keep it, the others are handed out
// again, those that were running alone (batch_attempts.h).
//
// A batch expires when a server has run for its lifetime since it was made: time is taken from the
// clock, which no calendar moves, and written down about twice a minute. Time in which no server
// runs is not counted.
//
// Invariants: (1) a line is handed out once in the life of a runner unless return_line() gave it
// back or its result could not be stored; (2) a line has at most one result, ever; (3) lines come
// from the owners in turn, and for one owner from the oldest batch first, so that one tenant's
// 50,000 lines do not hold up another's ten; (4) a fault of one batch (a disk that is full, an
// input that is gone) holds up that batch, not the others.
//
// Thread-safety: next_lines(), forget_running() and stop() on one thread, which they block (outputs
// are written there); finish_line() and return_line() on any.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "server/batch/batch_validator.h"
#include "server/store/batch_rows.h"
#include "server/store/store.h"

namespace skein {

struct BatchWork {
  std::vector<BatchLine> lines;
  // Batches that lines were handed out of and that no longer take results: cancelled or expired.
  std::vector<std::string> ended;
};

class BatchRunner {
 public:
  // Both outlive the runner.
  BatchRunner(Store& store, const Clock& clock);
  ~BatchRunner() { stop(); }

  // Takes every batch one step on (validates, expires, writes files) and hands out up to `n` lines;
  // with 0 it only does the former. Fails when the store cannot be read; then nothing was handed
  // out.
  Result<BatchWork> next_lines(size_t n);

  // Stores the line's result; `done` comes on the store's thread after the commit. kNotFound: the
  // batch has ended, the result is dropped. kAlreadyExists: it has one. After any other failure the
  // line is handed out again, a little later.
  void finish_line(const std::string& batch, int64_t line, LineResult result, DoneStatus done);
  // The line could not be run for now (draining, no model); it is handed out again. Its batch rests
  // for `rest_us` first; the others go on.
  void return_line(const std::string& batch, int64_t line, TimeUs rest_us = 0);

  // What was handed out will not be heard of and does not count as running: the server drains.
  void forget_running();
  // An orderly end: forgets what runs and leaves the store alone from here on.
  void stop();

 private:
  struct Running {
    OpenBatch batch;
    OwnedFd input;
    std::vector<int64_t> returned;  // lines to hand out again, by number
    std::deque<InputLine> page;     // lines to hand out
    int64_t next = 1;               // the first line that was not in a page yet
    bool exhausted = false;         // no line without result from `next` on
    bool handed_out = false;        // at least one line
    TimeUs rests_until_us = 0;      // hands out nothing before
  };
  // What other threads leave for the runner's. Shared with callbacks that may outlive it.
  struct Returned {
    std::mutex mutex;
    std::set<std::pair<std::string, int64_t>> out;  // lines that run, by batch
    bool alone = false;                             // the one that runs is a suspect
    std::map<std::string, std::vector<int64_t>> lines;
    std::map<std::string, TimeUs> rests_until_us;  // batches, of those
    TimeUs not_before_us = 0;                      // after a fault of the store
  };

  void forget_ended(const std::vector<OpenBatch>& open, BatchWork& work);
  void advance(const OpenBatch& batch);
  Status take_step(const OpenBatch& batch);
  bool is_expired(const OpenBatch& batch) const;
  void count_time(const std::vector<OpenBatch>& open);
  Status join(const OpenBatch& batch);
  bool take_returned();  // false: the store had a fault a moment ago
  void hand_out(size_t n, BatchWork& work);
  void fill(size_t n, BatchWork& work);
  Result<bool> hand_out_suspect(bool may_run, BatchWork& work);
  Status mark(const BatchWork& work, bool alone);
  bool hand_out_one(const std::string& owner, BatchWork& work);
  void refuse_line(const Running& running, int64_t line, const Status& why);
  Result<std::optional<InputLine>> next_of(Running& running);
  Result<std::vector<InputLine>> pending(const Running& running, int64_t from, int64_t limit);
  Result<BatchLine> line_of(const Running& running, const InputLine& line) const;
  Status write(std::function<Status(Database&)> job);

  Store& store_;
  const Clock& clock_;
  std::shared_ptr<Returned> returned_ = std::make_shared<Returned>();
  std::map<int64_t, Running> running_;          // by seq: oldest first
  std::map<std::string, TimeUs> retry_at_us_;   // batches whose last step failed
  std::map<int64_t, TimeUs> counted_until_us_;  // by seq: up to when served_s counts
  bool has_suspects_ = true;                    // there may be lines that were there at a death
  bool stopped_ = false;
  BatchValidator validator_;
  std::string last_owner_;
};

}  // namespace skein
