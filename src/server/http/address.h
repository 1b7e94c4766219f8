// IP addresses as the limits of a server see them: values without I/O.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace skein::http {

// Sixteen bytes, an IPv4 address as its IPv6 form (::ffff:a.b.c.d), so that a client is the same
// one on either kind of socket.
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

}  // namespace skein::http
