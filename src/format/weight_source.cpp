#include "format/weight_source.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/status.h"
#include "format/gguf.h"
#include "format/quote.h"
#include "format/safetensors.h"
#include "tensor/quant/affine.h"

namespace skein {
namespace {

// MLX's quantized folders: config.json says `"quantization": {"bits": 4, "group_size": 64}`, and a
// quantized module is three tensors, NAME.weight (packed U32), NAME.scales and NAME.biases. A
// module may have an entry of its own in `quantization`, with its bits and group_size.
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

// nullopt when `module` has no .scales, or the weights are not packed U32.
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

// That every module with .scales is whole.
Status check_mlx(const WeightSource& source) {
  for (const NamedTensor& tensor : source.tensors()) {
    if (!tensor.name.ends_with(kScales)) continue;
    const std::string_view name = tensor.name;
    SKEIN_TRY(mlx_matrix(source, name.substr(0, name.size() - kScales.size())).status());
  }
  return ok_status();
}

// tokenizer_config.json holds a string, or a list of {"name": ..., "template": ...}.
Result<std::optional<std::string_view>> template_of_config(const Json& config,
                                                           std::string_view name) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::optional<std::string_view>();
  if (found->is_string()) {
    if (!name.empty()) return std::optional<std::string_view>();
    return std::optional<std::string_view>(found->get_ref<const std::string&>());
  }
  if (!found->is_array()) {
    return invalid_argument("tokenizer_config.json: chat_template is a {}, not a string or a list",
                            found->type_name());
  }
  const std::string_view wanted = name.empty() ? "default" : name;
  for (const Json& entry : *found) {
    const bool sound = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                       entry.contains("template") && entry["template"].is_string();
    if (!sound) {
      return invalid_argument(
          "tokenizer_config.json: an entry of chat_template is not {{\"name\": ..., "
          "\"template\": ...}}");
    }
    if (entry["name"].get_ref<const std::string&>() == wanted) {
      return std::optional<std::string_view>(entry["template"].get_ref<const std::string&>());
    }
  }
  return std::optional<std::string_view>();
}

constexpr uint32_t kMaxParts = 1024;

Status in_file(const std::string& path, const Status& status) {
  return {status.code(), fmt::format("{}: {}", path, status.message())};
}

struct Part {
  MappedFile file;
  gguf::GgufFile gguf;
};

Result<Part> open_part(const std::string& path) {
  SKEIN_ASSIGN(MappedFile file, MappedFile::open(path));
  auto parsed = gguf::parse_gguf(file.bytes());
  if (!parsed.ok()) return in_file(path, parsed.status());
  return Part{std::move(file), std::move(parsed).value()};
}

struct SplitKeys {
  uint32_t number = 0, count = 1;     // of this part (from 0), of parts
  std::optional<uint64_t> tensors{};  // of all parts together
};

Result<SplitKeys> read_split_keys(const gguf::Metadata& metadata) {
  SplitKeys keys;
  SKEIN_ASSIGN(keys.count, metadata.get_or<uint32_t>("split.count", 1));
  if (keys.count <= 1) return SplitKeys{};
  if (keys.count > kMaxParts) {
    return out_of_range("key 'split.count' is {}, at most {}", keys.count, kMaxParts);
  }
  SKEIN_ASSIGN(keys.number, metadata.get<uint32_t>("split.no"));
  if (metadata.has("split.tensors.count")) {
    SKEIN_ASSIGN(keys.tensors, metadata.get<uint64_t>("split.tensors.count"));
  }
  return keys;
}

std::string part_suffix(uint32_t number, uint32_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number + 1, count);
}

// The beginning that the paths of all parts share, from the path of one of them.
Result<std::string> split_prefix(const std::string& path, const SplitKeys& keys) {
  const std::string suffix = part_suffix(keys.number, keys.count);
  if (!path.ends_with(suffix)) {
    return invalid_argument("{}: is part {} of {}, so its name must end with '{}'", path,
                            keys.number + 1, keys.count, suffix);
  }
  return path.substr(0, path.size() - suffix.size());
}

