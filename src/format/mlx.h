// MLX's quantized folders: config.json says `"quantization": {"bits": 4, "group_size": 64}`, and a
// quantized module is three tensors, NAME.weight (packed U32), NAME.scales and NAME.biases. A
// module may have an entry of its own in `quantization`, with its bits and group_size.
#pragma once

#include <optional>
#include <string_view>

#include "base/status.h"
#include "tensor/quant/affine.h"

namespace skein {

class WeightSource;

// nullopt when `module` has no .scales, or the weights are not packed U32.
Result<std::optional<AffineView>> mlx_matrix(const WeightSource& source, std::string_view module);

// That every module with .scales is whole.
Status check_mlx(const WeightSource& source);

}  // namespace skein
