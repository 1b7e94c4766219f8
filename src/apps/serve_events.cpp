#include "apps/serve_events.h"

#include <csignal>
#include <pthread.h>
#include <unistd.h>
#include <utility>

#include "base/background_log.h"
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
    events_.push({ServeEvent::Kind::kStop, 0, {}});
  }
}

}  // namespace skein::apps
