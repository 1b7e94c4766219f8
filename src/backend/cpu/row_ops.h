// Ops on single rows, from the terms of backend.h to those of the kernels.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/kernel_table.h"
#include "backend/host/memory.h"

namespace skein::cpu {

inline void norm_row(const KernelTable& kernels, const NormParams& params, const float* x,
                     size_t width, float* out) {
  const size_t part_width = width / params.parts;
  const float *const weight = raw(params.weight), *const bias = raw(params.bias);
  for (size_t part = 0; part < params.parts; ++part) {
    const size_t offset = part * part_width, own_offset = params.weight_per_part ? offset : 0;
    kernels.norm({params.kind == NormKind::kRms ? RowNorm::kRms : RowNorm::kLayer, x + offset,
                  part_width, params.epsilon, weight == nullptr ? nullptr : weight + own_offset,
                  bias == nullptr ? nullptr : bias + own_offset, out + offset});
  }
}

inline RowActivation row_activation(Activation kind) {
  switch (kind) {
    case Activation::kSiluGated:
      return RowActivation::kSilu;
    case Activation::kGeluTanhGated:
      return RowActivation::kGeluTanh;
    case Activation::kGeluTanh:
      return RowActivation::kGeluTanhPlain;
    case Activation::kGelu:
      return RowActivation::kGelu;
    case Activation::kSwigluClamped:
      return RowActivation::kSwigluClamped;
  }
  return RowActivation::kSilu;
}

// `width` is that of the result.
inline void activate_row(const KernelTable& kernels, const ActivationParams& params, const float* x,
                         size_t width, float* out) {
  kernels.activate({row_activation(params.kind), x, params.gated() ? x + width : nullptr, width,
                    params.alpha, params.limit, out});
}

// Turns the first angles.width elements of each head of a row; `angles` is [cos | sin].
inline void rotate_row(const KernelTable& kernels, RopeLayout layout, const float* angles,
                       size_t angles_width, uint32_t heads, size_t head_dim, float* x) {
  const auto turn = layout == RopeLayout::kHalves ? kernels.rotate_halves : kernels.rotate_pairs;
  const size_t half = angles_width / 2;
  for (size_t h = 0; h < heads; ++h) turn(x + h * head_dim, angles, angles + half, half);
}

}  // namespace skein::cpu
