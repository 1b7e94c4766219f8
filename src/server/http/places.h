// Who has a place among the connections of a server, and who gives way when there is none left.
// Internal to http/.
//
// A place serves while its request is answered; until a whole request has come, its client waits.
// Waiting clients are limited per address. When all places are taken, those that have sent nothing
// give way first, and among equals whoever has waited longest: otherwise a few silent sockets would
// shut everybody else out.
//
// Thread-safety: any thread may call anything; a Place is used by one at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace skein::http {

// An IP address as the limits of a server see it: sixteen bytes, an IPv4 address as its IPv6 form
// (::ffff:a.b.c.d), so that a client is the same one on either kind of socket.
using Address = std::array<uint8_t, 16>;

// nullopt for what is no address.
std::optional<Address> parse_address(std::string_view text);

// Who counts as one client: an IPv4 address, or the 64 leading bits of an IPv6 one, since whoever
// has one of these has them all.
Address client_of(const Address& address);

// 10.0.0.0/8, fd00::/8 or a single address.
struct AddressRange {
  Address address{};
  uint32_t bits = 128;  // that must agree

  bool contains(const Address& other) const;
};
Result<AddressRange> parse_address_range(std::string_view text);

// In the order in which they give way.
enum class PlaceState : uint8_t {
  kIdle,     // nothing of a request has come
  kHead,     // a part of its head
  kBody,     // a part of its body
  kServing,  // all of it: never made to leave
  kLeaving,  // was told to leave
};

class Places {
 private:
  struct Entry;
  static constexpr size_t kStates = static_cast<size_t>(PlaceState::kLeaving) + 1;
  using Queue = std::list<Entry*>;
  using Queues = std::array<Queue, kStates>;  // longest first
  struct Client {
    Queues queues;
    size_t places = 0;
    size_t waiting = 0;
  };
  using Clients = std::map<Address, Client>;
  struct Entry {
    Clients::iterator client;
    bool is_trusted = false;
    std::function<void()> leave;
    PlaceState state = PlaceState::kIdle;
    Queue::iterator in_all;
    Queue::iterator in_client;
  };

 public:
  // `trusted`: proxies, behind which are many clients.
  Places(size_t waiting_per_address, std::vector<AddressRange> trusted)
      : waiting_per_address_(waiting_per_address), trusted_(std::move(trusted)) {}

  // A connection's place; it is free again when this goes.
  class Place {
   public:
    Place(Places& places, const Address& address, std::function<void()> leave);
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    void set(PlaceState state);

   private:
    Places& places_;
    Entry entry_;
  };

  // `leave` is called at most once, by any thread, and must not block.
  std::unique_ptr<Place> take(const Address& address, std::function<void()> leave) {
    return std::make_unique<Place>(*this, address, std::move(leave));
  }

  size_t taken() const;
  // Tells up to `count` of those that wait to leave; how many were told.
  size_t evict(size_t count);

 private:
  void move(Entry& entry, PlaceState state);
  // The first of these queues to give way; null: nobody waits.
  static Entry* first_waiting(Queues& queues, const Entry* except);
  std::function<void()> over_limit(Entry& entry);

  const size_t waiting_per_address_;
  const std::vector<AddressRange> trusted_;
  mutable std::mutex mutex_;
  Queues queues_;
  Clients clients_;
  size_t taken_ = 0;
};

}  // namespace skein::http
