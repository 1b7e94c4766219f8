#include "base/status.h"

#include <cstdio>
#include <cstdlib>
#include <iterator>

namespace skein {

std::string_view code_name(Code code) {
  static constexpr std::string_view kNames[] = {"ok",
                                                "invalid argument",
                                                "not found",
                                                "already exists",
                                                "out of range",
                                                "resource exhausted",
                                                "unavailable",
                                                "deadline exceeded",
                                                "unimplemented",
                                                "data loss",
                                                "internal error"};
  static_assert(std::size(kNames) == static_cast<size_t>(Code::kInternal) + 1);
  const auto i = static_cast<size_t>(code);
  return i < std::size(kNames) ? kNames[i] : "unknown";
}

void internal::check_failed(const char* file, int line, const char* condition,
                            const std::string& message) {
  std::fprintf(stderr, "skein: broken invariant at %s:%d: %s: %s\n", file, line, condition,
               message.c_str());
  std::abort();
}

}  // namespace skein
