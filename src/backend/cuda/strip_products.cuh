// Products with codes in strips, of more rows than strips.cu takes, and of experts.
#pragma once

#include "backend/cuda/products.cuh"

namespace skein::cuda {

template <class Codes>
struct StripProducts {
  // Two blocks of threads on a processor wait less than one that is as large, and have more to take
  // turns with; for many outputs it is the other way round.
  template <uint32_t kTokens, uint32_t kShare>
  using Few = Shape<Codes, kTokens, 4 / kShare, Codes::kTiles, kShare, false>;
  using Many = Shape<Codes, 64, 3, Codes::kTiles, 1, true>;
  template <uint32_t kTokens>
  using Expert = Shape<Codes, kTokens, 1, Codes::kTiles, (kTokens == 8 ? 4 : 2), true, true>;

  static cudaError_t set_up() {
    return set_up_shapes<Few<32, 1>, Few<64, 1>, Few<32, 2>, Few<64, 2>, Many, Expert<8>,
                         Expert<64>>();
  }
  template <uint32_t kShare>
  static void multiply_few(const ProductParams& params, uint32_t processors, cudaStream_t stream) {
    params.rows <= 32 ? launch<Few<32, kShare>>(params, processors, stream)
                      : launch<Few<64, kShare>>(params, processors, stream);
  }
  static void multiply(ProductParams params, uint32_t processors, cudaStream_t stream) {
    if (params.matrix.segments > 1 && params.rows <= kMostStreamed) {
      return multiply_few<2>(params, processors, stream);
    }
    params.token_tiles = groups_of(params.rows, kMostStreamed);
    if (params.matrix.segments > 1) return launch<Many>(params, processors, stream);
    const bool is_wide = params.matrix.row_blocks() >= 3 * processors;
    is_wide ? multiply_few<1>(params, processors, stream)
            : multiply_few<2>(params, processors, stream);
  }
  static void multiply_experts(const ExpertParams& params, uint32_t tile_rows, uint32_t processors,
                               cudaStream_t stream) {
    tile_rows == 8 ? launch<Expert<8>>(params, processors, stream)
                   : launch<Expert<64>>(params, processors, stream);
  }
  static constexpr PackedProducts kProducts = {set_up, multiply, multiply_experts};
};

}  // namespace skein::cuda
