#include "server/endpoints/http_sink.h"

#include <charconv>

namespace skein::endpoints {

std::optional<TimeUs> header_timeout_us(const http::RequestHead& head) {
  const std::string* header = head.header("x-request-timeout-ms");
  if (header == nullptr) return std::nullopt;
  int64_t ms = 0;
  const char* end = header->data() + header->size();
  const auto parsed = std::from_chars(header->data(), end, ms);
  constexpr int64_t kDayMs = int64_t{24} * 3600 * 1000;
  const bool is_whole = parsed.ec == std::errc() && parsed.ptr == end;
  if (!is_whole || ms <= 0 || ms > kDayMs) return std::nullopt;
  return ms * kUsPerMs;
}

}  // namespace skein::endpoints
