// Texts of others, made harmless for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace skein::apps {

// Text from elsewhere as a terminal may be given it: control characters but for new lines and tabs
// become pictures of themselves, so that nothing a model or a server says moves the cursor, sets
// the title or types. `text` is whole characters.
std::string terminal_safe(std::string_view text);

}  // namespace skein::apps
