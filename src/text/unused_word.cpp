#include "text/unused_word.h"

#include <fmt/format.h>
#include <set>

namespace skein {

std::string unused_word(std::string_view prefix, std::string_view text) {
  constexpr size_t kDigits = 8;
  std::set<std::string_view> used;  // what follows the prefix
  for (size_t at = text.find(prefix); at != std::string_view::npos;
       at = text.find(prefix, at + 1)) {
    used.insert(text.substr(at + prefix.size(), kDigits));
  }
  // A text of less than 10^8 such words leaves one.
  for (uint64_t i = 0;; ++i) {
    const std::string digits = fmt::format("{:0{}}", i, kDigits);
    if (!used.contains(digits)) return std::string(prefix) + digits;
  }
}

}  // namespace skein
