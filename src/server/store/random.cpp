#include "server/store/random.h"

#include <cerrno>
#include <sys/random.h>
#include <vector>

#include "base/check.h"

namespace skein {

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::getrandom(bytes.data(), bytes.size(), 0);
    SKEIN_CHECK(count > 0 || errno == EINTR, "getrandom failed: errno {}", errno);
    if (count > 0) bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

std::string hex(std::span<const std::byte> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte >> 4)];
    text += kDigits[std::to_integer<unsigned>(byte & std::byte{15})];
  }
  return text;
}

std::string random_hex(size_t bytes) {
  std::vector<std::byte> raw(bytes);
  fill_random(raw);
  return hex(raw);
}

}  // namespace skein
