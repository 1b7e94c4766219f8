// Any bytes as a GGUF file: parse them, then use everything that a parsed file offers.
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "format/gguf.h"
#include "tensor/dequantize.h"

namespace {

using namespace skein;

void use_metadata(const gguf::Metadata& metadata) {
  size_t used = 0;
  for (const gguf::Value& value : metadata.values()) {
    SKEIN_CHECK(metadata.find(value.key) == &value, "a key is not found");
    if (const auto text = metadata.get<std::string_view>(value.key); text.ok())
      used += text->size();
    if (const auto texts = metadata.get<gguf::StringArray>(value.key); texts.ok()) {
      for (const std::string_view text : *texts) used += text.size() + (text.empty() ? 0 : text[0]);
    }
    if (const auto numbers = metadata.get<gguf::IntArray>(value.key); numbers.ok()) {
      used += numbers->to_vector<int64_t>().size();
    }
    if (const auto numbers = metadata.get<gguf::FloatArray>(value.key); numbers.ok()) {
      used += numbers->to_vector<float>().size();
    }
    used += metadata.get<bool>(value.key).ok() + metadata.get<uint32_t>(value.key).ok() +
            metadata.get<int64_t>(value.key).ok() + metadata.get<float>(value.key).ok();
  }
  volatile size_t sink = used;
  (void)sink;
}

void use_tensor(const NamedTensor& tensor) {
  const TensorView& view = tensor.view;
  SKEIN_CHECK(checked_byte_size(view.type, view.shape).value() == view.bytes.size(),
              "a tensor's bytes are not what its shape needs");
  if (!can_dequantize(view.type)) return;
  for (const uint64_t row : {uint64_t{0}, view.rows() - 1}) {
    std::vector<float> values(view.shape.columns());
    dequantize(view.type, view.row(row), values);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = gguf::parse_gguf(std::as_bytes(std::span(data, size)));
  if (!file.ok()) {
    SKEIN_CHECK(!file.message().empty(), "a fault without a reason");
    return 0;
  }
  use_metadata(file->metadata);
  for (const NamedTensor& tensor : file->tensors) use_tensor(tensor);
  return 0;
}
