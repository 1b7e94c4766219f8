// Any bytes as text that PostgreSQL takes, and back: equal bytes are equal texts. Text that has
// neither control character 1 nor a zero byte and is UTF-8 stays as it is; every other byte
// becomes the character 1 and two hexadecimal digits.
#pragma once

#include <string>
#include <string_view>

namespace skein {

std::string to_postgres_text(std::string_view bytes);
std::string from_postgres_text(std::string_view text);

}  // namespace skein
