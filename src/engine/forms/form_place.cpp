#include "engine/forms/form_place.h"

#include <chrono>

namespace skein {

const grammar::TokenMask* FormPlace::mask() {
  const auto started = std::chrono::steady_clock::now();
  const grammar::TokenMask* mask = matcher_.mask();
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - started;
  form_->meter->add_mask(static_cast<uint64_t>(took.count()));
  return mask;
}

}  // namespace skein
