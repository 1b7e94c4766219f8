// Text from untrusted files, made fit for a terminal or an error message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace skein {

// At most `limit` bytes of it, then "..."; anything but printable ASCII as \xNN.
std::string printable(std::string_view text, size_t limit);

// 'name' in single quotes, at most 80 bytes of it.
std::string in_quotes(std::string_view name);

}  // namespace skein
