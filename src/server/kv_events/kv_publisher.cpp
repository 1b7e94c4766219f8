#include "server/kv_events/kv_publisher.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/log.h"
#include "base/patience.h"
#include "server/kv_events/zmtp.h"
#include "server/listen_socket.h"

namespace skein {
namespace {

constexpr std::string_view kOption = "--kv-events";
constexpr size_t kReadBytes = 1024;    // of one peer at a time
constexpr size_t kPiecesInATurn = 64;  // sent to one peer before others are looked at
constexpr int kBacklog = 16;
constexpr int kSendBuffer = 1 << 18;                    // bytes that the kernel may hold for a peer
constexpr int kNoDescriptorMs = 100;                    // until others are accepted again
constexpr std::string_view kEmptyFrame{"\x01\x00", 2};  // that a replay begins with
constexpr uint64_t kNoNumber = UINT64_MAX;

std::string number_bytes(uint64_t number) {
  std::string bytes;
  for (int i = 7; i >= 0; --i) bytes.push_back(static_cast<char>(number >> (8 * i)));
  return bytes;
}

std::string framed(std::string_view topic, uint64_t number, std::string_view payload) {
  std::string bytes(kEmptyFrame);
  bytes.reserve(bytes.size() + topic.size() + payload.size() + 40);
  append_zmtp_frame(bytes, topic, true);
  append_zmtp_frame(bytes, number_bytes(number), true);
  append_zmtp_frame(bytes, payload, false);
  return bytes;
}

double unix_time_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace

struct KvPublisher::Peer {
  // What it wants again: kept messages from `next` to before `end`.
  struct Replay {
    uint64_t next = 0;
    uint64_t end = 0;
  };

  Peer(OwnedFd descriptor, ZmtpSocket type)
      : fd(std::move(descriptor)), socket(type), session(type) {}

  bool is_idle() const { return wants == 0 && replays.empty() && sending == nullptr; }

  OwnedFd fd;
  const ZmtpSocket socket;
  ZmtpSession session;
  uint32_t wants = 0;          // of a PUB's: its subscriptions that fit the topic
  uint64_t next = kNoNumber;   // of a PUB's: the number of its next message
  std::deque<Replay> replays;  // of a ROUTER's; more is read when these are done
  std::shared_ptr<const std::string> sending;
  size_t sent = 0;
  bool is_closed = false;
};

Result<std::unique_ptr<KvPublisher>> KvPublisher::open(Options options) {
  std::unique_ptr<KvPublisher> publisher(new KvPublisher(std::move(options)));
  SKEIN_TRY(publisher->listen());
  return publisher;
}

KvPublisher::KvPublisher(Options options) : options_(std::move(options)) {}

Status KvPublisher::listen() {
  SKEIN_ASSIGN(const ListenAddress address, listen_address(kOption, options_.host, options_.port));
  if (!address.is_loopback() && !options_.insecure_open) {
    return invalid_argument(
        "--kv-events {}: other machines reach it, and events carry users' text to whoever "
        "connects; "
        "bind to 127.0.0.1, or say --kv-events-insecure-open",
        options_.host);
  }
  if (options_.port == UINT16_MAX) {
    return invalid_argument("--kv-events: the replays' port would be {}, beyond {}",
                            options_.port + 1, UINT16_MAX);
  }
  wake_ = OwnedFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake_.get() < 0) return unavailable("--kv-events: no event: {}", std::strerror(errno));
  SKEIN_ASSIGN(listener_, listen_on(kOption, options_.host, options_.port, kBacklog));
  port_ = port_of(listener_);
  const auto next = static_cast<uint16_t>(options_.port == 0 ? 0 : options_.port + 1);
  SKEIN_ASSIGN(replay_listener_, listen_on(kOption, options_.host, next, kBacklog));
  replay_port_ = port_of(replay_listener_);
  return {};
}

Status KvPublisher::start() try {
  feed_->set_wake([fd = wake_.get()] { (void)::eventfd_write(fd, 1); });
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "kv events");
    serve();
  });
  return {};
} catch (const std::system_error& error) {
  return unavailable("no thread for KV events: {}", error.what());
}

