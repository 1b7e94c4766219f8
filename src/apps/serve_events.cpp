#include "apps/serve_events.h"

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "base/log.h"
#include "base/patience.h"

namespace skein::apps {
namespace {

constexpr int kWakeThread = SIGUSR1;  // from the destructor; from others it means nothing
constexpr int kExitBySignal = 128;

sigset_t awaited() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, kWakeThread}) sigaddset(&signals, signal);
  return signals;
}

// A socket that is connected to the path; "@name" is an abstract one.
int connect_to(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() < 2 || path.size() >= sizeof address.sun_path) return -1;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (path.front() == '@') address.sun_path[0] = '\0';
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), bytes) == 0) return fd;
  ::close(fd);
  return -1;
}

std::optional<std::chrono::milliseconds> interval_from_environment() {
  const char* period = std::getenv("WATCHDOG_USEC");
  const char* pid = std::getenv("WATCHDOG_PID");
  if (period == nullptr) return std::nullopt;
  if (pid != nullptr && std::strtol(pid, nullptr, 10) != ::getpid()) return std::nullopt;
  const long long us = std::strtoll(period, nullptr, 10);
  if (us < 2000) return std::nullopt;
  return std::chrono::milliseconds(us / 2000);
}

}  // namespace

void ServeEvents::push(ServeEvent event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  pushed_.notify_all();
}

std::optional<ServeEvent> ServeEvents::pop(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (!pushed_.wait_for(lock, patience, [this] { return !events_.empty(); })) return std::nullopt;
  ServeEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

ServeSignals::ServeSignals(ServeEvents& events) : events_(events) {
  const sigset_t signals = awaited();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  thread_ = std::thread([this] { wait_for_signals(); });
}

ServeSignals::~ServeSignals() {
  ending_ = true;
  pthread_kill(thread_.native_handle(), kWakeThread);
  thread_.join();
}

void ServeSignals::wait_for_signals() {
  const PatientScope patient;  // a signal is not sent twice
  const sigset_t signals = awaited();
  bool stopping = false;
  for (int signal = 0;;) {
    if (sigwait(&signals, &signal) != 0) continue;
    if (ending_) return;
    if (signal == kWakeThread) continue;
    if (signal == SIGHUP) {
      events_.push({ServeEvent::Kind::kReload, 0, {}});
      continue;
    }
    if (stopping) {
      log_warning("stopped at once by a second signal");
      flush_log();
      ::_exit(kExitBySignal + signal);
    }
    stopping = true;
    // Here and not where it is obeyed, which may have to wait for other things first.
    log_info("{}: the server stops; a second signal stops it at once",
             signal == SIGINT ? "SIGINT" : "SIGTERM");
    events_.push({ServeEvent::Kind::kStop, 0, {}});
  }
}

ServiceNotifier::ServiceNotifier() {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr) return;
  socket_ = connect_to(path);
  if (socket_ < 0) {
    log_warning("NOTIFY_SOCKET={}: cannot be reached, so the service manager hears nothing", path);
    return;
  }
  watchdog_interval_ = interval_from_environment();
}

ServiceNotifier::~ServiceNotifier() {
  if (socket_ >= 0) ::close(socket_);
}

void ServiceNotifier::reloading() const {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const long long us = static_cast<long long>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1000;
  send("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(us));
}

void ServiceNotifier::send(const std::string& message) const {
  if (socket_ < 0) return;
  // Nothing depends on it, so a manager that does not listen is no error.
  (void)::send(socket_, message.data(), message.size(), MSG_NOSIGNAL);
}

}  // namespace skein::apps
