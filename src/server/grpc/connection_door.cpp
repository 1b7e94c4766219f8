#include "server/grpc/connection_door.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/patience.h"
#include "server/listen_socket.h"

namespace skein::rpc {
namespace {

constexpr int kBacklog = 128;
constexpr int kNoDescriptorMs = 100;                 // until others are accepted again
constexpr TimeUs kWordPeriodUs = 10 * kUsPerSecond;  // between two lines of the log

// Of what is accepted: pieces go out at once, and a peer whose machine is gone is noticed.
void set_up(int fd) {
  const int on = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  (void)::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

}  // namespace

Result<uint16_t> ConnectionDoor::listen(const std::string& host, uint16_t port, Take take) {
  SKEIN_ASSIGN(OwnedFd fd, listen_on("--grpc", host, port, kBacklog));
  const uint16_t bound = port_of(fd);
  listeners_.push_back({std::move(fd), std::move(take)});
  return bound;
}

Status ConnectionDoor::start() try {
  wake_ = OwnedFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake_.get() < 0) return unavailable("--grpc: no event: {}", std::strerror(errno));
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "grpc door");
    serve();
  });
  return {};
} catch (const std::system_error& error) {
  return unavailable("no thread for gRPC's connections: {}", error.what());
}

void ConnectionDoor::stop() {
  is_stopping_ = true;
  if (wake_.get() >= 0) (void)::eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
  listeners_.clear();
  taken_.clear();
  connections_ = 0;
}

void ConnectionDoor::serve() {
  const PatientScope patient;  // nobody could be told of what is lost here
  try {
    while (!is_stopping_) turn();
  } catch (const std::exception& error) {
    log_error("gRPC's connections end: {}", error.what());
  }
}

void ConnectionDoor::turn() {
  std::vector<pollfd> fds;
  fds.reserve(1 + listeners_.size() + taken_.size());
  fds.push_back({wake_.get(), POLLIN, 0});
  for (const Listener& listener : listeners_) {
    fds.push_back({listener.fd.get(), static_cast<short>(may_accept_ ? POLLIN : 0), 0});
  }
  const size_t first = fds.size();
  // Nothing is asked of them, and hang-ups are told unasked.
  for (const OwnedFd& fd : taken_) fds.push_back({fd.get(), 0, 0});
  if (::poll(fds.data(), fds.size(), may_accept_ ? -1 : kNoDescriptorMs) < 0) return;
  may_accept_ = true;
  for (size_t i = fds.size(); i > first; --i) {
    if (fds[i - 1].revents == 0) continue;
    std::swap(taken_[i - 1 - first], taken_.back());
    taken_.pop_back();
  }
  connections_ = taken_.size();
  for (size_t i = 1; i < first; ++i) {
    if (fds[i].revents != 0) accept_some(listeners_[i - 1]);
  }
}

void ConnectionDoor::accept_some(const Listener& listener) {
  for (int i = 0; i < kBacklog && !is_stopping_; ++i) {
    OwnedFd fd(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.get() < 0) {
      // It would be woken for the same one at once.
      if (is_short_of_descriptors(errno)) may_accept_ = false;
      return;
    }
    admit(std::move(fd), listener.take);
  }
}

// Whoever connects and leaves in turn fills the door as often as it likes, but not the log.
void ConnectionDoor::tell_cut() {
  const TimeUs now = clock_.now();
  if (now < next_word_) {
    ++untold_;
    return;
  }
  next_word_ = now + kWordPeriodUs;
  log_warning("gRPC: {} connections are all that may be; one is cut ({} others before it)",
              max_connections_, std::exchange(untold_, 0));
}

void ConnectionDoor::admit(OwnedFd connection, const Take& take) {
  if (taken_.size() >= max_connections_) return tell_cut();
  OwnedFd second(::fcntl(connection.get(), F_DUPFD_CLOEXEC, 0));
  if (second.get() < 0) {
    may_accept_ = false;
    return;
  }
  set_up(connection.get());
  taken_.push_back(std::move(second));
  connections_ = taken_.size();
  take(connection.release());
}

}  // namespace skein::rpc
