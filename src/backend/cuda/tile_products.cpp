#include "backend/cuda/tile_products.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/cuda/device_objects.h"
#include "backend/cuda/product_params.h"
#include "backend/cuda/tensor_attention.h"
#include "backend/host/flush_denormals.h"
#include "backend/host/memory.h"
#include "backend/packed_tiles.h"

namespace skein::cuda {
namespace {

// `consumed` for rows [first, end) of the whole.
void consume_parts(const WeightParts& whole, size_t first, size_t end, const Consumed& consumed) {
  for (size_t i = 0; i < whole.parts().size(); ++i) {
    const size_t begin = whole.first_row(i);
    const size_t from = std::max(first, begin), to = std::min(end, whole.first_row(i + 1));
    if (from < to) consume_rows(whole.parts()[i], from - begin, to - from, consumed);
  }
}

}  // namespace

TileProducts::TileProducts(uint32_t processors, cudaStream_t stream, std::optional<uint64_t> seed)
    : processors_(processors), stream_(stream), seed_(seed) {
  check(set_up_products(), "kernels for sm_90a");
  check(set_up_attention(), "kernels for sm_90a");
}

void TileProducts::copy_up(std::byte* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "upload");
  check(cudaStreamSynchronize(stream_), "upload");
}

// Blocks of 64 outputs [first, first + count). False: not all of their numbers have a code.
bool TileProducts::upload_blocks(const WeightParts& whole, const F16Tiles& tiles, uint32_t first,
                                 uint32_t count, std::span<float> scales, std::byte* to,
                                 ComputePool& pool) {
  const size_t bytes = count * tiles.row_block_bytes();
  std::byte* const staged = staging_.take(bytes);
  std::atomic<bool> all = true;
  pool.run(size_t{count} * kTileRows, [&](size_t i) {
    const FlushDenormals flush;
    const size_t output = size_t{first} * kTileRows + i;
    std::byte* const blocks = staged + i / kTileRows * tiles.row_block_bytes();
    if (tiles.format.bits < 16) {
      if (!pack_quantized_row(whole, output, tiles, blocks, scales[output])) all = false;
      return;
    }
    // Outputs beyond the last are zeros.
    std::vector<float> row(whole.inputs());
    if (output < whole.outputs()) whole.dequantize_row(output, row);
    scales[output] = pack_f16_row(row, static_cast<uint32_t>(i % kTileRows), tiles, blocks);
  });
  if (all) copy_up(to, staged, bytes);
  return all;
}

// nullptr: not all numbers have a code.
Result<std::unique_ptr<Matrix>> TileProducts::make_tiles(const WeightParts& whole,
                                                         const F16Tiles& tiles,
                                                         const Consumed& consumed,
                                                         ComputePool& pool) {
  constexpr size_t kStagedBytes = size_t{16} << 20;
  SKEIN_ASSIGN(Buffer memory, allocate_device(tiles.bytes()));
  if (seed_) {
    fill_tiles(tiles, raw(memory), ++*seed_, stream_);
    consume_parts(whole, 0, whole.outputs(), consumed);
    return std::unique_ptr<Matrix>(std::make_unique<CudaTiles>(tiles, std::move(memory)));
  }
  std::vector<float> scales(size_t{tiles.row_blocks()} * kTileRows);
  const auto at_once =
      static_cast<uint32_t>(std::max<size_t>(1, kStagedBytes / tiles.row_block_bytes()));
  const bool may_fail = tiles.format.bits < 16;  // then they are read once more
  for (uint32_t first = 0; first < tiles.row_blocks(); first += at_once) {
    const uint32_t count = std::min(at_once, tiles.row_blocks() - first);
    if (!upload_blocks(whole, tiles, first, count, scales,
                       raw(memory) + first * tiles.row_block_bytes(), pool)) {
      return std::unique_ptr<Matrix>();
    }
    if (may_fail) continue;
    consume_parts(whole, size_t{first} * kTileRows,
                  std::min(size_t{first + count} * kTileRows, whole.outputs()), consumed);
  }
  if (may_fail) consume_parts(whole, 0, whole.outputs(), consumed);
  copy_up(raw(memory) + tiles.block_bytes(), scales.data(), scales.size() * sizeof(float));
  return std::unique_ptr<Matrix>(std::make_unique<CudaTiles>(tiles, std::move(memory)));
}

Result<std::unique_ptr<Matrix>> TileProducts::make_matrix(const WeightParts& whole,
                                                          const Consumed& consumed,
                                                          ComputePool& pool) {
  const F16Tiles shape = F16Tiles::of(whole.outputs(), whole.inputs());
  for (const TileFormat& format : tile_formats(whole.parts())) {
    if (format.bits == 16) break;
    const F16Tiles packed = F16Tiles::of(whole.outputs(), whole.inputs(), format);
    SKEIN_ASSIGN(auto matrix, make_tiles(whole, packed, consumed, pool));
    if (matrix == nullptr) continue;
    try {
      static_cast<void>(wide_.take(shape.bytes() / sizeof(float)));  // not in the middle of a step
    } catch (const CudaError& error) {
      return resource_exhausted("{}", error.what());
    }
    return matrix;
  }
  return make_tiles(whole, shape, consumed, pool);
}

