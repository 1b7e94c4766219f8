#include "format/mlx.h"

#include <fmt/format.h>
#include <string>

#include "format/quote.h"
#include "format/weight_source.h"

namespace skein {
namespace {

constexpr std::string_view kScales = ".scales";

Result<uint32_t> small_number(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_unsigned() || it->get<uint64_t>() > UINT32_MAX) {
    return invalid_argument("quantization has no whole number '{}'", key);
  }
  return it->get<uint32_t>();
}

Result<AffineFormat> format_of(const WeightSource& source, std::string_view module) {
  const Json& config = source.documents().config;
  const auto quantization = config.find("quantization");
  if (quantization == config.end() || !quantization->is_object()) {
    return invalid_argument("has no object 'quantization', and module {} is quantized",
                            in_quotes(module));
  }
  const auto own = quantization->find(module);
  const Json& entry = own != quantization->end() && own->is_object() ? *own : *quantization;
  if (const auto mode = entry.find("mode"); mode != entry.end() && *mode != "affine") {
    return unimplemented("quantization mode {}; only affine is read",
                         mode->is_string() ? in_quotes(mode->get_ref<const std::string&>())
                                           : std::string(mode->type_name()));
  }
  AffineFormat format;
  SKEIN_ASSIGN(format.bits, small_number(entry, "bits"));
  SKEIN_ASSIGN(format.group, small_number(entry, "group_size"));
  return format;
}

}  // namespace

Result<std::optional<AffineView>> mlx_matrix(const WeightSource& source, std::string_view module) {
  const NamedTensor* packed = source.find(fmt::format("{}.weight", module));
  const NamedTensor* scales = source.find(fmt::format("{}{}", module, kScales));
  if (packed == nullptr || scales == nullptr || packed->view.type != ElementType::kU32) {
    return std::optional<AffineView>();
  }
  SKEIN_ASSIGN(const TensorView biases, source.get(fmt::format("{}.biases", module)));
  auto format = format_of(source, module);
  if (!format.ok()) {
    return Status(format.status().code(),
                  fmt::format("{}/config.json: {}", source.path(), format.message()));
  }
  auto view = AffineView::of(packed->view, scales->view, biases, *format);
  if (!view.ok()) {
    return Status(view.status().code(), fmt::format("{}: tensor {}: {}", source.path(),
                                                    in_quotes(packed->name), view.message()));
  }
  return std::optional(std::move(view).value());
}

Status check_mlx(const WeightSource& source) {
  for (const NamedTensor& tensor : source.tensors()) {
    if (!tensor.name.ends_with(kScales)) continue;
    const std::string_view name = tensor.name;
    SKEIN_TRY(mlx_matrix(source, name.substr(0, name.size() - kScales.size())).status());
  }
  return ok_status();
}

}  // namespace skein
