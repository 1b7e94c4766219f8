#include "backend/host/memory.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <sys/mman.h>

namespace skein {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kPage = 4096;

void* map(size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

void unmap(void* data, size_t bytes) {
  if (bytes > 0) munmap(data, bytes);
}

// `bytes`, a multiple of a page, at a multiple of kHugePage: maps more and gives the edges back.
void* map_at_huge_page(size_t bytes) {
  auto* const data = static_cast<std::byte*>(map(bytes + kHugePage));
  if (data == nullptr) return nullptr;
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(data) % kHugePage) % kHugePage;
  unmap(data, before);
  unmap(data + before + bytes, kHugePage - before);
  // A system without huge pages is none the worse.
  static_cast<void>(madvise(data + before, bytes, MADV_HUGEPAGE));
  return data + before;
}

}  // namespace

Result<Buffer> allocate_host(size_t bytes) {
  if (bytes == 0) return Buffer();
  if (bytes > SIZE_MAX / 2) return resource_exhausted("{} bytes of memory cannot be had", bytes);
  const size_t mapped = (bytes + kPage - 1) / kPage * kPage;
  void* const data = mapped >= kHugePage ? map_at_huge_page(mapped) : map(mapped);
  if (data == nullptr) {
    return resource_exhausted("{} bytes of memory cannot be had: {}", bytes, std::strerror(errno));
  }
  // Buffer frees what it was told it has, and munmap() rounds that up to pages.
  return Buffer(data, bytes, unmap);
}

}  // namespace skein
