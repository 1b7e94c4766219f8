// Randomness that nobody can predict, from the kernel: ids, salts and secrets.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace skein {

void fill_random(std::span<std::byte> bytes);
// Two lower-case hex digits a byte.
std::string hex(std::span<const std::byte> bytes);
std::string random_hex(size_t bytes);

}  // namespace skein
