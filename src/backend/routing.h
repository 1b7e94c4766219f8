// How a row's router logits become experts and weights: the same code for every host backend, since
// it is a few hundred numbers a row.
#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"

namespace skein {

// `experts` and `weights` have as many elements as experts are to be used. Numbers are valid and
// distinct whatever the logits are, NaN included.
void route_row(std::span<const float> logits, RouterKind kind, std::span<uint32_t> experts,
               std::span<float> weights);

}  // namespace skein
