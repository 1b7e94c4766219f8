#include "apps/dummy_model.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <unistd.h>
#include <vector>

#include "base/rng.h"
#include "format/gguf_metadata.h"
#include "format/hf_documents.h"
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

struct DummyTensor {
  std::string name;
  ElementType type;
  std::vector<uint64_t> shape;  // outermost first

  uint64_t bytes() const {
    uint64_t elements = 1;
    for (const uint64_t dim : shape) elements *= dim;
    return elements / info(type).block_elements * info(type).block_bytes;
  }
};

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
  constexpr char kZeros[kGgufAlignment] = {};
  file.write(kZeros, static_cast<std::streamsize>(aligned(bytes) - bytes));
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

TemporaryFile::~TemporaryFile() {
  if (file_ >= 0) ::close(file_);
}

std::string TemporaryFile::path() const {
  return fmt::format("/proc/self/fd/{}", file_);
}

Result<TemporaryFile> write_dummy_model(const std::string& config, const std::string& quant) {
  const auto type = element_type_of_name(quant);
  if (!type || info(*type).gguf_id == kNoGgufId) {
    return invalid_argument("'{}' is no quantization; docs/MODELS.md lists them", quant);
  }
  SKEIN_ASSIGN(const Json document, load_json_object(config, kMaxDocumentBytes));
  auto description = describe_config(document, {});
  if (!description.ok()) {
    return Status(description.status().code(),
                  fmt::format("{}: {}", config, description.message()));
  }
  SKEIN_ASSIGN(const std::string_view architecture, architecture_of(description->spec.family));
  const std::vector<DummyTensor> tensors = DummyTensors(*description, *type).take();
  SKEIN_ASSIGN(TemporaryFile file, TemporaryFile::create());
  std::ofstream out(file.path(), std::ios::binary);
  const std::string header = header_of(metadata_of(description->spec, architecture), tensors);
  out.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const DummyTensor& tensor : tensors) write_tensor(out, tensor);
  out.close();
  if (!out) return resource_exhausted("no room for {} of random weights", config);
  return file;
}

}  // namespace skein::apps
