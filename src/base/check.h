// SKEIN_CHECK(condition, "format {}", args...) aborts with file, line and message when a broken
// invariant makes it wrong to go on. It is on in every build. User input never reaches one: that is
// what Status is for.
#pragma once

#include <fmt/core.h>
#include <string>

namespace skein::internal {
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);
}  // namespace skein::internal

#define SKEIN_CHECK(condition, ...)                                                                \
  do {                                                                                             \
    if (!(condition)) [[unlikely]] {                                                               \
      ::skein::internal::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
    }                                                                                              \
  } while (false)
