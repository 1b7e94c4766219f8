#include "model/count_allocations.h"

#include <cstdlib>
#include <new>

namespace {
thread_local uint64_t count = 0;
}  // namespace

namespace skein::testing {

uint64_t allocations() {
  return count;
}

}  // namespace skein::testing

void* operator new(size_t size) {
  ++count;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
