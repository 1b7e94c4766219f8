// Attention of one query head at one position, as the reference defines it.
#pragma once

#include <cstdint>
#include <span>

#include "backend/host/kv.h"
#include "backend/op_params.h"

namespace skein::reference {

struct Query {
  const float* values;  // [head_dim]
  uint32_t position;    // the last token that it sees
  uint32_t head;        // of the queries
};

// How sums are ordered: as arithmetic.h says, or by tensor cores (f16_products.h), which a cache of
// float32 never is.
enum class AttentionSums : uint8_t { kHost, kTensorCores };

// out is [head_dim].
void attend(const Query& query, std::span<const BlockId> blocks, const KvLayer& cache,
            const AttentionParams& params, AttentionSums sums, float* out);

}  // namespace skein::reference
