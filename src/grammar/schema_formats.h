// The values of `format` that are enforced.
#pragma once

#include <string_view>

namespace skein::grammar {

// The pattern of a format, anchored, or an empty one: unknown formats are annotations.
std::string_view format_pattern(std::string_view format);

}  // namespace skein::grammar
