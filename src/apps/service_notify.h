// The service manager's notification protocol (sd_notify(3)): datagrams to $NOTIFY_SOCKET.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace skein::apps {

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
