#include "backend/host/step.h"

#include "base/check.h"

namespace skein {

Step HostStep::begin(std::span<const TokenId> step_tokens, std::span<const Sequence> step_sequences,
                     std::span<const uint32_t> step_logit_rows) {
  tokens = step_tokens;
  sequences = step_sequences;
  logit_rows = step_logit_rows;
  positions.clear();
  for (const Sequence& s : sequences) {
    SKEIN_CHECK(s.first_row == positions.size(), "begin: row {} after {} rows", s.first_row,
                positions.size());
    SKEIN_CHECK(s.blocks.size() * size_t{kBlockTokens} >= size_t{s.start} + s.rows,
                "begin: {} blocks for {} tokens", s.blocks.size(), size_t{s.start} + s.rows);
    for (uint32_t i = 0; i < s.rows; ++i) positions.push_back(s.start + i);
  }
  SKEIN_CHECK(positions.size() == tokens.size(), "begin: sequences of {} rows, {} tokens",
              positions.size(), tokens.size());
  for (const uint32_t row : logit_rows) {
    SKEIN_CHECK(row < tokens.size(), "begin: logits of row {} of {}", row, tokens.size());
  }
  return {tokens.size(), logit_rows.size(), this};
}

}  // namespace skein
