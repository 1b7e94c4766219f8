// KvPublisher: tells who subscribes what the prefix cache of one model holds, as vLLM's engines do.
//
// Two sockets of ZeroMQ (zmtp.h): a PUB that sends [topic, number, message] as things happen, and a
// ROUTER that sends messages again which are still kept, from the asked number on: [topic, number,
// message] each, and [, -1, ] at the end. Numbers count up from 0 without gaps; the first message
// says that nothing is cached.
//
// Messages are kept once for all, so many and so many bytes of them at most; a peer has a place
// among them, what the kernel holds for it, and nothing else. One that is so slow that its next
// message is no longer kept is cut, and can ask for what it missed when it is back. Peers that have
// asked for nothing give way to new ones. What is sent is users' text, to whoever connects: the
// default is loopback alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/status.h"
#include "engine/loop/kv_event_feed.h"
#include "server/kv_events/kv_event_message.h"
#include "server/kv_events/kv_event_stats.h"
#include "server/store/file_folder.h"

namespace skein {

class KvPublisher {
 public:
  struct Options {
    std::string host = "127.0.0.1";  // an address, or localhost
    uint16_t port = 0;               // of the PUB, the ROUTER's is the next; 0: any two
    bool insecure_open = false;      // other machines may connect
    KvEventEncoding encoding = KvEventEncoding::kArray;
    std::string topic = {};
    size_t kept_messages = 10'000;
    size_t kept_bytes = size_t{64} << 20;
    size_t max_peers = 64;
    size_t message_blocks = 256;                    // told in one message, at most
    std::shared_ptr<const TenantNames> names = {};  // none: null
  };

  // Listens; kInvalidArgument for an address that is none, or that others reach.
  static Result<std::unique_ptr<KvPublisher>> open(Options options);
  ~KvPublisher();
  KvPublisher(const KvPublisher&) = delete;
  KvPublisher& operator=(const KvPublisher&) = delete;

  // Starts the thread.
  Status start();

  const std::shared_ptr<KvEventFeed>& feed() const { return feed_; }
  const Options& options() const { return options_; }
  uint16_t port() const { return port_; }
  uint16_t replay_port() const { return replay_port_; }
  KvEventStats stats() const;

 private:
  struct Peer;
  using Peers = std::vector<std::unique_ptr<Peer>>;

  explicit KvPublisher(Options options);
  Status listen();
  void serve();
  void turn();
  void publish_pending();
  void keep(const std::string& message, size_t blocks);
  void accept_peers(int listener, bool is_replay);
  bool make_room();
  void hear(Peer& peer);
  void take_request(Peer& peer, std::span<const std::string> frames) const;
  void flush(Peer& peer);
  bool next_piece(Peer& peer) const;
  bool has_output(const Peer& peer) const;
  uint64_t oldest() const { return next_number_ - kept_.size(); }
  void drop_closed();

  const Options options_;
  const std::shared_ptr<KvEventFeed> feed_ = std::make_shared<KvEventFeed>();
  OwnedFd wake_;
  OwnedFd listener_;
  OwnedFd replay_listener_;
  uint16_t port_ = 0;
  uint16_t replay_port_ = 0;
  std::atomic<bool> stopping_{false};

  std::atomic<uint64_t> messages_{0};
  std::atomic<uint64_t> blocks_{0};
  std::atomic<uint64_t> subscribers_{0};
  std::atomic<uint64_t> dropped_{0};

  // ---- the thread's own ----
  Peers peers_;  // in the order of their coming
  bool may_accept_ = true;
  // Whole messages, each behind an empty frame that a replay begins with.
  std::deque<std::shared_ptr<const std::string>> kept_;
  size_t kept_bytes_ = 0;
  uint64_t next_number_ = 0;
  std::thread thread_;
};

}  // namespace skein
