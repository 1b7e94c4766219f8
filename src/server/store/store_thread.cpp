#include "server/store/store_thread.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <iterator>
#include <poll.h>
#include <sys/eventfd.h>
#include <system_error>

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

OwnedFd make_wake() {
  OwnedFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (fd.get() < 0) throw std::system_error(errno, std::generic_category(), "no event");
  return fd;
}

}  // namespace

StoreThread::StoreThread(std::unique_ptr<Database> db, Options options)
    : options_(std::move(options)), db_(std::move(db)), wake_(make_wake()) {
  next_tick_ = std::chrono::steady_clock::now();
  thread_ = std::thread([this] { serve(); });
}

StoreThread::~StoreThread() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    wake();
  }
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
      wake();
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
  wake();
}

void StoreThread::wake() {
  if (std::exchange(is_asleep_, false)) (void)::eventfd_write(wake_.get(), 1);
}

void StoreThread::serve() {
  const PatientScope patient;  // every job is answered; SQLite's own memory may fail, and says so
  while (take_jobs()) {
    run_reads();
    const auto now = std::chrono::steady_clock::now();
    if (!writes_.empty() && now >= window_end_) commit_writes();
    look_for_news();
    if (now >= next_tick_) tick();
    busy_since_us_ = 0;
  }
  tick();
}

StoreThread::Time StoreThread::wake_time() const {
  Time wake = next_tick_;
  if (!writes_.empty()) wake = std::min(wake, window_end_);
  if (has_news_) wake = std::min(wake, next_news_);
  return wake;
}

// A new write does not end the wait for the group's window; a read does.
bool StoreThread::has_work() const {
  return closing_ || hurried_ || !new_reads_.empty() || (writes_.empty() && !new_writes_.empty());
}

// Until somebody posts, the database has something to say, or it is time.
void StoreThread::sleep(std::unique_lock<std::mutex>& lock) {
  const auto left =
      std::chrono::ceil<std::chrono::nanoseconds>(wake_time() - std::chrono::steady_clock::now());
  if (left.count() <= 0) return;
  is_asleep_ = true;
  lock.unlock();
  std::array<pollfd, 2> fds = {{{wake_.get(), POLLIN, 0}, {db_->news_socket(), POLLIN, 0}}};
  const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
  const timespec patience{seconds.count(), (left - seconds).count()};
  (void)::ppoll(fds.data(), fds.size(), &patience, nullptr);  // interrupted: it looks once more
  lock.lock();
  is_asleep_ = false;
  eventfd_t count = 0;
  (void)::eventfd_read(wake_.get(), &count);
}

bool StoreThread::take_jobs() {
  std::unique_lock lock(mutex_);
  if (!has_work()) sleep(lock);
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

// What is heard of between two tellings is told together.
void StoreThread::look_for_news() {
  if (!options_.on_news) return;
  busy_since_us_ = steady_now_us();
  has_news_ = db_->has_news();
  const auto now = std::chrono::steady_clock::now();
  if (!has_news_ || now < next_news_) return;
  next_news_ = now + std::chrono::microseconds(kNewsEveryUs);
  has_news_ = false;
  guard("a look elsewhere", [this] { options_.on_news(*db_); });
}

void StoreThread::tick() {
  busy_since_us_ = steady_now_us();
  guard("a tick", [this] {
    if (options_.on_tick) options_.on_tick(*db_);
  });
  next_tick_ = std::chrono::steady_clock::now() + std::chrono::microseconds(options_.tick_us);
}

}  // namespace skein
