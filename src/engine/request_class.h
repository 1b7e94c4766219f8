// What the class of a request comes from, and what it gives.
#pragma once

#include <cstdint>
#include <optional>

#include "sched/types.h"

namespace skein {

// The endpoint decides first, then the key's tier. Nothing that a client sends takes part.
constexpr Priority request_class(bool batch_route, std::optional<Priority> tier) {
  return batch_route ? Priority::LOW : tier.value_or(Priority::NORMAL);
}

// How many may wait when one of this class arrives: `max_queue`, and for HIGH an eighth more, so
// that a flood of the others does not shut it out.
constexpr uint32_t queue_places(uint32_t max_queue, Priority priority) {
  return priority == Priority::HIGH ? max_queue + max_queue / 8 + 1 : max_queue;
}

}  // namespace skein
