#include "apps/dummy_model.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <sys/mman.h>
#include <unistd.h>

#include "base/rng.h"
#include "format/gguf_metadata.h"
#include "format/hf_documents.h"
#include "format/json.h"
#include "model/families/family.h"
#include "tensor/element_type.h"
#include "tensor/quant/scale_offsets.h"

namespace skein::apps {
namespace {

constexpr uint64_t kGgufAlignment = 32;
constexpr size_t kPatternBlocks = 8192;  // random blocks, repeated over a tensor

// GGUF's name for a family whose layout is the common one.
Result<std::string_view> architecture_of(const std::string& family) {
  constexpr std::pair<std::string_view, std::string_view> kKnown[] = {
      {"llama", "llama"}, {"mistral", "llama"}, {"mixtral", "llama"},
      {"qwen2", "qwen2"}, {"qwen3", "qwen3"},   {"qwen3_moe", "qwen3moe"}};
  for (const auto& [name, architecture] : kKnown) {
    if (family == name) return architecture;
  }
  return unimplemented(
      "random weights are made for llama, mistral, mixtral, qwen2, qwen3 and qwen3_moe, not for "
      "'{}'",
      family);
}

std::vector<std::byte> random_blocks(ElementType type, size_t count, uint64_t seed) {
  const size_t size = info(type).block_bytes;
  std::vector<std::byte> out(size * count);
  Rng rng(seed);
  for (std::byte& byte : out) byte = static_cast<std::byte>(rng.next());
  for (size_t block = 0; block < count; ++block) {
    std::byte* const at = out.data() + block * size;
    const auto noise = static_cast<uint16_t>(rng.below(0x400) | (rng.next() & 0x8000));
    const auto half = static_cast<uint16_t>(0x1c00 + noise);  // 2^-8 to 2^-7, either sign
    for (const size_t offset : scale_offsets(type)) std::memcpy(at + offset, &half, sizeof half);
    if (type == ElementType::kF16) std::memcpy(at, &half, sizeof half);
    if (type == ElementType::kMXFP4) at[0] = std::byte{118};
    if (type == ElementType::kBF16) {
      const auto bits = static_cast<uint16_t>(0x3c00 + (noise & 0x80ff));
      std::memcpy(at, &bits, sizeof bits);
    }
    if (type == ElementType::kF32) {
      const float value = static_cast<float>(static_cast<int>(noise & 0x3ff) - 512) * 0x1p-15F;
      std::memcpy(at, &value, sizeof value);
    }
  }
  return out;
}

double bits_of(ElementType type) {
  return 8.0 * info(type).block_bytes / info(type).block_elements;
}

// The tensors that the decoder of a spec asks for, by GGUF's names.
class DummyTensors {
 public:
  DummyTensors(const ModelDescription& description, ElementType quant)
      : spec_(description.spec), quant_(quant) {
    const bool qkv_bias = description.names.qkv.bias == Bias::kRequired;
    table(names_.embedding);
    if (!spec_.tied_head) table(names_.head);
    norm(names_.final_norm, 0, spec_.hidden);
    for (uint32_t layer = 0; layer < spec_.layers.size(); ++layer) {
      norm(names_.attention_norm, layer, spec_.hidden);
      norm(names_.ffn_norm, layer, spec_.hidden);
      if (spec_.qk_norm == QkNorm::kPerHead) {
        norm(names_.q_norm, layer, spec_.head_dim);
        norm(names_.k_norm, layer, spec_.head_dim);
      }
      const uint64_t widths[] = {spec_.q_width(), spec_.kv_width(), spec_.kv_width()};
      for (size_t i = 0; i < 3; ++i) {
        matrix(names_.qkv.modules[i], layer, {widths[i], spec_.hidden});
        if (qkv_bias) vector(expand(names_.qkv.modules[i], layer) + ".bias", widths[i]);
      }
      matrix(names_.o.modules[0], layer, {spec_.hidden, spec_.q_width()});
      feed_forward(layer);
    }
  }
  std::vector<DummyTensor> take() { return std::move(tensors_); }

 private:
  void feed_forward(uint32_t layer) {
    if (!spec_.layers[layer].experts) {
      for (const std::string& module : names_.gate_up.modules) {
        matrix(module, layer, {spec_.ffn, spec_.hidden});
      }
      matrix(names_.down.modules[0], layer, {spec_.hidden, spec_.ffn});
      return;
    }
    const uint64_t count = spec_.experts->count, ffn = spec_.experts->ffn;
    add(expand(names_.router.modules[0], layer) + ".weight", ElementType::kF32,
        {count, spec_.hidden});
    for (const std::string& module : names_.experts.gate_up) {
      matrix(module, layer, {count, ffn, spec_.hidden});
    }
    matrix(names_.experts.down, layer, {count, spec_.hidden, ffn});
  }
  ElementType fitting(ElementType wanted, uint64_t columns) const {
    for (const ElementType type : {wanted, ElementType::kQ8_0}) {
      if (columns % info(type).block_elements == 0) return type;
    }
    return ElementType::kF16;
  }
  void matrix(const std::string& module, uint32_t layer, std::vector<uint64_t> shape) {
    const ElementType type = fitting(quant_, shape.back());
    add(expand(module, layer) + ".weight", type, std::move(shape));
  }
  void table(const std::string& module) {
    const ElementType better = fitting(ElementType::kQ6_K, spec_.hidden);
    const ElementType own = fitting(quant_, spec_.hidden);
    add(module + ".weight", bits_of(better) > bits_of(own) ? better : own,
        {spec_.vocab, spec_.hidden});
  }
  void norm(const std::string& module, uint32_t layer, uint64_t size) {
    vector(expand(module, layer) + ".weight", size);
  }
  void vector(std::string name, uint64_t size) { add(std::move(name), ElementType::kF32, {size}); }
  void add(std::string name, ElementType type, std::vector<uint64_t> shape) {
    tensors_.push_back({std::move(name), type, std::move(shape)});
  }

