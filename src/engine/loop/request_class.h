// The class of a request, and where it comes from.
#pragma once

#include <optional>

#include "sched/types.h"

namespace skein {

// The endpoint decides first, then the key's tier. Nothing that a client sends takes part.
constexpr Priority request_class(bool batch_route, std::optional<Priority> tier) {
  return batch_route ? Priority::LOW : tier.value_or(Priority::NORMAL);
}

}  // namespace skein
