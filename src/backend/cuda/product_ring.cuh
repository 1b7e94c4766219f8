// What a block of threads has of a product of tiles: its shape, which pieces of work it takes, and
// the ring in shared memory through which one thread keeps weights and rows coming.
#pragma once

#include <type_traits>

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/product_params.h"
#include "backend/cuda/strips.cuh"

namespace skein::cuda {

inline constexpr uint32_t kRowBytes = kTileInputs * sizeof(uint16_t);

// What is not of codes: tiles of numbers.
struct Numbers {
  static constexpr uint32_t kBits = 16, kTiles = 0;
};

// What a block of threads works on at once: 64 * kGroups outputs, kTokens rows, kBlocks * 64 inputs
// a stage of the ring, and how many such blocks of threads share a processor. kAdds: one goes
// through all segments and adds them up; else through one of them. Of codes (strips.cuh) the
// numbers are made in registers; segments of them need not be whole stages.
template <class CodesOf, uint32_t kTokensOf, uint32_t kGroupsOf, uint32_t kBlocksOf,
          uint32_t kShareOf, bool kAddsOf, bool kExpertsOf = false>
struct Shape {
  using Codes = CodesOf;
  static constexpr bool kHasCodes = Codes::kBits < 16;
  static constexpr uint32_t kTokens = kTokensOf, kGroups = kGroupsOf, kBlocks = kBlocksOf,
                            kShare = kShareOf;
  static constexpr bool kAdds = kAddsOf, kExperts = kExpertsOf;
  static constexpr uint32_t kThreadsOfBlock = kGroups * kWarpgroup + kWarp;
  // Of the last tile of many rows a half or a quarter may be all that is multiplied.
  static constexpr bool kParts = kTokens > kMostStreamed && !kExperts;
  // Of 64 outputs and inputs: a scale for every 32 of float16, or for every 16 of float32, and as
  // many minimums.
  static constexpr uint32_t kMostTileBytes = !kHasCodes           ? kTileBytes
                                             : Codes::kTiles == 4 ? 2304
                                                                  : 512 * Codes::kBits + 2048;
  static constexpr uint32_t kRoom =
      (kProcessorBytes / kShare - kBlockOverhead) / 1024 * 1024 - 1024;

  // Of weights whose blocks have so many bytes. Rows come first, since they lie at a multiple of
  // 1024 bytes.
  __host__ __device__ static constexpr uint32_t stage_bytes(uint32_t tile_bytes) {
    const uint32_t bytes = kBlocks * (kTokens * kRowBytes + kGroups * tile_bytes);
    return (bytes + 1023) / 1024 * 1024;
  }
  __host__ __device__ static constexpr uint32_t stages(uint32_t tile_bytes) {
    constexpr uint32_t kMost = 32;
    const uint32_t count = kRoom / stage_bytes(tile_bytes);
    return count < kMost ? count : kMost;
  }
  // Not more than it takes: the next kernel would miss it.
  __host__ __device__ static constexpr uint32_t shared_bytes(uint32_t tile_bytes) {
    return stages(tile_bytes) * (stage_bytes(tile_bytes) + 16);
  }
  static_assert(stages(kMostTileBytes) >= 2);
};

// Kernels begin the sooner the less they are given.
template <class S>
using ParamsOf = std::conditional_t<S::kExperts, ExpertParams, ProductParams>;

// One piece of work, the same for who copies and who multiplies.
struct Item {
  uint32_t row_tile, token_tile, segment;
  uint32_t tokens;  // that are multiplied
  const std::byte* blocks;
  uint32_t expert;
};

template <class S>
__device__ uint32_t items_of(const ParamsOf<S>& p) {
  const uint32_t row_tiles = groups_of(p.matrix.outputs, S::kGroups * kTileRows);
  return row_tiles * p.token_tiles * (S::kAdds ? 1 : p.matrix.segments);
}

// The rows that are left over where tiles are large: less is multiplied then, and it comes last, so
// that it is for those who would have nothing else to do.
template <class S>
__device__ void find_left_over(const ParamsOf<S>& p, uint32_t index, Item& item) {
  const uint32_t whole = p.rows / S::kTokens, left = p.rows - whole * S::kTokens;
  const uint32_t row_tiles = groups_of(p.matrix.outputs, S::kGroups * kTileRows);
  const bool is_left = index >= whole * row_tiles;
  item.row_tile = is_left ? index - whole * row_tiles : index / whole;
  item.token_tile = is_left ? whole : index - item.row_tile * whole;
  if (!is_left) return;
  if (left <= S::kTokens / 2) item.tokens = S::kTokens / 2;
  if (left <= S::kTokens / 4) item.tokens = S::kTokens / 4;
}

// Neighbours share weights where there are several tiles of rows. False: there is nothing to do.
template <class S>
__device__ bool item_at(const ParamsOf<S>& p, uint32_t index, Item& item) {
  const uint32_t segments = S::kAdds ? 1 : p.matrix.segments;
  item.segment = index % segments;
  item.token_tile = index / segments % p.token_tiles;
  item.row_tile = index / segments / p.token_tiles;
  item.tokens = S::kTokens;
  item.blocks = p.matrix.blocks;
  if constexpr (S::kParts) find_left_over<S>(p, index, item);
  if constexpr (S::kExperts) {
    item.expert = p.experts[item.token_tile];
    if (item.expert < p.table.first || item.expert - p.table.first >= p.table.count) return false;
    item.blocks = p.table.blocks[item.expert - p.table.first];
    if (item.blocks == nullptr) return false;  // of another format
  }
  return true;
}

// A ring's place and the parity of its round.
struct Place {
  uint32_t stage = 0, parity = 0;

