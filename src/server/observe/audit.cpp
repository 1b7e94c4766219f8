#include "server/observe/audit.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"
#include "server/http/message.h"

namespace skein {
namespace {

constexpr uint64_t kLinesPerMinute = 10;
constexpr TimeUs kMinuteUs = 60 * kUsPerSecond;
constexpr size_t kShownPathBytes = 200;  // of a path

// Decoded, so that a key that stands in the path can be seen and left out.
std::string text_of(const Audit::RequestLine& request) {
  std::string path = http::percent_decoded(request.path).value_or(std::string(request.path));
  path.resize(std::min(path.size(), kShownPathBytes));
  return fmt::format("{} {} from {}", request.method, path, request.peer);
}

// Nobody may turn these lines off.
template <class... Args>
void log_always(LogLevel level, fmt::format_string<Args...> format, Args&&... args) noexcept {
  try {
    log_line(level, fmt::format(format, std::forward<Args>(args)...));
  } catch (const std::exception&) {
    count_lost_log_line();
  }
}

}  // namespace

bool Audit::takes_line(uint64_t& more) {
  const TimeUs now = clock_.now();
  const std::lock_guard lock(mutex_);
  if (lines_ == 0 || now - minute_begun_ >= kMinuteUs) {
    minute_begun_ = now;
    lines_ = 0;
    more = std::exchange(untold_, 0);
  }
  if (lines_ == kLinesPerMinute) {
    ++untold_;
    return false;
  }
  ++lines_;
  return true;
}

void Audit::refused(int status, const RequestLine& request, std::string_view key_id) {
  uint64_t more = 0;
  if (!takes_line(more)) return;
  constexpr LogLevel kLevel = LogLevel::kWarning;
  if (more > 0) log_always(kLevel, "audit: {} more requests were refused with 401 or 403", more);
  log_always(kLevel, "audit: refused with {}: {}{}{}", status, text_of(request),
             key_id.empty() ? "" : " by key ", key_id);
}

void Audit::admin_call(const RequestLine& request, const Principal& who) {
  log_always(LogLevel::kInfo, "audit: admin call {} by key {} ({})", text_of(request), who.key_id,
             who.name);
}

}  // namespace skein
