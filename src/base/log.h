// One line per message on stderr: time (UTC), level, text. Any thread may log.
//
//   log_info("model {} loaded in {} ms", name, ms);
//
// Control characters in a message are escaped, and so is what is no UTF-8 or turns the direction of
// a line, so text from outside can neither break a line nor forge one. Of an API key,
// sk-<id>-<secret>, the secret is left out, wherever it stands. Messages below the level cost a
// load and are not formatted.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <fmt/core.h>
#include <string_view>
#include <utility>

namespace skein {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError, kOff };

void set_log_level(LogLevel level);  // kInfo at first
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view message);
void count_lost_log_line() noexcept;

// A line that there is no memory for is lost and counted: whoever logs has troubles enough.
template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) noexcept {
  if (!log_enabled(level)) return;
  try {
    log_line(level, fmt::format(format, std::forward<Args>(args)...));
  } catch (const std::exception&) {
    count_lost_log_line();
  }
}

#define SKEIN_LOG_FUNCTION(name, level)                                    \
  template <class... Args>                                                 \
  void name(fmt::format_string<Args...> format, Args&&... args) noexcept { \
    log(level, format, std::forward<Args>(args)...);                       \
  }
SKEIN_LOG_FUNCTION(log_debug, LogLevel::kDebug)
SKEIN_LOG_FUNCTION(log_info, LogLevel::kInfo)
SKEIN_LOG_FUNCTION(log_warning, LogLevel::kWarning)
SKEIN_LOG_FUNCTION(log_error, LogLevel::kError)
#undef SKEIN_LOG_FUNCTION

// The log on a thread of its own, so that a stderr that nobody reads stops nobody.
//
//   const BackgroundLog log;      // log_info() and its like no longer wait for stderr
//
// Lines wait in a queue of a megabyte. What does not fit is dropped and counted, and the log
// says how many lines are missing once it flows again. Without a BackgroundLog, and in a process
// forked from one that has it, whoever logs writes.
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
