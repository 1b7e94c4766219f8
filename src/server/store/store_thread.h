// The store's thread: the only one that touches the database.
//
// Any thread posts jobs; a job runs on the store's thread and its `done` is called there, so it
// must be quick and must not wait for the store. Reads run as they come. Writes wait up to the
// group window (20 ms) for others and are committed together: one fsync for all of them.
//
// Invariants: (1) `done` is called exactly once per job, also when the store closes; (2) for a
// write that went well it is called after the commit that made it durable; (3) a write is kept
// whole or not at all; (4) a write that fails takes no other with it: when storage refuses a group,
// its writes are tried one by one. A write may therefore run twice: a job depends on nothing but
// its captured values and the database, and changes nothing else; a job that throws fails alone.
// (5) A freeing write (a key revoked, a file deleted) is tried again with the room that
// Options::make_room finds when the disk is full. (6) At most kMaxJobs wait;
// beyond that `done` gets kUnavailable at once, on the caller's thread, and so it does while a job
// stands still (Options::patience_us). Reads overtake writes that are not yet committed.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "server/store/database.h"
#include "server/store/file_folder.h"

namespace skein {

// How a job's caller hears of its end.
template <class T>
using Done = std::function<void(Result<T>)>;
using DoneStatus = std::function<void(Status)>;

// Waits for the answer of a store call:
//   Result<FileRecord> file = await<FileRecord>([&](auto done) { files.get(id, scope, done); });
// Never on the store's thread.
template <class T, class Start>
Result<T> await(const Start& start) {
  // Shared: the store's thread may still be inside set_value when the waiter has its value.
  auto promise = std::make_shared<std::promise<Result<T>>>();
  auto answer = promise->get_future();
  start(Done<T>([promise](Result<T> result) { promise->set_value(std::move(result)); }));
  return answer.get();
}

// As await(), but no longer than that; the job may still run then, so it uses nothing that its
// caller holds.
template <class T, class Start>
Result<T> await_for(std::chrono::milliseconds patience, const Start& start) {
  auto promise = std::make_shared<std::promise<Result<T>>>();
  auto answer = promise->get_future();
  start(Done<T>([promise](Result<T> result) { promise->set_value(std::move(result)); }));
  if (answer.wait_for(patience) == std::future_status::ready) return answer.get();
  return unavailable("store: it has not answered in {} ms", patience.count());
}

template <class Start>
Status await_status(const Start& start) {
  auto promise = std::make_shared<std::promise<Status>>();
  auto answer = promise->get_future();
  start(DoneStatus([promise](Status status) { promise->set_value(std::move(status)); }));
  return answer.get();
}

// A job that calls `function(db, arguments...)`.
template <class Function, class... Arguments>
auto job_of(Function function, Arguments... arguments) {
  return [=](Database& db) { return function(db, arguments...); };
}

class StoreThread {
 public:
  struct Options {
    TimeUs group_window_us = 20 * kUsPerMs;
    TimeUs tick_us = 400 * kUsPerMs;
    // On the store's thread, outside of transactions: about every tick_us and once at the end.
    std::function<void(Database&)> on_tick;
    // After a commit and before the `done`s of its writes.
    std::function<void(Database&)> on_commit;
    // As on_tick, when the database has news: at once, but at most every kNewsEveryUs.
    std::function<void(Database&)> on_news = {};
    // Before writes: while it fails, only those that free room are run.
    std::function<Status()> admit_writes = {};
    // A job that takes longer stands still, and what comes meanwhile is refused; 0: it never does.
    TimeUs patience_us = 0;
    // When the disk has no room for a freeing write. True: trying again is worth it.
    std::function<bool(Database&)> make_room = {};
  };
  static constexpr size_t kMaxJobs = 16'384;
  static constexpr TimeUs kNewsEveryUs = 100 * kUsPerMs;

  StoreThread(std::unique_ptr<Database> db, Options options);
  // Finishes what was posted, then ends the thread.
  ~StoreThread();
  StoreThread(const StoreThread&) = delete;
  StoreThread& operator=(const StoreThread&) = delete;

