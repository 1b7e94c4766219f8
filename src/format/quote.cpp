#include "format/quote.h"

#include <fmt/format.h>
#include <iterator>

namespace skein {

std::string printable(std::string_view text, size_t limit) {
  std::string out;
  for (const char c : text.substr(0, limit)) {
    if (c >= 0x20 && c < 0x7f) {
      out += c;
    } else {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > limit) out += "...";
  return out;
}

std::string in_quotes(std::string_view name) {
  return fmt::format("'{}'", printable(name, 80));
}

}  // namespace skein
