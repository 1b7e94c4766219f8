// The types of a tensor's elements. They and their block sizes come from quant/formats.def.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace skein {

enum class ElementType : uint8_t {
#define SKEIN_QUANT(name, id, elements, bytes, dequantizer) k##name,
#define SKEIN_STORAGE(name, id, bytes) k##name,
#include "tensor/quant/formats.def"
};

inline constexpr ElementType kElementTypes[] = {
#define SKEIN_QUANT(name, id, elements, bytes, dequantizer) ElementType::k##name,
#define SKEIN_STORAGE(name, id, bytes) ElementType::k##name,
#include "tensor/quant/formats.def"
};

inline constexpr uint32_t kNoGgufId = UINT32_MAX;

// Elements are stored in blocks of `block_elements` that take `block_bytes` each; for unquantized
// types a block is one element. Neither is ever zero.
struct ElementTypeInfo {
  std::string_view name;  // as GGUF spells it: "Q4_K"
  uint32_t gguf_id;       // kNoGgufId for types that only safetensors has
  uint32_t block_elements;
  uint32_t block_bytes;

  bool quantized() const { return block_elements > 1; }
};

const ElementTypeInfo& info(ElementType type);

// nullopt for ids that GGUF has retired, ids of types that skein does not read, and nonsense alike.
std::optional<ElementType> element_type_of_gguf_id(uint32_t id);

// By name, as formats.def spells it.
std::optional<ElementType> element_type_of_name(std::string_view name);

}  // namespace skein
