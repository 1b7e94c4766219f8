// ConnectionDoor: takes the connections of gRPC's listeners, so many at a time, and cuts others.
//
// gRPC itself bounds calls and memory, but no connections: they are accepted here and handed to it.
// It does not say when one ends. So a second descriptor of each is kept, on which the kernel says
// that gRPC has shut it down, as it always does before it closes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "server/store/file_folder.h"

namespace skein::rpc {

class ConnectionDoor {
 public:
  // Has the descriptor from then on; called on the door's own thread.
  using Take = std::function<void(int fd)>;

  // `clock` outlives it.
  ConnectionDoor(size_t max_connections, const Clock& clock)
      : max_connections_(max_connections), clock_(clock) {}
  ~ConnectionDoor() { stop(); }

  // Before start(). Clients may connect from now on and are taken later. The port; `port` 0: any.
  Result<uint16_t> listen(const std::string& host, uint16_t port, Take take);
  Status start();
  // Takes nobody any more; those that were taken go on.
  void stop();

  size_t connections() const { return connections_; }

 private:
  struct Listener {
    OwnedFd fd;
    Take take;
  };
  void serve();
  void turn();
  void accept_some(const Listener& listener);
  void admit(OwnedFd connection, const Take& take);
  void tell_cut();

  const size_t max_connections_;
  const Clock& clock_;
  std::vector<Listener> listeners_;
  OwnedFd wake_;
  std::vector<OwnedFd> taken_;  // the second descriptors; the thread's
  bool may_accept_ = true;      // there are descriptors to be had
  TimeUs next_word_ = 0;        // when the log may tell again that connections are cut
  uint64_t untold_ = 0;         // that were cut since it told so last
  std::atomic<size_t> connections_ = 0;
  std::atomic<bool> is_stopping_ = false;
  std::thread thread_;
};

}  // namespace skein::rpc
