#include "server/store/store_thread.h"

#include <algorithm>
#include <iterator>

#include "base/log.h"

namespace skein {

StoreThread::StoreThread(std::unique_ptr<Database> db, Options options)
    : options_(std::move(options)), db_(std::move(db)) {
  next_tick_ = std::chrono::steady_clock::now();
  thread_ = std::thread([this] { serve(); });
}

StoreThread::~StoreThread() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  posted_.notify_one();
  thread_.join();
}

void StoreThread::post(Kind kind, Job job) {
  {
    const std::lock_guard lock(mutex_);
    const size_t waiting = new_reads_.size() + new_writes_.size();
    if (!closing_ && waiting < kMaxJobs) {
      (kind == Kind::kRead ? new_reads_ : new_writes_).push_back(std::move(job));
      posted_.notify_one();
      return;
    }
    job.outcome = closing_
                      ? unavailable("store: it is closed")
                      : resource_exhausted("store: {} calls wait, which is all it takes", waiting);
  }
  job.done(std::move(job.outcome));
}

void StoreThread::serve() {
  while (take_jobs()) {
    run_reads();
    const auto now = std::chrono::steady_clock::now();
    if (!writes_.empty() && now >= window_end_) commit_writes();
    if (now >= next_tick_) tick();
  }
  if (options_.on_tick) options_.on_tick(*db_);
}

StoreThread::Time StoreThread::wake_time() const {
  return writes_.empty() ? next_tick_ : std::min(window_end_, next_tick_);
}

bool StoreThread::take_jobs() {
  std::unique_lock lock(mutex_);
  // A new write does not end the wait for the group's window; a read does.
  posted_.wait_until(lock, wake_time(), [this] {
    return closing_ || !new_reads_.empty() || (writes_.empty() && !new_writes_.empty());
  });
  if (writes_.empty() && !new_writes_.empty()) {
    window_end_ =
        std::chrono::steady_clock::now() + std::chrono::microseconds(options_.group_window_us);
  }
  if (closing_) window_end_ = std::chrono::steady_clock::now();
  std::swap(reads_, new_reads_);
  std::move(new_writes_.begin(), new_writes_.end(), std::back_inserter(writes_));
  new_writes_.clear();
  return !closing_ || !reads_.empty() || !writes_.empty();
}

void StoreThread::run_reads() {
  for (Job& job : reads_) job.done(job.run(*db_));
  reads_.clear();
}

void StoreThread::commit_writes() {
  if (!run_group(writes_).ok() && writes_.size() > 1) {
    for (Job& job : writes_) (void)run_group({&job, 1});
  }
  if (options_.on_commit) options_.on_commit(*db_);
  for (Job& job : writes_) job.done(std::move(job.outcome));
  writes_.clear();
}

// One transaction for all of them. A failure is storage's, not a job's: then nothing of the group
// was kept, and every outcome says why.
Status StoreThread::run_group(std::span<Job> group) {
  Status status = run_in_transaction(group);
  if (status.ok()) return status;
  if (db_->in_transaction()) {
    if (const Status undone = db_->exec("ROLLBACK"); !undone.ok()) {
      log_error("store: ROLLBACK failed: {}", undone.message());
    }
  }
  for (Job& job : group) job.outcome = status;
  return status;
}

Status StoreThread::run_in_transaction(std::span<Job> group) {
  SKEIN_TRY(db_->exec("BEGIN IMMEDIATE"));
  for (Job& job : group) {
    SKEIN_TRY(db_->exec("SAVEPOINT job"));
    job.outcome = job.run(*db_);
    if (!db_->in_transaction()) return job.outcome;
    if (!job.outcome.ok()) SKEIN_TRY(db_->exec("ROLLBACK TO job"));
    SKEIN_TRY(db_->exec("RELEASE job"));
  }
  return db_->exec("COMMIT");
}

void StoreThread::tick() {
  if (options_.on_tick) options_.on_tick(*db_);
  next_tick_ = std::chrono::steady_clock::now() + std::chrono::microseconds(options_.tick_us);
}

}  // namespace skein
