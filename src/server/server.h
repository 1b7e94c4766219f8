// Server: everything behind one port, wired together.
//
//   SKEIN_ASSIGN(auto server, Server::create(options, models, clock));
//   SKEIN_TRY(server->start());
//   ...
//   server->drain();             // SIGTERM: no new work, what runs goes on
//   server->stop(30s);           // ends when nothing runs any more, or when the time is over
//
// Any thread may call drain(); the rest is for one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "engine/manager/scheduler_manager.h"
#include "server/settings.h"

namespace skein {

enum class Stopped : uint8_t {
  kWhole,       // all requests ended by themselves
  kCutOff,      // some did not
  kLeftBehind,  // some still use a thread: the process must end without destructors
};

class Server {
 public:
  // `models` and `clock` outlive the server. kInvalidArgument: the bind is not loopback and there
  // are no keys.
  static Result<std::unique_ptr<Server>> create(ServerSettings settings, SchedulerManager& models,
                                                const Clock& clock);
  ~Server();

  Status start();
  uint16_t port() const;
  uint16_t probe_port() const;  // 0: there is none
  // /health answers 503 until this was called: the models named at the start are loaded.
  void set_ready();
  // Keys from the database, at once: what SIGHUP does.
  void reload_keys();
  // Reads the certificate again. One that cannot be used is logged, and the old one stays.
  void reload_certificate();
  // Around a load of the manager's, on its thread: kDataLoss for a model whose load killed an
  // earlier server. What the operator names at the start is tried again.
  Status begin_load(const ModelConfig& config, bool named_by_operator);
  void end_load(const ModelConfig& config);
  // /health says that it goes, so that routers look elsewhere; work is still taken.
  void leave();
  // For the loader of a model: who is told what is in its prefix cache.
  ServingOptions::KvEvents kv_events(const std::string& model) const;
  void drain();
  size_t running() const;  // requests that are being answered
  // Within the time and two seconds more, whatever runs.
  Stopped stop(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace skein
