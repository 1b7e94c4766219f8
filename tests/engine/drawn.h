// What a draw takes from a row on the host, where rows, draws and tokens are all there is.
#pragma once

#include <span>

#include "backend/draw.h"
#include "backend/vocabulary_scan.h"
#include "engine/sampling/candidates.h"

namespace skein::testing {

// Of a row that is sound.
inline TokenId drawn_from(std::span<const float> row, const Draw& draw,
                          const VocabularyScan& scan) {
  const Argmax peak = scan.argmax(row);
  if (draw.temperature == 0) return static_cast<TokenId>(peak.index);
  SamplingParams params;
  params.temperature = draw.temperature;
  params.top_k = draw.top_k;
  params.top_p = draw.top_p;
  params.min_p = draw.min_p;
  CandidateSet candidates;
  candidates.prepare(row.size());
  return candidates.draw(row, peak, params, scan, draw.random);
}

}  // namespace skein::testing
