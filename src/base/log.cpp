#include "base/log.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <ctime>
#include <fmt/format.h>
#include <iterator>
#include <memory>
#include <mutex>
#include <poll.h>
#include <string>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace skein {
namespace {

constexpr size_t kQueueBytes = 1 << 20;

// The one thing a process has a single one of: its stderr.
std::atomic<LogLevel> minimum{LogLevel::kInfo};
std::atomic<uint64_t> dropped{0};

// False when stderr is gone. Waits as long as nobody reads it.
bool write_stderr(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd room{STDERR_FILENO, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

std::string_view name_of(LogLevel level) {
  constexpr std::string_view kNames[] = {"debug", "info", "warning", "error", "off"};
  return kNames[static_cast<size_t>(level)];
}

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Whether the secret of an API key, sk-<16 hex digits>-<secret>, may begin here.
bool follows_key_id(std::string_view text, size_t at) {
  constexpr size_t kIdDigits = 16, kHead = 3 + kIdDigits + 1;
  if (at < kHead || text[at - 1] != '-') return false;
  const std::string_view head = text.substr(at - kHead, kHead);
  const auto is_letter = [&](size_t i, char lower) {
    return head[i] == lower || head[i] == lower - 32;
  };
  return is_letter(0, 's') && is_letter(1, 'k') && head[2] == '-' &&
         std::all_of(head.begin() + 3, head.end() - 1, is_hex);
}

// Where a secret that begins at `at` ends, as far as one may have been mistyped.
size_t end_of_secret(std::string_view text, size_t at) {
  const auto ends = [](char c) {
    return static_cast<unsigned char>(c) <= ' ' ||
           std::string_view("\"'/,;&?<>(){}[]").find(c) != std::string_view::npos;
  };
  while (at < text.size() && !ends(text[at])) ++at;
  return at;
}

struct Character {
  size_t bytes = 1;
  bool is_shown = true;  // as it is
};

// What a terminal or a reader may take for something else than text is escaped byte by byte:
// control characters (U+0080 to U+009F among them), what is no UTF-8, and what breaks a line or
// turns its direction (U+2028 to U+202E, U+2066 to U+2069).
Character character_at(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {1, first >= 0x20 && first != 0x7f};
  const size_t size = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (size == 0 || text.size() < size) return {1, false};
  uint32_t code = first & (0xffU >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return {1, false};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_whole =
      code >= kLeast[size] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
  if (!is_whole) return {1, false};
  const bool acts =
      code < 0xa0 || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return {size, !acts};
}

std::string whole_line(LogLevel level, std::string_view message) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  std::tm utc{};
  ::gmtime_r(&now.tv_sec, &utc);
  std::string out;
  out.reserve(message.size() + 40);
  fmt::format_to(std::back_inserter(out), "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z {} ",
                 utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
                 utc.tm_sec, now.tv_nsec / 1'000'000, name_of(level));
  for (size_t at = 0; at < message.size();) {
    if (follows_key_id(message, at)) {
      out.append("...");
      at = end_of_secret(message, at);
      if (at == message.size()) break;
    }
    const Character next = character_at(message.substr(at));
    const std::string_view bytes = message.substr(at, next.bytes);
    if (next.is_shown) out.append(bytes);
    for (const char c : next.is_shown ? std::string_view() : bytes) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
    }
    at += next.bytes;
  }
  return out.append("\n");
}

// Lines on their way to stderr, and the thread that brings them there. Both share it, since the
// thread may hang in a write for ever.
class LogQueue {
 public:
  // False in a process that was forked: it has the queue, but not its thread.
  bool is_ours() const { return owner_ == ::getpid(); }

  void push(const std::string& line) {
    {
      const std::lock_guard lock(mutex_);
      if (pending_.size() + line.size() > kQueueBytes) {
        ++missing_;
        dropped.fetch_add(1, std::memory_order_relaxed);
        return;
      }
      pending_.append(line);
      ++lines_;
    }
    changed_.notify_all();
  }

  void run() {
    std::string batch;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closed_ || !pending_.empty() || missing_ > 0; });
      if (pending_.empty() && missing_ == 0) return;
      batch.clear();
      batch.swap(pending_);
      const uint64_t lines = std::exchange(lines_, 0);
      const uint64_t missing = std::exchange(missing_, 0);
      writing_ = true;
      lock.unlock();
      if (missing > 0) {
        batch.append(whole_line(
            LogLevel::kWarning,
            fmt::format("{} lines of the log were dropped: stderr was not read in time", missing)));
      }
      if (!write_stderr(batch)) dropped.fetch_add(lines, std::memory_order_relaxed);
      lock.lock();
      writing_ = false;
      changed_.notify_all();
    }
  }

  void flush(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout,
                      [this] { return pending_.empty() && missing_ == 0 && !writing_; });
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

 private:
  const pid_t owner_ = ::getpid();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string pending_;
  uint64_t lines_ = 0;    // in pending_
  uint64_t missing_ = 0;  // dropped, and not said yet
  bool writing_ = false;
  bool closed_ = false;
};

std::mutex active_mutex;
std::shared_ptr<LogQueue> active;  // active_mutex; null: whoever logs writes

std::shared_ptr<LogQueue> active_queue() {
  const std::lock_guard lock(active_mutex);
  return active;
}

}  // namespace

void set_log_level(LogLevel level) {
  minimum.store(level, std::memory_order_relaxed);
}

bool log_enabled(LogLevel level) {
  return level >= minimum.load(std::memory_order_relaxed) && level != LogLevel::kOff;
}

void log_line(LogLevel level, std::string_view message) {
  std::string line = whole_line(level, message);
  if (const auto queue = active_queue(); queue && queue->is_ours()) {
    queue->push(line);
  } else {
    write_stderr(line);
  }
}

BackgroundLog::BackgroundLog() {
  auto queue = std::make_shared<LogQueue>();
  try {
    std::thread([queue] { queue->run(); }).detach();
  } catch (const std::system_error& error) {
    log_warning("the log has no thread of its own, so stderr must be read: {}", error.what());
    return;
  }
  const std::lock_guard lock(active_mutex);
  active = std::move(queue);
}

BackgroundLog::~BackgroundLog() {
  const std::shared_ptr<LogQueue> queue = [] {
    const std::lock_guard lock(active_mutex);
    return std::exchange(active, nullptr);
  }();
  if (queue == nullptr) return;
  queue->flush(kLogFlush);
  queue->close();
}

void flush_log(std::chrono::milliseconds timeout) {
  if (const auto queue = active_queue(); queue && queue->is_ours()) queue->flush(timeout);
}

void count_lost_log_line() noexcept {
  dropped.fetch_add(1, std::memory_order_relaxed);
}

uint64_t dropped_log_lines() {
  return dropped.load(std::memory_order_relaxed);
}

}  // namespace skein
