// The log on a thread of its own, so that a stderr that nobody reads stops nobody.
//
//   const BackgroundLog log;      // log_info() and its like no longer wait for stderr
//
// Lines wait in a queue of a megabyte. What does not fit is dropped and counted, and the log
// says how many lines are missing once it flows again. Without a BackgroundLog, and in a process
// forked from one that has it, whoever logs writes.
#pragma once

#include <chrono>
#include <cstdint>

namespace skein {

// One at a time. Make it when signals are blocked already: its thread inherits that.
class BackgroundLog {
 public:
  BackgroundLog();
  // Waits for the queue as flush_log does; what stderr has not taken by then is lost.
  ~BackgroundLog();
  BackgroundLog(const BackgroundLog&) = delete;
  BackgroundLog& operator=(const BackgroundLog&) = delete;
};

inline constexpr std::chrono::milliseconds kLogFlush{1000};

// Waits until everything logged so far was written, but no longer than that. Any thread.
void flush_log(std::chrono::milliseconds timeout = kLogFlush);

// Lines that were lost since the process began. Any thread.
uint64_t dropped_log_lines();

}  // namespace skein