Result<Part> open_numbered_part(const std::string& prefix, uint32_t number,
                                const SplitKeys& split) {
  const std::string path = prefix + part_suffix(number, split.count);
  SKEIN_ASSIGN(Part part, open_part(path));
  auto keys = read_split_keys(part.gguf.metadata);
  if (!keys.ok()) return in_file(path, keys.status());
  if (keys->number != number || keys->count != split.count) {
    return invalid_argument("{}: says that it is part {} of {}", path, keys->number + 1,
                            keys->count);
  }
  return part;
}

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = size_t{64} << 20;
constexpr size_t kMaxShards = 4096;

struct Shard {
  MappedFile file;
  std::vector<NamedTensor> tensors;  // sorted by name
};

Result<Shard> open_shard(const std::string& path) {
  SKEIN_ASSIGN(MappedFile file, MappedFile::open(path));
  auto tensors = parse_safetensors(file.bytes());
  if (!tensors.ok()) {
    return Status(tensors.status().code(), fmt::format("{}: {}", path, tensors.message()));
  }
  return Shard{std::move(file), std::move(tensors).value()};
}

// A shard is a file of the folder itself: a plain name that leads nowhere else.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos &&
         name.ends_with(".safetensors");
}

// Shard's file name -> the tensors that the index expects in it.
using ShardMap = std::map<std::string, std::vector<std::string>>;

Result<ShardMap> read_index(const std::string& path) {
  SKEIN_ASSIGN(const Json index, load_json_object(path, kMaxIndexBytes));
  const auto weights = index.find("weight_map");
  if (weights == index.end() || !weights->is_object()) {
    return invalid_argument("{}: has no object 'weight_map'", path);
  }
  ShardMap shards;
  for (const auto& [tensor, file] : weights->items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>())) {
      return invalid_argument(
          "{}: tensor {} is in {}, which is not a .safetensors file of the folder", path,
          in_quotes(tensor),
          file.is_string() ? in_quotes(file.get_ref<const std::string&>())
                           : std::string("a ") + file.type_name());
    }
    shards[file.get<std::string>()].push_back(tensor);
    if (shards.size() > kMaxShards) return out_of_range("{}: over {} shards", path, kMaxShards);
  }
  if (shards.empty()) return invalid_argument("{}: 'weight_map' is empty", path);
  return shards;
}

Status check_shard(const Shard& shard, const std::vector<std::string>& expected) {
  for (const std::string& name : expected) {
    const bool there = std::binary_search(
        shard.tensors.begin(), shard.tensors.end(), NamedTensor{name, {}},
        [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
    if (!there) {
      return data_loss("{}: tensor {} is missing, which {} says is here", shard.file.path(),
                       in_quotes(name), kIndex);
    }
  }
  return ok_status();
}

Result<std::vector<Shard>> open_shards(const std::string& folder) {
  std::vector<Shard> shards;
  auto single = open_shard(fmt::format("{}/{}", folder, kSingle));
  if (single.ok()) {
    shards.push_back(std::move(single).value());
    return shards;
  }
  if (single.status().code() != Code::kNotFound) return single.status();
  auto index = read_index(fmt::format("{}/{}", folder, kIndex));
  if (!index.ok()) {
    if (index.status().code() != Code::kNotFound) return index.status();
    return not_found("{}: has neither {} nor {}", folder, kSingle, kIndex);
  }
  for (const auto& [name, expected] : *index) {
    SKEIN_ASSIGN(Shard shard, open_shard(fmt::format("{}/{}", folder, name)));
    SKEIN_TRY(check_shard(shard, expected));
    shards.push_back(std::move(shard));
  }
  return shards;
}

}  // namespace

const NamedTensor* WeightSource::find(std::string_view name) const {
  const auto it =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const NamedTensor& t, std::string_view n) { return t.name < n; });
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

Result<TensorView> WeightSource::get(std::string_view name) const {
  const NamedTensor* tensor = find(name);
  if (tensor == nullptr) return not_found("{}: tensor {} is missing", path_, in_quotes(name));
  return tensor->view;
}

