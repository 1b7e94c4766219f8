// Names from untrusted files, made fit for an error message.
#pragma once

#include <string>
#include <string_view>

namespace skein {

// 'name' in single quotes: at most 80 bytes of it, anything but printable ASCII as \xNN.
std::string in_quotes(std::string_view name);

}  // namespace skein
