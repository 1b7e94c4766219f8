#include "server/http/address.h"

#include <algorithm>
#include <arpa/inet.h>
#include <charconv>

namespace skein::http {
namespace {

constexpr std::array<uint8_t, 12> kV4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr uint32_t kV4PrefixBits = 96;

bool is_v4(const Address& address) {
  return std::equal(kV4Prefix.begin(), kV4Prefix.end(), address.begin());
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

}  // namespace skein::http
