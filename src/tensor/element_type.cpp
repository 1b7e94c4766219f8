#include "tensor/element_type.h"

#include <iterator>

namespace skein {
namespace {

constexpr ElementTypeInfo kTypes[] = {
#define SKEIN_QUANT(name, id, elements, bytes, dequantizer) {#name, id, elements, bytes},
#define SKEIN_STORAGE(name, id, bytes) {#name, id, 1, bytes},
#include "tensor/quant/formats.def"
};

template <class Matches>
std::optional<ElementType> find_type(Matches matches) {
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    if (matches(kTypes[i])) return static_cast<ElementType>(i);
  }
  return std::nullopt;
}

}  // namespace

const ElementTypeInfo& info(ElementType type) {
  return kTypes[static_cast<size_t>(type)];
}

std::optional<ElementType> element_type_of_gguf_id(uint32_t id) {
  if (id == kNoGgufId) return std::nullopt;
  return find_type([id](const ElementTypeInfo& type) { return type.gguf_id == id; });
}

std::optional<ElementType> element_type_of_name(std::string_view name) {
  return find_type([name](const ElementTypeInfo& type) { return type.name == name; });
}

}  // namespace skein