ProductScratch TileProducts::scratch_for(const DeviceTiles& matrix, uint32_t rows, size_t sums) {
  const size_t halves = size_t{matrix.input_blocks()} * kTileInputs * rows;
  return {reinterpret_cast<std::byte*>(tiles_.take((halves + 1) / 2)), scales_.take(rows),
          sums == 0 ? nullptr : sums_.take(sums), rows};
}

// Numbers are made again and again for each of many rows; it is faster to make them once.
DeviceTiles TileProducts::numbers_for(const DeviceTiles& matrix, uint32_t rows) {
  constexpr uint32_t kMany = 256;
  if (matrix.format.bits == 16 || rows <= kMany) return matrix;
  const F16Tiles wide = F16Tiles::of(matrix.outputs, matrix.inputs);
  return widen(matrix, reinterpret_cast<std::byte*>(wide_.take(wide.bytes() / sizeof(float))),
               stream_);
}

SegmentSums TileProducts::linear(const DeviceInput& in, const Matrix& matrix, const float* bias,
                                 DeviceRows out) {
  const DeviceTiles tiles = numbers_for(device_tiles(matrix), out.rows);
  const uint32_t rows = tiled_rows(tiles, out.rows, processors_);
  const size_t sums = sums_of_segments(tiles, out.rows);
  DeviceInput input = in;
  if (in.delta_sums.planes != nullptr && !(sums_.holds(sums) && scales_.holds(rows))) {
    add_segments(in.delta_sums, in.delta, stream_);  // they are about to lose their place
    input.delta_sums = {};
  }
  if (in.attention != nullptr && !(sums_.holds(sums) && scales_.holds(rows))) {
    attend_on_tensor_cores(*in.attention, {}, stream_);  // for the same reason
    input.attention = nullptr;
  }
  const ProductScratch scratch = scratch_for(tiles, rows, sums);
  to_tiles(input, tiles, scratch, stream_);
  return multiply(tiles, bias, scratch, out, processors_, stream_);
}

void TileProducts::expert_linear(DeviceRows x, std::span<const std::unique_ptr<Matrix>> experts,
                                 const float* biases, const DeviceRoutes& routes, DeviceRows out) {
  // Their numbers are in shared memory when routes are sorted.
  constexpr size_t kMostExperts = 8192;
  SKEIN_CHECK(experts.size() <= kMostExperts, "{} experts, {} at most", experts.size(),
              kMostExperts);
  const DeviceTiles& shape = device_tiles(*experts[0]);
  ExpertTiles tiles = ExpertTiles::of(out.rows, static_cast<uint32_t>(experts.size()));
  tiles.routes = reinterpret_cast<uint32_t*>(routes_.take(tiles.rows() + tiles.tiles));
  tiles.experts = tiles.routes + tiles.rows();
  const ProductScratch scratch = scratch_for(shape, tiles.rows(), 0);
  sort_routes(routes, out.rows, static_cast<uint32_t>(experts.size()), tiles, stream_);
  to_expert_tiles(x, tiles, x.rows == out.rows ? 1 : routes.used, shape, scratch, stream_);
  for (size_t first = 0; first < experts.size(); first += ExpertTable::kMost) {
    multiply_some(experts, first, biases, tiles, scratch, out);
  }
}

// Experts of a table, those of each format together: not all of them need have the same.
void TileProducts::multiply_some(std::span<const std::unique_ptr<Matrix>> experts, size_t first,
                                 const float* biases, const ExpertTiles& tiles,
                                 const ProductScratch& scratch, DeviceRows out) {
  ExpertBlocks table;
  table.first = static_cast<uint32_t>(first);
  table.count = static_cast<uint32_t>(std::min<size_t>(ExpertTable::kMost, experts.size() - first));
  std::array<bool, ExpertTable::kMost> done{};
  for (uint32_t next = 0; next < table.count; ++next) {
    if (done[next]) continue;
    const DeviceTiles& shape = device_tiles(*experts[first + next]);
    for (uint32_t e = 0; e < table.count; ++e) {
      const DeviceTiles& own = device_tiles(*experts[first + e]);
      const bool same = own.format == shape.format;
      table.blocks[e] = same ? own.blocks : nullptr;
      done[e] = done[e] || same;
    }
    multiply_experts(table, shape, biases, tiles, scratch, out, processors_, stream_);
  }
}

}  // namespace skein::cuda
