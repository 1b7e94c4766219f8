#include "tensor/dequantize.h"

#include "tensor/quant/float.h"
#include "tensor/quant/k_quants.h"
#include "tensor/quant/legacy.h"
#include "tensor/quant/table4.h"

namespace skein {
namespace {

using Dequantizer = void (*)(const std::byte* blocks, size_t elements, float* out);

constexpr Dequantizer kDequantizers[] = {
#define SKEIN_QUANT(name, id, elements, bytes, dequantizer) dequantizer,
#define SKEIN_STORAGE(name, id, bytes) nullptr,
#include "tensor/quant/formats.def"
};

}  // namespace

bool can_dequantize(ElementType type) {
  return kDequantizers[static_cast<size_t>(type)] != nullptr;
}

void dequantize(ElementType type, std::span<const std::byte> bytes, std::span<float> out) {
  const ElementTypeInfo& element = info(type);
  SKEIN_CHECK(can_dequantize(type), "{} has no float values", element.name);
  SKEIN_CHECK(bytes.size() % element.block_bytes == 0 &&
                  bytes.size() / element.block_bytes * element.block_elements == out.size(),
              "{} bytes of {} for {} values", bytes.size(), element.name, out.size());
  kDequantizers[static_cast<size_t>(type)](bytes.data(), out.size(), out.data());
}

float element(const TensorView& tensor, uint64_t index) {
  const size_t size = info(tensor.type).block_bytes;
  float value = 0;
  dequantize(tensor.type, tensor.bytes.subspan(index * size, size), {&value, 1});
  return value;
}

}  // namespace skein
