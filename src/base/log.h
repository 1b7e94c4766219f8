// One line per message on stderr: time (UTC), level, text. Any thread may log.
//
//   log_info("model {} loaded in {} ms", name, ms);
//
// Control characters in a message are escaped, so text from outside can neither break a line nor
// forge one. Messages below the level cost a load and are not formatted.
#pragma once

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

}  // namespace skein