  const ModelSpec& spec_;
  const ElementType quant_;
  const TensorNames names_ = gguf_names();
  std::vector<DummyTensor> tensors_;
};

// The header of a GGUF file, grown value by value.
class GgufHeader {
 public:
  template <class T>
  void number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void string(std::string_view text) {
    number<uint64_t>(text.size());
    bytes_.append(text);
  }
  void pair(const std::string& key, std::string_view value) {
    begin(key, gguf::ValueType::kString);
    string(value);
  }
  void pair(const std::string& key, uint32_t value) {
    begin(key, gguf::ValueType::kUint32);
    number(value);
  }
  void pair(const std::string& key, float value) {
    begin(key, gguf::ValueType::kFloat32);
    number(value);
  }
  uint64_t pairs() const { return pairs_; }
  std::string& bytes() { return bytes_; }

 private:
  void begin(const std::string& key, gguf::ValueType type) {
    ++pairs_;
    string(key);
    number(static_cast<uint32_t>(type));
  }
  std::string bytes_;
  uint64_t pairs_ = 0;
};

GgufHeader metadata_of(const ModelSpec& spec, std::string_view architecture) {
  GgufHeader header;
  const std::string prefix = std::string(architecture) + ".";
  header.pair("general.architecture", architecture);
  header.pair("general.name", std::string_view("random weights"));
  header.pair(prefix + "context_length", spec.context);
  header.pair(prefix + "block_count", static_cast<uint32_t>(spec.layers.size()));
  header.pair(prefix + "embedding_length", spec.hidden);
  header.pair(prefix + "feed_forward_length",
              std::max(spec.ffn, spec.experts ? spec.experts->ffn : 0U));
  header.pair(prefix + "attention.head_count", spec.heads);
  header.pair(prefix + "attention.head_count_kv", spec.kv_heads);
  header.pair(prefix + "attention.key_length", spec.head_dim);
  header.pair(prefix + "attention.value_length", spec.head_dim);
  header.pair(prefix + "attention.layer_norm_rms_epsilon", spec.norm_epsilon);
  if (spec.experts) {
    header.pair(prefix + "expert_count", spec.experts->count);
    header.pair(prefix + "expert_used_count", spec.experts->used);
    header.pair(prefix + "expert_feed_forward_length", spec.experts->ffn);
  }
  return header;
}

uint64_t aligned(uint64_t size) {
  return (size + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

std::string header_of(GgufHeader metadata, const std::vector<DummyTensor>& tensors) {
  GgufHeader out;
  out.bytes() = "GGUF";
  out.number<uint32_t>(3);
  out.number<uint64_t>(tensors.size());
  out.number<uint64_t>(metadata.pairs());
  out.bytes() += metadata.bytes();
  uint64_t offset = 0;
  for (const DummyTensor& tensor : tensors) {
    out.string(tensor.name);
    out.number<uint32_t>(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i > 0; --i) out.number(tensor.shape[i - 1]);
    out.number<uint32_t>(info(tensor.type).gguf_id);
    out.number<uint64_t>(offset);
    offset += aligned(tensor.bytes());
  }
  out.bytes().resize(aligned(out.bytes().size()));
  return std::move(out.bytes());
}

// Norms are one; everything else repeats a stretch of random blocks.
void write_tensor(std::ofstream& file, const DummyTensor& tensor) {
  const bool is_norm = tensor.name.ends_with("norm.weight");
  std::vector<std::byte> pattern;
  if (is_norm) {
    const std::vector<float> ones(tensor.shape[0], 1.0F);
    pattern.resize(ones.size() * sizeof(float));
    std::memcpy(pattern.data(), ones.data(), pattern.size());
  } else {
    pattern = random_blocks(tensor.type, kPatternBlocks, tensor.name.size() + tensor.bytes());
  }
  const uint64_t bytes = tensor.bytes();
  for (uint64_t at = 0; at < bytes; at += pattern.size()) {
    const uint64_t count = std::min<uint64_t>(pattern.size(), bytes - at);
    file.write(reinterpret_cast<const char*>(pattern.data()), static_cast<std::streamsize>(count));
  }
}

struct NamedShape {
  std::string_view name;
  std::string_view config;  // what a config.json says
};

// The shapes of models that are in use, by what is public of them.
constexpr NamedShape kShapes[] = {
    {"llama-135m", R"({"model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
      "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64,
      "vocab_size": 49152, "max_position_embeddings": 8192, "tie_word_embeddings": true})"},
    {"llama-1b", R"({"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
      "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
      "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": true})"},
    {"llama-8b", R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
      "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": false})"},
    {"llama-70b", R"({"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
      "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
      "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": false})"},
    {"mixtral-8x7b", R"({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
      "vocab_size": 32000, "max_position_embeddings": 32768, "tie_word_embeddings": false,
      "num_local_experts": 8, "num_experts_per_tok": 2})"},
    {"qwen3-30b-a3b", R"({"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
      "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
      "vocab_size": 151936, "max_position_embeddings": 40960, "tie_word_embeddings": false,
      "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
      "norm_topk_prob": true})"},
};

