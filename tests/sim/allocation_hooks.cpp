#include "sim/allocation_hooks.h"

#include <cstdlib>
#include <new>

namespace {

thread_local uint64_t count = 0;
thread_local uint64_t fail_at = 0;  // 0: never

void* allocate(size_t size) {
  if (++count == fail_at) throw std::bad_alloc();
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t size) {
  return allocate(size);
}
void* operator new[](size_t size) {
  return allocate(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

namespace skein::sim {

AllocationHooks allocation_hooks() {
  return {[](uint32_t n) { fail_at = count + n + 1; }, [] { fail_at = 0; }};
}

uint64_t allocations() {
  return count;
}

}  // namespace skein::sim
