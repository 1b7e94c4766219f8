// A step where the ops compute on the host: the caller's own memory, and the position of each row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/step.h"

namespace skein {

struct HostStep {
  std::span<const TokenId> tokens;
  std::span<const Sequence> sequences;
  std::span<const uint32_t> logit_rows;
  std::vector<uint32_t> positions;

  // Backend::begin(); the step looks at this one.
  Step begin(std::span<const TokenId> tokens, std::span<const Sequence> sequences,
             std::span<const uint32_t> logit_rows);
};

inline const HostStep& host_step(const Step& step) {
  return *static_cast<const HostStep*>(step.own);
}

}  // namespace skein
