#include "server/store/store_thread.h"

#include <algorithm>
#include <exception>
#include <iterator>

#include "base/log.h"
#include "base/patience.h"

namespace skein {
namespace {

// A write that gives way to another server's is run so often.
constexpr int kMaxRuns = 8;

TimeUs steady_now_us() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since).count();
}

// The store's thread outlives whatever one of its jobs throws.
template <class Work>
void guard(const char* what, const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    log_error("store: {} failed: {}", what, error.what());
  }
}

}  // namespace

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

TimeUs StoreThread::stuck_us() const {
  const TimeUs since_us = busy_since_us_;
  const TimeUs busy_us = since_us == 0 ? 0 : steady_now_us() - since_us;
  return options_.patience_us > 0 && busy_us > options_.patience_us ? busy_us : 0;
}

void StoreThread::post(Job job) {
  if (stuck_us() > 0) {
    job.outcome = unavailable("store: it has not answered for {} s", stuck_us() / kUsPerSecond);
    return job.done(std::move(job.outcome));
  }
  {
    const std::lock_guard lock(mutex_);
    const size_t waiting = new_reads_.size() + new_writes_.size();
    if (!closing_ && waiting < kMaxJobs) {
      (job.kind <= Kind::kAsk ? new_reads_ : new_writes_).push_back(std::move(job));
      posted_.notify_one();
      return;
    }
    job.outcome = closing_ ? unavailable("store: it is closed")
                           : unavailable("store: {} calls wait, which is all it takes", waiting);
  }
  job.done(std::move(job.outcome));
}

void StoreThread::hurry() {
  const std::lock_guard lock(mutex_);
  hurried_ = true;
  posted_.notify_one();
}

void StoreThread::serve() {
  const PatientScope patient;  // every job is answered; SQLite's own memory may fail, and says so
  while (take_jobs()) {
    run_reads();
    const auto now = std::chrono::steady_clock::now();
    if (!writes_.empty() && now >= window_end_) commit_writes();
    if (now >= next_tick_) tick();
    busy_since_us_ = 0;
  }
  tick();
}

StoreThread::Time StoreThread::wake_time() const {
  return writes_.empty() ? next_tick_ : std::min(window_end_, next_tick_);
}

bool StoreThread::take_jobs() {
  std::unique_lock lock(mutex_);
  // A new write does not end the wait for the group's window; a read does.
  posted_.wait_until(lock, wake_time(), [this] {
    return closing_ || hurried_ || !new_reads_.empty() || (writes_.empty() && !new_writes_.empty());
  });
  if (writes_.empty() && !new_writes_.empty()) {
    window_end_ =
        std::chrono::steady_clock::now() + std::chrono::microseconds(options_.group_window_us);
  }
  if (closing_ || std::exchange(hurried_, false)) window_end_ = std::chrono::steady_clock::now();
  std::swap(reads_, new_reads_);
  std::move(new_writes_.begin(), new_writes_.end(), std::back_inserter(writes_));
  new_writes_.clear();
  return !closing_ || !reads_.empty() || !writes_.empty();
}

void StoreThread::run_reads() {
  for (Job& job : reads_) {
    busy_since_us_ = steady_now_us();
    const auto run = [&] { return job.outcome = run_job(job); };
    const Status read = job.kind == Kind::kAsk ? run() : db_->reading(run);
    if (job.outcome.ok()) job.outcome = read;
    tell(job);
  }
  reads_.clear();
}

void StoreThread::commit_writes() {
  refuse_ordinary_writes();
  if (writes_.empty()) return;
  busy_since_us_ = steady_now_us();
  // What may have been kept is not done twice.
  if (!run_group(writes_).ok() && writes_.size() > 1 && !db_->is_in_doubt()) {
    for (Job& job : writes_) {
      busy_since_us_ = steady_now_us();
      (void)run_group({&job, 1});
    }
  }
  for (Job& job : writes_) {
    if (job.kind != Kind::kFreeing || job.outcome.code() != Code::kResourceExhausted) continue;
    if (options_.make_room && options_.make_room(*db_)) (void)run_group({&job, 1});
  }
  guard("after a commit", [this] {
    if (options_.on_commit) options_.on_commit(*db_);
  });
  for (Job& job : writes_) tell(job);
  writes_.clear();
}

void StoreThread::refuse_ordinary_writes() {
  const Status admitted = options_.admit_writes ? options_.admit_writes() : Status{};
  if (admitted.ok()) return;
  std::erase_if(writes_, [&admitted](Job& job) {
    if (job.kind == Kind::kFreeing) return false;
    job.outcome = admitted;
    tell(job);
    return true;
  });
}

// What a job throws (no memory, as a rule) is its own failure.
Status StoreThread::run_job(Job& job) {
  Status outcome = internal_error("store: a job failed");
  guard("a job", [&] { outcome = job.run(*db_); });
  return outcome;
}

void StoreThread::tell(Job& job) {
  guard("an answer", [&] { job.done(std::move(job.outcome)); });
}

// One transaction for all of them. A failure is storage's, not a job's: then nothing of the group
// was kept, and every outcome says why.
Status StoreThread::run_group(std::span<Job> group) {
  Status status = try_group(group);
  for (int i = 1; i < kMaxRuns && !status.ok() && db_->gave_way(); ++i) status = try_group(group);
  if (status.ok()) return status;
  for (Job& job : group) job.outcome = status;
  return status;
}

Status StoreThread::try_group(std::span<Job> group) {
  return db_->transaction([&]() -> Status {
    for (Job& job : group) {
      SKEIN_TRY(db_->exec("SAVEPOINT job"));
      job.outcome = run_job(job);
      if (!db_->in_transaction() || db_->gave_way()) return job.outcome;
      if (!job.outcome.ok()) SKEIN_TRY(db_->exec("ROLLBACK TO SAVEPOINT job"));
      SKEIN_TRY(db_->exec("RELEASE SAVEPOINT job"));
    }
    return {};
  });
}

void StoreThread::tick() {
  busy_since_us_ = steady_now_us();
  guard("a tick", [this] {
    if (options_.on_tick) options_.on_tick(*db_);
  });
  next_tick_ = std::chrono::steady_clock::now() + std::chrono::microseconds(options_.tick_us);
}

}  // namespace skein
