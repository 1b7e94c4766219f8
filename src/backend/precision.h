// The user chooses it, never what the batch suggests (arithmetic.h has the definitions).
//   kF32      float32 throughout, for checking
//   kDefault  quantized weights with activations of 8 bits, all others in bfloat16
//   kHigh     weights and activations of products in bfloat16
// All else is float32 in each of them. That is the profile of hosts; in that of a device products
// are defined as its tensor cores compute them, at the default precision and at the high one alike,
// whatever the file has. Float32 is the same in every profile.
#pragma once

#include <cstdint>

namespace skein {

enum class Precision : uint8_t { kF32, kDefault, kHigh };
enum class Profile : uint8_t { kHost, kHopper };

}  // namespace skein
