#include "format/quote.h"

#include <fmt/format.h>
#include <iterator>

namespace skein {

std::string in_quotes(std::string_view name) {
  constexpr size_t kShown = 80;
  std::string out = "'";
  for (const char c : name.substr(0, kShown)) {
    if (c >= 0x20 && c < 0x7f) {
      out += c;
    } else {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (name.size() > kShown) out += "...";
  return out += "'";
}

}  // namespace skein
