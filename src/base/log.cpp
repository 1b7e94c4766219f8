#include "base/log.h"

#include <atomic>
#include <memory>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <string>

namespace skein {
namespace {

// The one thing a process has a single one of: its stderr.
std::atomic<LogLevel> minimum{LogLevel::kInfo};

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = std::make_shared<spdlog::logger>("skein",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_formatter(std::make_unique<spdlog::pattern_formatter>(
        "%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc));
    made->set_level(spdlog::level::debug);
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      break;
  }
  return spdlog::level::off;
}

std::string one_line(std::string_view message) {
  std::string out;
  out.reserve(message.size());
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void set_log_level(LogLevel level) {
  minimum.store(level, std::memory_order_relaxed);
}

bool log_enabled(LogLevel level) {
  return level >= minimum.load(std::memory_order_relaxed) && level != LogLevel::kOff;
}

void log_line(LogLevel level, std::string_view message) {
  if (!log_enabled(level)) return;
  logger().log(spdlog_level(level), one_line(message));
}

}  // namespace skein
