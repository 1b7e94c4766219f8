#include "sim/scale_probe.h"

#include <algorithm>
#include <chrono>
#include <fmt/core.h>
#include <limits>

#include "kv/kv_allocator.h"

namespace skein::sim {
namespace {

// Seconds for two hundred allocations and releases of 8 blocks, in a pool that is all free.
double cost(uint32_t pool_blocks) {
  KvAllocator kv({pool_blocks, true, {1, 2}});
  constexpr uint64_t kTokens = 8 * kBlockTokens;
  BlockTable table;
  double best = std::numeric_limits<double>::max();
  for (int round = 0; round < 5; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 200; ++i) {
      table.reset({}, kTokens);
      if (!kv.grow(table, kTokens)) return 0;
      kv.release(table);
    }
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

}  // namespace

std::string probe_scale() {
  const double small = cost(1U << 10);
  const double large = cost(1U << 17);
  // 128 times the memory: O(1) stays near 1, O(n) goes to 100.
  if (large < 10 * small) return {};
  return fmt::format("8 blocks cost {:.2f} us in a pool of 2^10 and {:.2f} us in one of 2^17",
                     small * 5e3, large * 5e3);
}

}  // namespace skein::sim