  template <class T>
  void read(std::function<Result<T>(Database&)> job, Done<T> done) {
    post_for_value<T>(Kind::kRead, std::move(job), std::move(done));
  }
  template <class T>
  void write(std::function<Result<T>(Database&)> job, Done<T> done) {
    post_for_value<T>(Kind::kWrite, std::move(job), std::move(done));
  }
  template <class T>
  void write_freeing(std::function<Result<T>(Database&)> job, Done<T> done) {
    post_for_value<T>(Kind::kFreeing, std::move(job), std::move(done));
  }
  // Runs as reads do, but by itself: for one statement that changes what need not be durable.
  template <class T>
  void ask(std::function<Result<T>(Database&)> job, Done<T> done) {
    post_for_value<T>(Kind::kAsk, std::move(job), std::move(done));
  }
  // As above, and wait for the answer; the job may use what the caller holds.
  template <class T>
  Result<T> read_and_wait(std::function<Result<T>(Database&)> job) {
    return await<T>([&](Done<T> done) { read<T>(std::move(job), std::move(done)); });
  }
  template <class T>
  Result<T> write_and_wait(std::function<Result<T>(Database&)> job) {
    return await<T>([&](Done<T> done) { write<T>(std::move(job), std::move(done)); });
  }
  Status write_and_wait(std::function<Status(Database&)> job) {
    return await_status([&](DoneStatus done) { write(std::move(job), std::move(done)); });
  }
  // For how long the thread has stood still, beyond its patience; 0: it does not.
  TimeUs stuck_us() const;
  // What waits for its group is committed without waiting longer: somebody waits for it.
  void hurry();
  // As Database::finish_by().
  void finish_by(std::chrono::steady_clock::time_point when) { db_->finish_by(when); }

  void read(std::function<Status(Database&)> job, DoneStatus done) {
    post({std::move(job), std::move(done), {}, Kind::kRead});
  }
  void write(std::function<Status(Database&)> job, DoneStatus done) {
    post({std::move(job), std::move(done), {}, Kind::kWrite});
  }

 private:
  enum class Kind : uint8_t { kRead, kAsk, kWrite, kFreeing };
  struct Job {
    std::function<Status(Database&)> run;
    DoneStatus done;
    Status outcome;
    Kind kind = Kind::kRead;
  };
  using Time = std::chrono::steady_clock::time_point;

  template <class T>
  void post_for_value(Kind kind, std::function<Result<T>(Database&)> job, Done<T> done) {
    auto slot = std::make_shared<std::optional<Result<T>>>();
    const auto run = [slot, job = std::move(job)](Database& db) {
      slot->emplace(job(db));
      return (*slot)->status();
    };
    const auto finish = [slot, done = std::move(done)](Status status) {
      if (status.ok()) {
        done(std::move(**slot));
      } else {
        done(std::move(status));
      }
    };
    post({run, finish, {}, kind});
  }

  void post(Job job);
  void serve();
  bool take_jobs();       // false when the store closes and nothing is left
  bool has_work() const;  // mutex_
  void wake();            // mutex_
  void sleep(std::unique_lock<std::mutex>& lock);
  Time wake_time() const;
  void run_reads();
  void commit_writes();
  void refuse_ordinary_writes();
  Status run_job(Job& job);
  static void tell(Job& job);
  Status run_group(std::span<Job> group);
  Status try_group(std::span<Job> group);
  void look_for_news();
  void tick();

  const Options options_;
  std::unique_ptr<Database> db_;

  std::mutex mutex_;
  std::vector<Job> new_reads_;   // mutex_
  std::vector<Job> new_writes_;  // mutex_
  bool closing_ = false;         // mutex_
  bool hurried_ = false;         // mutex_
  bool is_asleep_ = false;       // mutex_
  const OwnedFd wake_;           // readable: the thread is to wake up

  std::atomic<TimeUs> busy_since_us_{0};  // 0: it waits for jobs

  // The thread's own.
  std::vector<Job> reads_;
  std::vector<Job> writes_;
  Time window_end_;
  Time next_tick_;
  Time next_news_;
  bool has_news_ = false;  // not told yet

  std::thread thread_;
};

}  // namespace skein
