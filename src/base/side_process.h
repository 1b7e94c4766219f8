// SideProcess: work on bytes that nobody vouches for, done where its end costs nothing.
//
//   SKEIN_ASSIGN(auto checker, SideProcess::start({.prepare = drop_rights, .work = check_file}));
//   Status status = checker->run(path);   // what check_file(path) gave, or how its process died
//
// start() forks a process that stands by; run() has it fork once more, so that each piece of work
// starts from the same state and takes nothing with it when it crashes, loops or eats memory. Where
// the one that stands by dies all the same (the out-of-memory killer may choose it), a process that
// does nothing else forks another one, a bounded number of times. All of them end with this one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"

namespace skein {

class SideProcess {
 public:
  struct Limits {
    uint64_t memory_bytes = uint64_t{4} << 30;  // private memory, without mapped files
    uint64_t cpu_seconds = 120;
  };
  struct Options {
    std::string name = "skein-side";                       // as ps shows it; 15 bytes
    std::function<Status()> prepare;                       // once, for all of them
    std::function<Status(const std::string& input)> work;  // in a process of its own
    Limits limits{};
    int max_restarts = 64;  // of the process that stands by
  };

  // Call it before there are other threads: locks that they hold would stay locked in a fork. Fails
  // where prepare() does.
  static Result<std::unique_ptr<SideProcess>> start(const Options& options);
  ~SideProcess();
  SideProcess(const SideProcess&) = delete;
  SideProcess& operator=(const SideProcess&) = delete;

  // Waits for the work. kDataLoss: its process was ended by a signal, which the message names;
  // kResourceExhausted: it needed more than its memory; kUnavailable: the process that stands by
  // died. Inputs and messages are cut at 8 KiB. Any thread; one piece of work at a time.
  Status run(const std::string& input);

 private:
  SideProcess(int channel, int pid) : channel_(channel), pid_(pid) {}

  std::mutex mutex_;
  uint64_t last_ = 0;  // mutex_; number of the latest piece of work
  const int channel_;
  const int pid_;
};

}  // namespace skein
