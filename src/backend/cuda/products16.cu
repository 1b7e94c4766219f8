// Products with tiles of numbers.
#include "backend/cuda/products.cuh"

namespace skein::cuda {
namespace {

// Few rows: as many blocks of threads as there are segments and 64 outputs. Two blocks of inputs a
// stage where segments have an even number of them.
template <uint32_t kTokens, uint32_t kBlocks>
using Stream = Shape<Numbers, kTokens, 1, kBlocks, (kTokens > 16 ? 2 : 4), false>;
// Of more of them a block of threads multiplies several times 64 outputs.
template <uint32_t kGroups, uint32_t kBlocks>
using WideStream = Shape<Numbers, 64, kGroups, kBlocks, 1, false>;
// Many rows.
template <uint32_t kBlocks>
using Tile = Shape<Numbers, 128, 2, kBlocks, 1, true>;
using WideTile = Shape<Numbers, 256, 2, 1, 1, false>;
template <uint32_t kTokens, uint32_t kBlocks>
using ExpertTile = Shape<Numbers, kTokens, 1, kBlocks, (kTokens <= 16 ? 4 : 2), true, true>;

template <uint32_t kBlocks>
void multiply_of(ProductParams params, uint32_t processors, cudaStream_t stream) {
  if (params.rows <= 8) return launch<Stream<8, kBlocks>>(params, processors, stream);
  if (params.rows <= 16) return launch<Stream<16, kBlocks>>(params, processors, stream);
  if (params.rows <= 32) return launch<Stream<32, kBlocks>>(params, processors, stream);
  if (params.rows <= 64) {
    return launch_best<WideStream<2, kBlocks>, WideStream<3, kBlocks>>(params, processors, stream);
  }
  params.token_tiles = groups_of(params.rows, 128);
  launch<Tile<kBlocks>>(params, processors, stream);
}

bool has_even_segments(const DeviceTiles& matrix) {
  return matrix.segment_blocks % 2 == 0;
}

void multiply_numbers(ProductParams params, uint32_t processors, cudaStream_t stream) {
  if (params.matrix.segments == 1 && params.rows > 128) {
    params.token_tiles = groups_of(params.rows, WideTile::kTokens);
    return launch<WideTile>(params, processors, stream);
  }
  has_even_segments(params.matrix) ? multiply_of<2>(params, processors, stream)
                                   : multiply_of<1>(params, processors, stream);
}

template <uint32_t kBlocks>
void multiply_experts_of(const ExpertParams& params, uint32_t tile_rows, uint32_t processors,
                         cudaStream_t stream) {
  tile_rows == 8 ? launch<ExpertTile<8, kBlocks>>(params, processors, stream)
                 : launch<ExpertTile<64, kBlocks>>(params, processors, stream);
}

void multiply_numbers_of_experts(const ExpertParams& params, uint32_t tile_rows,
                                 uint32_t processors, cudaStream_t stream) {
  has_even_segments(params.matrix) ? multiply_experts_of<2>(params, tile_rows, processors, stream)
                                   : multiply_experts_of<1>(params, tile_rows, processors, stream);
}

template <uint32_t kBlocks>
cudaError_t set_up_of() {
  return set_up_shapes<Stream<8, kBlocks>, Stream<16, kBlocks>, Stream<32, kBlocks>,
                       WideStream<2, kBlocks>, WideStream<3, kBlocks>, Tile<kBlocks>, WideTile,
                       ExpertTile<8, kBlocks>, ExpertTile<64, kBlocks>>();
}

cudaError_t set_up() {
  const cudaError_t error = set_up_of<1>();
  return error == cudaSuccess ? set_up_of<2>() : error;
}

}  // namespace

const PackedProducts& products_of_numbers() {
  static constexpr PackedProducts kProducts = {set_up, multiply_numbers,
                                               multiply_numbers_of_experts};
  return kProducts;
}

}  // namespace skein::cuda
