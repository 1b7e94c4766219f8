#include "model/expert_packing.h"

#include <cstring>

namespace skein {
namespace {

constexpr size_t kHalf = 16;  // bytes of a block's elements
constexpr size_t kMxfp4Bytes = 1 + kHalf;

// Element j of a block whose bytes hold neighbours.
uint8_t neighbour(const std::byte* block, size_t j) {
  return static_cast<uint8_t>(block[j / 2]) >> (j % 2 * 4) & 0xf;
}

}  // namespace

uint64_t source_row(RowOrder order, uint64_t row, uint64_t rows) {
  if (order == RowOrder::kPlain) return row;
  const uint64_t half = rows / 2;
  return row < half ? 2 * row : 2 * (row - half) + 1;
}

std::vector<std::byte> transposed_expert(const TensorView& all, uint64_t expert, RowOrder order) {
  const uint64_t inputs = all.shape[1];
  const uint64_t outputs = all.shape[2];
  const size_t size = info(all.type).block_bytes;
  const std::byte* from = all.bytes.data() + expert * inputs * outputs * size;
  std::vector<std::byte> out(inputs * outputs * size);
  for (uint64_t row = 0; row < outputs; ++row) {
    const uint64_t column = source_row(order, row, outputs);
    for (uint64_t k = 0; k < inputs; ++k) {
      std::memcpy(&out[(row * inputs + k) * size], from + (k * outputs + column) * size, size);
    }
  }
  return out;
}

std::vector<std::byte> mxfp4_expert(const TensorView& blocks, const TensorView& scales,
                                    uint64_t expert, RowOrder order) {
  const uint64_t rows = blocks.shape[1];
  const uint64_t per_row = blocks.shape[2];
  std::vector<std::byte> out(rows * per_row * kMxfp4Bytes);
  std::byte* to = out.data();
  for (uint64_t row = 0; row < rows; ++row) {
    const uint64_t first = (expert * rows + source_row(order, row, rows)) * per_row;
    for (uint64_t b = first; b < first + per_row; ++b, to += kMxfp4Bytes) {
      const std::byte* from = blocks.bytes.data() + b * kHalf;
      to[0] = scales.bytes[b];
      for (size_t j = 0; j < kHalf; ++j) {
        to[1 + j] = std::byte(neighbour(from, j) | neighbour(from, j + kHalf) << 4);
      }
    }
  }
  return out;
}

}  // namespace skein
