// GPT-2's byte-level alphabet: each byte is written as one printable character.
#pragma once

#include <string>
#include <string_view>

namespace skein {

// Appends the bytes that `spelled` stands for, and says true; leaves `out` alone and says false
// when it has a character outside the alphabet.
bool append_byte_level(std::string_view spelled, std::string& out);

}  // namespace skein
