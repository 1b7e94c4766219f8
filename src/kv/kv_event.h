// KvEvent: a block's contents have come into the prefix cache, or left it. Whoever applies all of
// them, in order, knows what is in there; a parent comes before its children and leaves after them.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace skein {

struct KvEvent {
  enum class Kind : uint8_t { kStored, kRemoved };
  Kind kind = Kind::kStored;
  BlockId block;
  uint64_t hash = 0;  // content_hash() of what it holds
};

}  // namespace skein
