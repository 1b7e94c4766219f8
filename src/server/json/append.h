// JSON text, written by hand: for what is sent once per token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace skein::json {

// `text` in quotes. What is not valid UTF-8 in it becomes U+FFFD, so the result is always JSON.
void append_string(std::string& out, std::string_view text);

void append_int(std::string& out, int64_t number);

// The shortest text that reads back the same; null for what JSON has no number for.
void append_number(std::string& out, double number);

}  // namespace skein::json
