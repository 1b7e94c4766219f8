#include "server/observe/trace_sender.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

#include "base/log.h"
#include "base/patience.h"

namespace skein {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::chrono::seconds kSendEvery{1};
constexpr milliseconds kPostWithin{4'000};  // all of it, however the collector spreads its answer
constexpr milliseconds kLastWords{1'000};   // for all that is left when the server ends
constexpr milliseconds kLeaveAfter{500};    // beyond that, a thread that hangs
constexpr milliseconds kLook{50};

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// Takes as long as the system's resolver likes.
Result<Addresses> addresses_of(const TraceEndpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failed =
      ::getaddrinfo(endpoint.host.c_str(), fmt::format("{}", endpoint.port).c_str(), &hints, &list);
  if (failed != 0) return unavailable("{}: {}", endpoint.host, ::gai_strerror(failed));
  return Addresses(list);
}

std::string message_of(const TraceEndpoint& endpoint, const std::string& body) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\nContent-Length: "
      "{}\r\nConnection: close\r\n\r\n{}",
      endpoint.path, endpoint.host, endpoint.port, body.size(), body);
}

uint64_t calendar_ns() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

}  // namespace

void TraceSender::add(const FinishedRequest& request) {
  const auto client = parse_trace_parent(request.trace_parent);
  if (client && !client->is_sampled) return;
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= Traces::kMaxWaiting) {
    ++dropped_;
    return;
  }
  waiting_.push_back({request, calendar_ns()});
}

bool TraceSender::close() {
  finish_by_ = steady_clock::now() + kLastWords;
  std::unique_lock lock(mutex_);
  closing_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kLastWords + kLeaveAfter, [this] { return ended_; });
  is_left_ = !ended_;
  return ended_;
}

void TraceSender::run() {
  const PatientScope patient;
  std::vector<TracedRequest> taken;
  taken.reserve(Traces::kMaxWaiting);
  for (bool closing = false; !closing;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kSendEvery, [this] { return closing_; });
      closing = closing_;
      std::swap(taken, waiting_);
    }
    try {
      if (!taken.empty()) send(taken);
    } catch (const std::exception& error) {  // memory is short
      drop(taken.size(), error.what());
    }
    taken.clear();
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void TraceSender::send(const std::vector<TracedRequest>& requests) {
  const Status sent = post(message_of(endpoint_, spans_json(requests, source_)));
  if (!sent.ok()) return drop(requests.size(), sent.message());
  if (std::exchange(has_complained_, false)) log_info("traces: the collector takes spans again");
}

void TraceSender::drop(uint64_t requests, std::string_view why) {
  const std::lock_guard lock(mutex_);
  dropped_ += requests;
  if (is_left_ || std::exchange(has_complained_, true)) return;
  log_warning("traces: spans are dropped: {}", why);
}

Status TraceSender::post(const std::string& message) {
  SKEIN_ASSIGN(const OwnedFd fd, connect());
  SKEIN_TRY(write(fd, message));
  return read_answer(fd);
}

bool TraceSender::wait_for(const OwnedFd& fd, short events) const {
  for (;;) {
    const auto until = std::min(began_ + kPostWithin, finish_by_.load());
    const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd socket{fd.get(), events, 0};
    const int ready = ::poll(&socket, 1, static_cast<int>(std::min(left, kLook).count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

// The time of a POST begins when its addresses are known: whoever waits for the resolver is bounded
// by close().
Result<OwnedFd> TraceSender::connect() {
  SKEIN_ASSIGN(const Addresses addresses, addresses_of(endpoint_));
  began_ = steady_clock::now();
  int error = ETIMEDOUT;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    OwnedFd fd(::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    error = errno;
    if (fd.get() < 0) continue;
    if (::connect(fd.get(), one->ai_addr, one->ai_addrlen) == 0) return fd;
    error = errno;
    if (error != EINPROGRESS) continue;
    error = ETIMEDOUT;
    if (!wait_for(fd, POLLOUT)) continue;
    socklen_t size = sizeof(error);
    if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error == 0) return fd;
  }
  return unavailable("{}:{}: {}", endpoint_.host, endpoint_.port, std::strerror(error));
}

Status TraceSender::write(const OwnedFd& fd, std::string_view message) const {
  while (!message.empty()) {
    if (!wait_for(fd, POLLOUT)) return unavailable("the collector takes nothing");
    const ssize_t count =
        ::send(fd.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return unavailable("the collector takes nothing: {}", std::strerror(errno));
    message.remove_prefix(static_cast<size_t>(count));
  }
  return {};
}

Status TraceSender::read_answer(const OwnedFd& fd) const {
  constexpr std::string_view kFine = "HTTP/1.1 2";  // ...00 or 02
  std::string head;
  std::array<char, 256> buffer;
  while (head.size() < kFine.size() + 2) {
    if (!wait_for(fd, POLLIN)) return unavailable("the collector does not answer");
    const ssize_t count = ::recv(fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return unavailable("the collector does not answer");
    head.append(buffer.data(), static_cast<size_t>(count));
  }
  if (head.starts_with(kFine) || head.starts_with("HTTP/1.0 2")) return {};
  return unavailable("the collector answers {}", head.substr(0, head.find('\r')));
}

}  // namespace skein
