// What an operator sees of a model's KV events.
#pragma once

#include <cstdint>

namespace skein {

struct KvEventStats {
  uint64_t messages = 0;
  uint64_t blocks = 0;       // that were stored or removed, as told
  uint64_t resets = 0;       // all blocks told anew, since too much waited to be told
  uint64_t subscribers = 0;  // now
  uint64_t dropped = 0;      // peers that were cut: too slow, or not as the protocol wants them
};

}  // namespace skein
