// Memory of backends that compute where the process does: how to take it, and the addresses behind
// what memory.h keeps closed.
#pragma once

#include <cstddef>

#include "backend/memory.h"
#include "base/status.h"

namespace skein {

// As Backend::allocate asks: zeroed, lazily taken, aligned to 64 bytes, large ones to 2 MiB and in
// huge pages where the system has them. kResourceExhausted with the size when the address space
// cannot be had.
Result<Buffer> allocate_host(size_t bytes);

struct RawMemory {
  static float* of(Floats floats) { return floats.data_; }
  static std::byte* of(const Buffer& buffer) { return static_cast<std::byte*>(buffer.data_); }
  static Floats floats(float* data) { return Floats(data); }
};

inline float* raw(Floats floats) {
  return RawMemory::of(floats);
}
inline std::byte* raw(const Buffer& buffer) {
  return RawMemory::of(buffer);
}
inline float* row_of(const Rows& x, size_t i) {
  return raw(x.data) + i * x.stride;
}
// Backend::read() where there is nothing to wait for and nothing to copy.
inline HostRows host_rows(const Rows& x) {
  return {raw(x.data), x.rows, x.width, x.stride};
}

}  // namespace skein