Result<Json> config_of_shape(const std::string& name) {
  std::string names;
  for (const NamedShape& shape : kShapes) {
    if (shape.name == name) {
      SKEIN_ASSIGN(Json config, parse_json(shape.config));
      config["rms_norm_eps"] = 1e-5;
      config["rope_theta"] = 500000.0;
      config["hidden_act"] = "silu";
      return config;
    }
    names.append(names.empty() ? "" : ", ").append(shape.name);
  }
  return not_found("'{}' is no shape; there are {}", name, names);
}

struct DummyFile {
  std::string header;
  std::vector<DummyTensor> tensors;
};

Result<DummyFile> file_of(const Json& config, const std::string& quant) {
  std::string name = quant;
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const auto type = element_type_of_name(name);
  if (!type || info(*type).gguf_id == kNoGgufId) {
    return invalid_argument("'{}' is no quantization; docs/MODELS.md lists them", quant);
  }
  SKEIN_ASSIGN(const ModelDescription description, describe_config(config, {}));
  SKEIN_ASSIGN(const std::string_view architecture, architecture_of(description.spec.family));
  std::vector<DummyTensor> tensors = DummyTensors(description, *type).take();
  std::string header = header_of(metadata_of(description.spec, architecture), tensors);
  return DummyFile{std::move(header), std::move(tensors)};
}

}  // namespace

Result<TemporaryFile> TemporaryFile::create() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (error) return unavailable("no folder for temporary files: {}", error.message());
  std::string path = folder / "skein-XXXXXX";
  const int file = ::mkstemp(path.data());
  if (file < 0) return unavailable("{}: {}", path, std::strerror(errno));
  ::unlink(path.c_str());
  return TemporaryFile(file);
}

Result<TemporaryFile> TemporaryFile::in_memory() {
  const int file = ::memfd_create("skein-weights", MFD_CLOEXEC);
  if (file < 0) return unavailable("a file in memory: {}", std::strerror(errno));
  return TemporaryFile(file);
}

TemporaryFile::~TemporaryFile() {
  if (file_ >= 0) ::close(file_);
}

std::string TemporaryFile::path() const {
  return fmt::format("/proc/self/fd/{}", file_);
}

uint64_t DummyTensor::bytes() const {
  uint64_t elements = 1;
  for (const uint64_t dim : shape) elements *= dim;
  return elements / info(type).block_elements * info(type).block_bytes;
}

Result<DummyModel> DummyModel::of_config(const std::string& config, const std::string& quant) {
  SKEIN_ASSIGN(const Json document, load_json_object(config, kMaxDocumentBytes));
  auto file = file_of(document, quant);
  if (!file.ok()) {
    return Status(file.status().code(), fmt::format("{}: {}", config, file.message()));
  }
  return DummyModel(std::move(file->header), std::move(file->tensors));
}

Result<DummyModel> DummyModel::of_shape(const std::string& name, const std::string& quant) {
  SKEIN_ASSIGN(const Json config, config_of_shape(name));
  SKEIN_ASSIGN(DummyFile file, file_of(config, quant));
  return DummyModel(std::move(file.header), std::move(file.tensors));
}

uint64_t DummyModel::bytes() const {
  uint64_t bytes = header_.size();
  for (const DummyTensor& tensor : tensors_) bytes += aligned(tensor.bytes());
  return bytes;
}

Status DummyModel::write(const TemporaryFile& file, bool matrices) const {
  // Opened for both, so that what was written stays.
  std::ofstream out(file.path(), std::ios::binary | std::ios::in | std::ios::out);
  if (!matrices) {
    if (::truncate(file.path().c_str(), static_cast<off_t>(bytes())) != 0) {
      return resource_exhausted("a file of {} bytes: {}", bytes(), std::strerror(errno));
    }
    out.write(header_.data(), static_cast<std::streamsize>(header_.size()));
  }
  uint64_t at = header_.size();
  for (const DummyTensor& tensor : tensors_) {
    out.seekp(static_cast<std::streamoff>(at));
    if (tensor.is_matrix() == matrices) write_tensor(out, tensor);
    at += aligned(tensor.bytes());
  }
  out.close();
  return out ? ok_status() : resource_exhausted("no room for {} bytes of random weights", bytes());
}

}  // namespace skein::apps
