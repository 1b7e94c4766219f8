// Workspace: the memory between the ops of a step, for the largest step there will be. One buffer,
// taken at load.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "model/decoder.h"
#include "model/spec.h"

namespace skein {

struct Workspace {
  // [rows, ...]
  Rows stream;                                        // the residual stream
  Rows normed;                                        // input of a projection
  Rows qkv;                                           // q | k | v
  Rows attended;                                      // output of attention
  Rows delta;                                         // what is added to the stream
  Rows gate_up;                                       // dense feed-forward
  Rows router;                                        // logits of the experts
  Rows expert_gate_up, expert_activated, expert_out;  // [rows * used, ...]
  std::vector<Rows> angles;                           // of each rope
  // [logit_rows, ...]; an encoder has none
  Rows gathered, logits;

  std::unique_ptr<Routes> routes;  // where there are experts

  Buffer memory;

  static Result<Workspace> create(Backend& backend, const ModelSpec& spec,
                                  const DecoderLimits& limits);
  static uint64_t bytes_for(const ModelSpec& spec, const DecoderLimits& limits);
};

}  // namespace skein
