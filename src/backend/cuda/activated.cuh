// Activations on the device: the functions of arithmetic.h.
#pragma once

#include "backend/arithmetic.h"
#include "backend/op_params.h"

namespace skein::cuda {

__device__ inline float activated(const ActivationParams& params, float gate, float up) {
  switch (params.kind) {
    case Activation::kSiluGated:
      return arithmetic::silu(gate) * up;
    case Activation::kGeluTanhGated:
      return arithmetic::gelu_tanh(gate) * up;
    case Activation::kGeluTanh:
      return arithmetic::gelu_tanh(gate);
    case Activation::kGelu:
      return arithmetic::gelu(gate);
    case Activation::kSwigluClamped:
      gate = arithmetic::smaller(params.limit, gate);
      up = arithmetic::larger(-params.limit, arithmetic::smaller(params.limit, up));
      return (gate * arithmetic::sigmoid(params.alpha * gate)) * (up + 1.0F);
  }
  return 0;
}

}  // namespace skein::cuda
