#include "server/http/places.h"

#include <algorithm>
#include <arpa/inet.h>
#include <charconv>
#include <utility>

namespace skein::http {
namespace {

constexpr std::array<uint8_t, 12> kV4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr uint32_t kV4PrefixBits = 96;

bool is_v4(const Address& address) {
  return std::equal(kV4Prefix.begin(), kV4Prefix.end(), address.begin());
}

bool waits(PlaceState state) {
  return state < PlaceState::kServing;
}

}  // namespace

std::optional<Address> parse_address(std::string_view text) {
  const std::string whole(text);
  Address address{};
  if (inet_pton(AF_INET6, whole.c_str(), address.data()) == 1) return address;
  std::copy(kV4Prefix.begin(), kV4Prefix.end(), address.begin());
  if (inet_pton(AF_INET, whole.c_str(), address.data() + kV4Prefix.size()) == 1) return address;
  return std::nullopt;
}

Address client_of(const Address& address) {
  if (is_v4(address)) return address;
  Address client{};
  std::copy_n(address.begin(), 8, client.begin());
  return client;
}

bool AddressRange::contains(const Address& other) const {
  for (uint32_t bit = 0; bit < bits; bit += 8) {
    const uint32_t left = std::min<uint32_t>(8, bits - bit);
    const auto mask = static_cast<uint8_t>(0xff00U >> left);
    if (((address[bit / 8] ^ other[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

Result<AddressRange> parse_address_range(std::string_view text) {
  const size_t slash = std::min(text.find('/'), text.size());
  const std::optional<Address> address = parse_address(text.substr(0, slash));
  if (!address) return invalid_argument("'{}' is neither an IP address nor a range of them", text);
  AddressRange range{*address};
  if (slash == text.size()) return range;
  const bool v4 = text.find(':') == std::string_view::npos;
  const std::string_view digits = text.substr(slash + 1);
  uint32_t bits = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits);
  const uint32_t most = v4 ? 32 : 128;
  if (error != std::errc() || end != digits.data() + digits.size() || bits > most) {
    return invalid_argument("'{}' needs 0 to {} bits after its '/'", text, most);
  }
  range.bits = v4 ? kV4PrefixBits + bits : bits;
  return range;
}

Places::Place::Place(Places& places, const Address& address, std::function<void()> leave)
    : places_(places) {
  entry_.leave = std::move(leave);
  entry_.is_trusted =
      std::any_of(places.trusted_.begin(), places.trusted_.end(),
                  [&](const AddressRange& range) { return range.contains(address); });
  // What may throw comes first.
  Queue in_all{&entry_}, in_client{&entry_};
  entry_.in_all = in_all.begin();
  entry_.in_client = in_client.begin();
  std::function<void()> other;
  {
    const std::lock_guard lock(places_.mutex_);
    entry_.client = places_.clients_.try_emplace(client_of(address)).first;
    Client& client = entry_.client->second;
    constexpr auto kFirst = static_cast<size_t>(PlaceState::kIdle);
    places_.queues_[kFirst].splice(places_.queues_[kFirst].end(), in_all);
    client.queues[kFirst].splice(client.queues[kFirst].end(), in_client);
    ++client.places;
    ++client.waiting;
    ++places_.taken_;
    other = places_.over_limit(entry_);
  }
  if (other) other();
}

Places::Place::~Place() {
  const std::lock_guard lock(places_.mutex_);
  Client& client = entry_.client->second;
  const auto state = static_cast<size_t>(entry_.state);
  places_.queues_[state].erase(entry_.in_all);
  client.queues[state].erase(entry_.in_client);
  if (waits(entry_.state)) --client.waiting;
  if (--client.places == 0) places_.clients_.erase(entry_.client);
  --places_.taken_;
}

void Places::Place::set(PlaceState state) {
  std::function<void()> other;
  {
    const std::lock_guard lock(places_.mutex_);
    if (entry_.state == state || entry_.state == PlaceState::kLeaving) return;
    places_.move(entry_, state);
    other = places_.over_limit(entry_);
  }
  if (other) other();
}

size_t Places::taken() const {
  const std::lock_guard lock(mutex_);
  return taken_;
}

size_t Places::evict(size_t count) {
  std::vector<std::function<void()>> told;
  {
    const std::lock_guard lock(mutex_);
    while (told.size() < count) {
      Entry* entry = first_waiting(queues_, nullptr);
      if (entry == nullptr) break;
      move(*entry, PlaceState::kLeaving);
      told.push_back(std::move(entry->leave));
    }
  }
  for (const auto& leave : told) leave();
  return told.size();
}

void Places::move(Entry& entry, PlaceState state) {
  Client& client = entry.client->second;
  const auto from = static_cast<size_t>(entry.state);
  const auto to = static_cast<size_t>(state);
  queues_[to].splice(queues_[to].end(), queues_[from], entry.in_all);
  client.queues[to].splice(client.queues[to].end(), client.queues[from], entry.in_client);
  if (waits(entry.state)) --client.waiting;
  if (waits(state)) ++client.waiting;
  entry.state = state;
}

Places::Entry* Places::first_waiting(Queues& queues, const Entry* except) {
  for (size_t state = 0; state < static_cast<size_t>(PlaceState::kServing); ++state) {
    for (Entry* entry : queues[state]) {
      if (entry != except) return entry;
    }
  }
  return nullptr;
}

// Tells another connection to leave where the entry's client has one too many that wait; empty: it
// has not.
std::function<void()> Places::over_limit(Entry& entry) {
  Client& client = entry.client->second;
  if (entry.is_trusted || client.waiting <= waiting_per_address_) return {};
  Entry* other = first_waiting(client.queues, &entry);
  if (other == nullptr) return {};
  move(*other, PlaceState::kLeaving);
  return std::move(other->leave);
}

}  // namespace skein::http
