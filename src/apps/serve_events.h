// ServeEvents: `skein serve` waits here for signals, loads that end, and an admin's wish to drain.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/status.h"

namespace skein::apps {

struct ServeEvent {
  enum class Kind : uint8_t { kStop, kReload, kLoaded };
  Kind kind;
  size_t model = 0;  // of kLoaded: which of those that load at the start
  Status status;     // of kLoaded; of kStop, why it has to: not ok is an error
};

// Any thread may push.
class ServeEvents {
 public:
  void push(ServeEvent event);
  // nullopt when there is none within that time.
  std::optional<ServeEvent> pop(std::chrono::milliseconds patience);

 private:
  std::mutex mutex_;
  std::condition_variable pushed_;
  std::deque<ServeEvent> events_;
};

// While one lives, SIGTERM and SIGINT push kStop, after the log has said so, and SIGHUP pushes
// kReload, on a thread of its own; the second SIGTERM or SIGINT ends the process at once with 128 +
// its number. Make it before any other thread: it blocks the signals, and threads inherit that.
// SIGPIPE is ignored.
class ServeSignals {
 public:
  explicit ServeSignals(ServeEvents& events);
  ~ServeSignals();
  ServeSignals(const ServeSignals&) = delete;
  ServeSignals& operator=(const ServeSignals&) = delete;

 private:
  void wait_for_signals();

  ServeEvents& events_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

// The service manager's notification protocol (sd_notify(3)): datagrams to $NOTIFY_SOCKET.
class ServiceNotifier {
 public:
  // Says nothing where $NOTIFY_SOCKET is not set.
  ServiceNotifier();
  ~ServiceNotifier();
  ServiceNotifier(const ServiceNotifier&) = delete;
  ServiceNotifier& operator=(const ServiceNotifier&) = delete;

  void status(const std::string& text) const { send("STATUS=" + text); }
  void ready() const { send("READY=1\nSTATUS=serving"); }
  void reloading() const;  // then ready()
  void stopping() const { send("STOPPING=1\nSTATUS=draining"); }
  void alive() const { send("WATCHDOG=1"); }

  // How often alive() is wanted: half of $WATCHDOG_USEC, if it is meant for this process.
  std::optional<std::chrono::milliseconds> watchdog_interval() const { return watchdog_interval_; }

 private:
  void send(const std::string& message) const;

  int socket_ = -1;
  std::optional<std::chrono::milliseconds> watchdog_interval_;
};

}  // namespace skein::apps