KvPublisher::~KvPublisher() {
  feed_->set_wake({});
  stopping_ = true;
  if (wake_.get() >= 0) (void)::eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

KvEventStats KvPublisher::stats() const {
  return {messages_, blocks_, feed_->resets(), subscribers_, dropped_};
}

void KvPublisher::serve() {
  const PatientScope patient;  // what is lost here nobody could be told
  try {
    while (!stopping_) turn();
  } catch (const std::exception& error) {
    log_error("KV events end: {}", error.what());
  }
  peers_.clear();
  subscribers_ = 0;
}

void KvPublisher::turn() {
  std::vector<pollfd> fds;
  fds.push_back({wake_.get(), POLLIN, 0});
  const short accepting = may_accept_ ? POLLIN : 0;
  fds.push_back({listener_.get(), accepting, 0});
  fds.push_back({replay_listener_.get(), accepting, 0});
  const size_t first = fds.size();
  for (const auto& peer : peers_) {
    const int reading = peer->replays.empty() ? POLLIN : 0;
    fds.push_back(
        {peer->fd.get(), static_cast<short>(reading | (has_output(*peer) ? POLLOUT : 0)), 0});
  }
  if (::poll(fds.data(), fds.size(), may_accept_ ? -1 : kNoDescriptorMs) < 0) return;
  may_accept_ = true;
  if (fds[0].revents != 0) {
    eventfd_t count = 0;
    (void)::eventfd_read(wake_.get(), &count);
    publish_pending();
  }
  for (size_t i = first; i < fds.size(); ++i) {
    Peer& peer = *peers_[i - first];
    if ((fds[i].revents & POLLIN) != 0) {
      hear(peer);
    } else if ((fds[i].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) {
      peer.is_closed = true;
    }
  }
  for (const auto& peer : peers_) {
    if (peer->wants > 0 && peer->next < oldest()) {
      log_warning("KV events: a subscriber is cut: {} messages behind, {} are kept",
                  next_number_ - peer->next, kept_.size());
      ++dropped_;
      peer->is_closed = true;
    }
    flush(*peer);
  }
  drop_closed();
  if (fds[1].revents != 0) accept_peers(listener_.get(), false);
  if (fds[2].revents != 0) accept_peers(replay_listener_.get(), true);
  drop_closed();
  subscribers_ = static_cast<uint64_t>(std::count_if(
      peers_.begin(), peers_.end(), [](const auto& peer) { return peer->wants > 0; }));
}

void KvPublisher::publish_pending() {
  std::span<const KvNotice> notices = feed_->take();
  while (!notices.empty()) {
    const auto part = notices.first(std::min(notices.size(), options_.message_blocks));
    notices = notices.subspan(part.size());
    const auto blocks =
        static_cast<size_t>(std::count_if(part.begin(), part.end(), [](const auto& n) {
          return n.kind != KvNotice::Kind::kCleared;
        }));
    keep(encode_kv_events(part, options_.encoding, unix_time_s(), options_.names.get()), blocks);
  }
}

void KvPublisher::keep(const std::string& message, size_t blocks) {
  kept_.push_back(
      std::make_shared<const std::string>(framed(options_.topic, next_number_++, message)));
  kept_bytes_ += kept_.back()->size();
  ++messages_;
  blocks_ += blocks;
  while (kept_.size() > 1 &&
         (kept_.size() > options_.kept_messages || kept_bytes_ > options_.kept_bytes)) {
    kept_bytes_ -= kept_.front()->size();
    kept_.pop_front();
  }
}

void KvPublisher::accept_peers(int listener, bool is_replay) {
  for (int i = 0; i < kBacklog; ++i) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      // It would be woken for the same one at once.
      if (is_short_of_descriptors(errno)) may_accept_ = false;
      return;
    }
    OwnedFd owned(fd);
    if (peers_.size() >= options_.max_peers && !make_room()) {
      ++dropped_;
      continue;
    }
    const int on = 1;
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    (void)::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof(kSendBuffer));
    peers_.push_back(std::make_unique<Peer>(std::move(owned),
                                            is_replay ? ZmtpSocket::kRouter : ZmtpSocket::kPub));
    flush(*peers_.back());
  }
}

