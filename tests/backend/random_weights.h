// Random tensors of every element type, with scales that a model could have.
#pragma once

#include <bit>
#include <cstring>
#include <vector>

#include "base/rng.h"
#include "tensor/dequantize.h"
#include "tensor/quant/affine.h"
#include "tensor/quant/scale_offsets.h"
#include "tensor/tensor.h"

namespace skein {

// Uniform in [-1, 1).
inline float random_float(Rng& rng) {
  return static_cast<float>(static_cast<int64_t>(rng.next() >> 40) - (1 << 23)) * 0x1p-23F;
}

inline std::vector<float> random_floats(size_t count, Rng& rng) {
  std::vector<float> values(count);
  for (float& value : values) value = random_float(rng);
  return values;
}

// A tensor with the memory it looks at.
struct OwnedTensor {
  std::vector<std::byte> bytes;
  TensorView view;
};

// Random bytes; unless `wild`, with scales between 2^-9 and 2^-5 instead of anything at all.
inline OwnedTensor random_tensor(ElementType type, uint64_t rows, uint64_t columns, Rng& rng,
                                 bool wild = false) {
  OwnedTensor tensor;
  const Shape shape{rows, columns};
  tensor.bytes.resize(*checked_byte_size(type, shape));
  for (std::byte& byte : tensor.bytes) byte = static_cast<std::byte>(rng.next());
  const size_t block_bytes = info(type).block_bytes;
  for (size_t at = 0; at < tensor.bytes.size() && !wild; at += block_bytes) {
    std::byte* const block = tensor.bytes.data() + at;
    if (type == ElementType::kF32) {
      const float value = random_float(rng);
      std::memcpy(block, &value, 4);
    } else if (type == ElementType::kBF16) {
      const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(random_float(rng)) >> 16);
      std::memcpy(block, &bits, 2);
    } else if (type == ElementType::kF16) {
      block[1] = static_cast<std::byte>(rng.next() & 0xbb);  // below 1
    } else if (type == ElementType::kMXFP4) {
      block[0] = static_cast<std::byte>(rng.between(118, 124));
    }
    for (const size_t offset : scale_offsets(type)) {
      const auto half = static_cast<uint16_t>(rng.between(0x1800, 0x2800) | (rng.next() & 0x8000));
      std::memcpy(block + offset, &half, 2);
    }
  }
  tensor.view = {type, shape, tensor.bytes};
  return tensor;
}

struct OwnedAffine {
  OwnedTensor packed, scales, biases;
  AffineView view;
};

inline OwnedAffine random_affine(AffineFormat format, ElementType side, uint64_t rows,
                                 uint64_t columns, Rng& rng) {
  OwnedAffine affine;
  affine.packed = random_tensor(ElementType::kU32, rows, columns * format.bits / 32, rng, true);
  affine.scales = random_tensor(side, rows, columns / format.group, rng);
  affine.biases = random_tensor(side, rows, columns / format.group, rng);
  affine.view = *AffineView::of(affine.packed.view, affine.scales.view, affine.biases.view, format);
  return affine;
}

}  // namespace skein
