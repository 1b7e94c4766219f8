// Attention of one query head at one position, as the reference defines it.
#pragma once

#include <cstdint>
#include <span>

#include "backend/host/kv.h"
#include "backend/op_params.h"

namespace skein::reference {

struct Query {
  const float* values;  // [head_dim]
  uint32_t position;    // sees the tokens up to it
  uint32_t head;        // of the queries
};

// out is [head_dim].
void attend(const Query& query, std::span<const BlockId> blocks, const KvLayer& cache,
            const AttentionParams& params, float* out);

}  // namespace skein::reference
