#include "apps/terminal_text.h"

namespace skein::apps {

std::string terminal_safe(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if (byte == '\r' && next == '\n') continue;
    if (byte == 0x7F) {
      safe.append("\u2421");
    } else if (byte < 0x20 && byte != '\n' && byte != '\t') {
      safe.append("\xE2\x90").push_back(static_cast<char>(0x80 + byte));  // U+2400 and on
    } else if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {
      safe.append("\uFFFD");  // a control character of ISO 8859
      ++i;
    } else {
      safe.push_back(text[i]);
    }
  }
  return safe;
}

}  // namespace skein::apps
