// Activations on the device: the functions of arithmetic.h.
#pragma once

#include "backend/arithmetic.h"
#include "backend/op_params.h"

namespace skein::cuda {

// Of gates, in place; no code of another kind is between two of them.
template <uint32_t kCount>
__device__ inline void activate(const ActivationParams& params, float (&gate)[kCount],
                                const float (&up)[kCount]) {
  const auto each = [&](const auto& fn) {
#pragma unroll
    for (uint32_t i = 0; i < kCount; ++i) gate[i] = fn(gate[i], up[i]);
  };
  switch (params.kind) {
    case Activation::kSiluGated:
      return each([](float g, float u) { return arithmetic::silu(g) * u; });
    case Activation::kGeluTanhGated:
      return each([](float g, float u) { return arithmetic::gelu_tanh(g) * u; });
    case Activation::kGeluTanh:
      return each([](float g, float) { return arithmetic::gelu_tanh(g); });
    case Activation::kGelu:
      return each([](float g, float) { return arithmetic::gelu(g); });
    case Activation::kSwigluClamped:
      return each([&](float g, float u) {
        g = arithmetic::smaller(params.limit, g);
        u = arithmetic::larger(-params.limit, arithmetic::smaller(params.limit, u));
        return (g * arithmetic::sigmoid(params.alpha * g)) * (u + 1.0F);
      });
  }
}

}  // namespace skein::cuda
