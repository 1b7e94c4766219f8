// OracleModel: stands where a real model would and checks every KV cell it is told to read.
//
// A cell holds the digest of the tenant and of all tokens up to its position: exactly what a real
// KV value depends on. Writing happens when a step completes, not when it is planned. A block that
// comes fresh into a table is poisoned first, so that a read of something never computed is seen.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "sched/step.h"
#include "sim/workload.h"

namespace skein::sim {

class OracleModel {
 public:
  explicit OracleModel(uint32_t pool_blocks)
      : cells_(size_t{pool_blocks} * kBlockTokens, kPoison) {}

  // Runs one segment of a request that is still wanted: reads its context, writes its cells.
  Status run_segment(const Segment& segment, SimRequest& request);
  // Runs one segment of a request that ended meanwhile: whatever it writes is garbage.
  void run_orphan(const Segment& segment);
  // The blocks of `segment` from number `first` on hold nothing that may be read.
  void poison_blocks(const Segment& segment, uint32_t first);

 private:
  static constexpr uint64_t kPoison = 0;

  uint64_t& cell(const Segment& segment, uint32_t position) {
    return cells_[size_t{segment.blocks[position / kBlockTokens].value} * kBlockTokens +
                  position % kBlockTokens];
  }

  std::vector<uint64_t> cells_;
};

}  // namespace skein::sim