// The oldest peer that has asked for nothing goes; else the oldest that wants something again,
// which it has had time to take. False: all are subscribers.
bool KvPublisher::make_room() {
  auto it =
      std::find_if(peers_.begin(), peers_.end(), [](const auto& peer) { return peer->is_idle(); });
  if (it == peers_.end()) {
    it = std::find_if(peers_.begin(), peers_.end(),
                      [](const auto& peer) { return peer->socket == ZmtpSocket::kRouter; });
  }
  if (it == peers_.end()) return false;
  ++dropped_;
  peers_.erase(it);
  return true;
}

void KvPublisher::hear(Peer& peer) {
  std::array<char, kReadBytes> bytes;
  const ssize_t count = ::recv(peer.fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    peer.is_closed = true;
    return;
  }
  ZmtpSession::Handler handler;
  handler.on_subscription = [&](std::string_view topic, bool wanted) {
    if (!std::string_view(options_.topic).starts_with(topic)) return;
    if (!wanted) {
      peer.wants -= peer.wants > 0 ? 1 : 0;
    } else if (peer.wants++ == 0) {
      peer.next = next_number_;
    }
  };
  handler.on_message = [&](std::span<const std::string> frames) { take_request(peer, frames); };
  const Status heard = peer.session.receive({bytes.data(), static_cast<size_t>(count)}, handler);
  if (heard.ok()) return;
  log_debug("KV events: a peer is cut: {}", heard.message());
  ++dropped_;
  peer.is_closed = true;
}

// An empty frame, and the number from which on.
void KvPublisher::take_request(Peer& peer, std::span<const std::string> frames) const {
  if (frames.size() != 2 || !frames[0].empty() || frames[1].size() > sizeof(uint64_t)) return;
  uint64_t from = 0;
  for (const char c : frames[1]) from = from << 8 | static_cast<uint8_t>(c);
  peer.replays.push_back({from, next_number_});
}

bool KvPublisher::has_output(const Peer& peer) const {
  if (peer.sending || !peer.replays.empty()) return true;
  return peer.session.has_output() || (peer.wants > 0 && peer.next < next_number_);
}

// What is sent to the peer next. False: nothing.
bool KvPublisher::next_piece(Peer& peer) const {
  peer.sent = 0;
  if (std::string& output = peer.session.output(); !output.empty()) {
    peer.sending = std::make_shared<const std::string>(std::exchange(output, {}));
  } else if (peer.wants > 0 && peer.next < next_number_) {
    peer.sending = kept_[peer.next++ - oldest()];
    peer.sent = kEmptyFrame.size();
  } else if (!peer.replays.empty()) {
    Peer::Replay& replay = peer.replays.front();
    replay.next = std::max(replay.next, oldest());
    if (replay.next < replay.end) {
      peer.sending = kept_[replay.next++ - oldest()];
    } else {
      peer.sending = std::make_shared<const std::string>(framed({}, kNoNumber, {}));
      peer.replays.pop_front();
    }
  }
  return peer.sending != nullptr;
}

void KvPublisher::flush(Peer& peer) {
  for (size_t pieces = 0; pieces < kPiecesInATurn && !peer.is_closed; ++pieces) {
    if (!peer.sending && !next_piece(peer)) return;
    const ssize_t count = ::send(peer.fd.get(), peer.sending->data() + peer.sent,
                                 peer.sending->size() - peer.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) {
      peer.is_closed = errno != EAGAIN && errno != EINTR;
      return;
    }
    peer.sent += static_cast<size_t>(count);
    if (peer.sent == peer.sending->size()) peer.sending = nullptr;
  }
}

void KvPublisher::drop_closed() {
  std::erase_if(peers_, [](const auto& peer) { return peer->is_closed; });
}

}  // namespace skein
