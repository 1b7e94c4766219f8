// Products with codes in strips, of more rows than strips.cu takes, and of experts.
#pragma once

#include "backend/cuda/products.cuh"

namespace skein::cuda {

template <class Codes>
struct StripProducts {
  template <uint32_t kTokens, uint32_t kGroups, uint32_t kShare = 1>
  using Few = Shape<Codes, kTokens, kGroups, Codes::kTiles, kShare, false>;
  using Many = Shape<Codes, 64, 3, Codes::kTiles, 1, true>;
  template <uint32_t kTokens>
  using Expert = Shape<Codes, kTokens, 1, Codes::kTiles, (kTokens == 8 ? 4 : 2), true, true>;

  template <uint32_t kTokens>
  static cudaError_t set_up_few() {
    return set_up_shapes<Few<kTokens, 2, 2>, Few<kTokens, 3>, Few<kTokens, 4>, Few<kTokens, 6>>();
  }
  static cudaError_t set_up() {
    for (const cudaError_t error : {set_up_few<32>(), set_up_few<64>()}) {
      if (error != cudaSuccess) return error;
    }
    return set_up_shapes<Many, Expert<8>, Expert<64>>();
  }
  // Two blocks of threads on a processor wait less than one that is as large, and have more to take
  // turns with; for many outputs it is the other way round.
  template <uint32_t kTokens>
  static void multiply_few(const ProductParams& params, uint32_t processors, cudaStream_t stream) {
    if (params.matrix.segments == 1 && params.matrix.row_blocks() >= 3 * processors) {
      return launch<Few<kTokens, 4>>(params, processors, stream);
    }
    launch_best<Few<kTokens, 2, 2>, Few<kTokens, 3>, Few<kTokens, 6>>(params, processors, stream);
  }
  static void multiply(ProductParams params, uint32_t processors, cudaStream_t stream) {
    const bool are_few = params.rows <= kMostStreamed;
    params.token_tiles = groups_of(params.rows, kMostStreamed);
    if (params.matrix.segments > 1 && !are_few) return launch<Many>(params, processors, stream);
    params.rows <= 32 ? multiply_few<32>(params, processors, stream)
                      : multiply_few<64>(params, processors, stream);
  }
  static void multiply_experts(const ExpertParams& params, uint32_t tile_rows, uint32_t processors,
                               cudaStream_t stream) {
    tile_rows == 8 ? launch<Expert<8>>(params, processors, stream)
                   : launch<Expert<64>>(params, processors, stream);
  }
  static constexpr PackedProducts kProducts = {set_up, multiply, multiply_experts};
};

}  // namespace skein::cuda