  __device__ void next(uint32_t stages) {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
};

struct Ring {
  uint32_t stages, full, empty;  // addresses
  uint32_t count, stage_bytes;
  uint32_t tile_bytes;  // of weights

  __device__ uint32_t at(uint32_t stage) const { return stages + stage * stage_bytes; }
};

template <class S>
__device__ Ring ring_of(const void* shared, const ParamsOf<S>& p) {
  const uint32_t tile_bytes = S::kHasCodes ? p.matrix.format.tile_bytes() : kTileBytes;
  const uint32_t count = S::stages(tile_bytes), stage_bytes = S::stage_bytes(tile_bytes);
  const uint32_t stages = shared_address(shared), full = stages + count * stage_bytes;
  return {stages, full, full + count * 8, count, stage_bytes, tile_bytes};
}

// What one thread copies, stage after stage, in the order in which it is multiplied.
template <class S>
class Stages {
 public:
  __device__ explicit Stages(const ParamsOf<S>& p)
      : p_(p), of_item_(S::kAdds ? p.matrix.input_blocks() : p.matrix.segment_blocks) {
    find_item();
  }

  __device__ bool any() const { return index_ < items_of<S>(p_); }
  __device__ void next() {
    block_ += count();
    of_segment_ += count();
    if (of_segment_ >= p_.matrix.segment_blocks) of_segment_ = 0;
    if (block_ < of_item_) return;
    block_ = 0;
    index_ += gridDim.x;
    find_item();
  }
  __device__ void copy_weights(uint32_t to, uint32_t full, uint32_t tile_bytes,
                               uint64_t policy) const {
    const uint32_t last = p_.matrix.row_blocks() - 1, blocks = p_.matrix.input_blocks();
    for (uint32_t g = 0; g < S::kGroups; ++g) {
      const size_t row_block = min(item_.row_tile * S::kGroups + g, last);
      copy_bulk(to + S::kBlocks * (S::kTokens * kRowBytes + g * tile_bytes),
                item_.blocks + (row_block * blocks + block()) * tile_bytes, count() * tile_bytes,
                full, policy);
    }
  }
  // Where there is one tile of rows it lies together.
  __device__ void copy_rows(uint32_t to, uint32_t full, uint64_t policy) const {
    const uint32_t blocks = p_.x_rows == S::kTokens ? 1 : count();
    const uint32_t bytes = (blocks == 1 ? count() : 1) * item_.tokens * kRowBytes;
    for (uint32_t b = 0; b < blocks; ++b) {
      const size_t first = size_t{block() + b} * p_.x_rows + item_.token_tile * S::kTokens;
      copy_bulk(to + b * S::kTokens * kRowBytes, p_.x + first * kRowBytes, bytes, full, policy);
    }
  }
  __device__ uint32_t bytes(uint32_t tile_bytes) const {
    return count() * (item_.tokens * kRowBytes + S::kGroups * tile_bytes);
  }

 private:
  __device__ uint32_t block() const { return item_.segment * of_item_ + block_; }
  // Blocks of the stage.
  __device__ uint32_t count() const {
    return S::kHasCodes ? min(S::kBlocks, p_.matrix.segment_blocks - of_segment_) : S::kBlocks;
  }
  __device__ void find_item() {
    while (any() && !item_at<S>(p_, index_, item_)) index_ += gridDim.x;
  }

  const ParamsOf<S>& p_;
  const uint32_t of_item_;
  uint32_t index_ = blockIdx.x, block_ = 0, of_segment_ = 0;
  Item item_;
};

// By one thread. The first weights are under way before the kernel before has ended; which experts'
// they are is not known then.
template <class S>
__device__ void copy_items(const ParamsOf<S>& p, const Ring& ring) {
  const uint64_t once = p.token_tiles > 1 ? evict_normal() : evict_first(), kept = evict_last();
  const auto full_at = [&](uint32_t stage) { return ring.full + stage * 8; };
  uint32_t ahead = 0;
  if constexpr (!S::kExperts) {
    for (Stages<S> stages(p); ahead < ring.count && stages.any(); ++ahead, stages.next()) {
      arrive_and_expect(full_at(ahead), stages.bytes(ring.tile_bytes));
      stages.copy_weights(ring.at(ahead), full_at(ahead), ring.tile_bytes, once);
    }
  }
  wait_for_kernel_before();
  Place place;
  uint32_t count = 0;
  for (Stages<S> stages(p); stages.any(); stages.next()) {
    const uint32_t to = ring.at(place.stage), full = full_at(place.stage);
    if (count++ >= ahead) {
      wait(ring.empty + place.stage * 8, place.parity ^ 1);
      arrive_and_expect(full, stages.bytes(ring.tile_bytes));
      stages.copy_weights(to, full, ring.tile_bytes, once);
    }
    stages.copy_rows(to, full, kept);
    place.next(ring.count);
  }
}

}  // namespace skein::cuda
