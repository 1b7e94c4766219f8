// Step: what one step computes, as a backend keeps it while the step's ops run.
//
// A step is N rows, one for each token: chunks of prompts, single tokens, of any number of
// sequences. Backend::begin() makes one of host memory; on a device that is one record in pinned
// memory and one copy to the device, and the ops read it there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"

namespace skein {

// Rows [first_row, first_row + rows) of the step are positions [start, start + rows) of one
// sequence.
struct Sequence {
  uint32_t first_row = 0;
  uint32_t rows = 0;
  uint32_t start = 0;
  bool writes_kv = true;            // false: the cache holds these positions already
  std::span<const BlockId> blocks;  // cover start + rows tokens
  uint32_t second_from = 0;         // of two texts: where the second one begins; 0: there is one
};

// What a step says of a row beside its token.
enum class RowFact : uint8_t {
  kPosition,
  kText,  // 0; or 1 where it is of the second of two texts
};

// The shape of a step, and whatever else the backend knows of it.
struct Step {
  size_t rows = 0;            // that the ops work on: one a token; a device may fill them up
  size_t logits = 0;          // rows whose logits are wanted, likewise
  const void* own = nullptr;  // the backend's
};

}  // namespace skein
