// Any bytes as a safetensors file: parse them, then use every tensor; three that could be the parts
// of a matrix of MLX are put together.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "format/safetensors.h"
#include "tensor/dequantize.h"
#include "tensor/quant/affine.h"

namespace {

using namespace skein;

void use_tensor(const NamedTensor& tensor) {
  const TensorView& view = tensor.view;
  SKEIN_CHECK(checked_byte_size(view.type, view.shape).value() == view.bytes.size(),
              "a tensor's bytes are not what its shape needs");
  if (!can_dequantize(view.type) || view.rows() == 0) return;
  std::vector<float> values(view.shape.columns());
  dequantize(view.type, view.row(view.rows() - 1), values);
}

void use_as_matrix(std::span<const NamedTensor> tensors) {
  for (const uint32_t bits : {4U, 8U}) {
    const auto matrix =
        AffineView::of(tensors[0].view, tensors[1].view, tensors[2].view, {bits, 32});
    if (!matrix.ok() || matrix->packed().rows() == 0) continue;
    std::vector<float> values(matrix->shape().columns());
    matrix->dequantize_row(matrix->packed().rows() - 1, values);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tensors = parse_safetensors(std::as_bytes(std::span(data, size)));
  if (!tensors.ok()) {
    SKEIN_CHECK(!tensors.message().empty(), "a fault without a reason");
    return 0;
  }
  SKEIN_CHECK(
      std::is_sorted(tensors->begin(), tensors->end(),
                     [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; }),
      "the tensors are not sorted");
  for (const NamedTensor& tensor : *tensors) use_tensor(tensor);
  if (tensors->size() >= 3) use_as_matrix(*tensors);
  return 0;
}
