#include "server/observe/audit.h"

#include <string>
#include <utility>

#include "base/log.h"

namespace skein {
namespace {

constexpr uint64_t kLinesPerMinute = 10;
constexpr TimeUs kMinuteUs = 60 * kUsPerSecond;
constexpr size_t kShownPathBytes = 200;  // of a path

std::string text_of(const Audit::RequestLine& request) {
  return fmt::format("{} {} from {}", request.method, request.path.substr(0, kShownPathBytes),
                     request.peer);
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
  if (more > 0) log_warning("audit: {} more requests were refused with 401 or 403", more);
  log_warning("audit: refused with {}: {}{}{}", status, text_of(request),
              key_id.empty() ? "" : " by key ", key_id);
}

void Audit::admin_call(const RequestLine& request, const Principal& who) {
  log_info("audit: admin call {} by key {} ({})", text_of(request), who.key_id, who.name);
}

}  // namespace skein
