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

// fn(row, what it is) for every row.
template <class Fn>
void each_fact(const HostStep& step, RowFact fact, const Fn& fn) {
  for (const Sequence& sequence : step.sequences) {
    for (uint32_t i = 0; i < sequence.rows; ++i) {
      const uint32_t position = sequence.start + i;
      const bool second = sequence.second_from != 0 && position >= sequence.second_from;
      fn(size_t{sequence.first_row} + i, fact == RowFact::kPosition ? position : second ? 1U : 0U);
    }
  }
}

inline const HostStep& host_step(const Step& step) {
  return *static_cast<const HostStep*>(step.own);
}

}  // namespace skein