Result<std::optional<std::string_view>> WeightSource::chat_template(std::string_view name) const {
  if (kind_ == SourceKind::kGguf) {
    const std::string key =
        name.empty() ? "tokenizer.chat_template" : fmt::format("tokenizer.chat_template.{}", name);
    if (!metadata_.has(key)) return std::optional<std::string_view>();
    SKEIN_ASSIGN(const std::string_view text, metadata_.get<std::string_view>(key));
    return std::optional(text);
  }
  if (name.empty() && documents_.chat_template) {
    return std::optional<std::string_view>(*documents_.chat_template);
  }
  return template_of_config(documents_.tokenizer_config, name);
}

Result<std::optional<AffineView>> WeightSource::affine(std::string_view module) const {
  return mlx_matrix(*this, module);
}

void WeightSource::release(std::span<const std::byte> bytes) const {
  for (const MappedFile& file : files_) file.advise(MappedFile::Advice::kDontNeed, bytes);
}

void WeightSource::release() const {
  for (const MappedFile& file : files_) file.advise(MappedFile::Advice::kDontNeed, file.bytes());
}

Status WeightSource::check_unchanged() const {
  for (const MappedFile& file : files_) SKEIN_TRY(file.check_unchanged());
  if (documents_.tokenizer_file) SKEIN_TRY(documents_.tokenizer_file->check_unchanged());
  return ok_status();
}

Status WeightSource::set_tensors(std::vector<NamedTensor> tensors) {
  tensors_ = std::move(tensors);
  std::sort(tensors_.begin(), tensors_.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(
      tensors_.begin(), tensors_.end(),
      [](const NamedTensor& a, const NamedTensor& b) { return a.name == b.name; });
  if (twice == tensors_.end()) return ok_status();
  return invalid_argument("{}: tensor {} is in two of its files", path_, in_quotes(twice->name));
}

Result<WeightSource> open_model(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error) ? open_hf_folder(path) : open_gguf(path);
}

// GGUF files as a WeightSource: one file, or the parts NAME-00001-of-000NN.gguf of a split one.
Result<WeightSource> open_gguf(const std::string& path) {
  WeightSource source;
  source.kind_ = SourceKind::kGguf;
  source.path_ = path;
  SKEIN_ASSIGN(Part given, open_part(path));
  auto split = read_split_keys(given.gguf.metadata);
  if (!split.ok()) return in_file(path, split.status());
  std::vector<Part> parts;
  if (split->count == 1) {
    parts.push_back(std::move(given));
  } else {
    SKEIN_ASSIGN(const std::string prefix, split_prefix(path, *split));
    for (uint32_t i = 0; i < split->count; ++i) {
      SKEIN_ASSIGN(Part part, open_numbered_part(prefix, i, *split));
      parts.push_back(std::move(part));
    }
  }
  std::vector<NamedTensor> tensors;
  for (Part& part : parts) {
    std::move(part.gguf.tensors.begin(), part.gguf.tensors.end(), std::back_inserter(tensors));
    source.files_.push_back(std::move(part.file));
  }
  if (split->tensors && *split->tensors != tensors.size()) {
    return data_loss("{}: key 'split.tensors.count' is {}, the {} parts have {} tensors", path,
                     *split->tensors, split->count, tensors.size());
  }
  source.metadata_ = std::move(parts.front().gguf.metadata);
  SKEIN_TRY(source.set_tensors(std::move(tensors)));
  SKEIN_TRY(source.check_unchanged());
  return source;
}

// Hugging Face folders as a WeightSource: model.safetensors, or the shards that
// model.safetensors.index.json names.
Result<WeightSource> open_hf_folder(const std::string& path) {
  WeightSource source;
  source.kind_ = SourceKind::kHuggingFace;
  source.path_ = path;
  SKEIN_ASSIGN(source.documents_, load_documents(path));
  SKEIN_ASSIGN(std::vector<Shard> shards, open_shards(path));
  std::vector<NamedTensor> tensors;
  for (Shard& shard : shards) {
    std::move(shard.tensors.begin(), shard.tensors.end(), std::back_inserter(tensors));
    source.files_.push_back(std::move(shard.file));
  }
  SKEIN_TRY(source.set_tensors(std::move(tensors)));
  SKEIN_TRY(check_mlx(source));
  SKEIN_TRY(source.check_unchanged());
  return source;
}

}  // namespace skein
