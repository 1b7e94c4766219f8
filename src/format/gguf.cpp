#include "format/gguf.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <string_view>
#include <utility>

#include "format/byte_reader.h"
#include "format/quote.h"

namespace skein::gguf {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::string_view kSwappedMagic = "FUGG";
constexpr uint32_t kDefaultAlignment = 32;
constexpr uint32_t kMinAlignment = 8;

// The fewest bytes that an entry can take: what is claimed is held against what is there before
// anything is allocated.
constexpr uint64_t kMinValueBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;

Status about(std::string_view what, std::string_view name, const Status& status) {
  return {status.code(), fmt::format("{} {}: {}", what, in_quotes(name), status.message())};
}

Status about(std::string_view what, uint64_t index, const Status& status) {
  return {status.code(), fmt::format("{} {}: {}", what, index, status.message())};
}

bool starts_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

struct Header {
  uint32_t version = 0;
  uint64_t tensors = 0;
  uint64_t values = 0;
};

Status check_count(std::string_view what, uint64_t count, uint64_t limit, uint64_t room) {
  if (count > limit) return out_of_range("{} {} announced, at most {}", count, what, limit);
  if (count > room) return data_loss("{} {} announced, there is room for {}", count, what, room);
  return ok_status();
}

Result<Header> read_header(ByteReader& in, std::span<const std::byte> bytes) {
  if (starts_with(bytes, kSwappedMagic)) {
    return unimplemented("a big-endian GGUF file; only little-endian ones are read");
  }
  if (!starts_with(bytes, kMagic)) {
    return invalid_argument("not a GGUF file: it does not start with 'GGUF'");
  }
  SKEIN_TRY(in.take(kMagic.size()).status());
  Header header;
  SKEIN_ASSIGN(header.version, in.number<uint32_t>());
  if (header.version != 0 && (header.version & 0xffff) == 0) {
    return unimplemented("a big-endian GGUF file; only little-endian ones are read");
  }
  if (header.version != 2 && header.version != 3) {
    return unimplemented("GGUF version {}; versions 2 and 3 are read", header.version);
  }
  SKEIN_ASSIGN(header.tensors, in.number<uint64_t>());
  SKEIN_ASSIGN(header.values, in.number<uint64_t>());
  SKEIN_TRY(check_count("keys", header.values, kMaxKeys, in.remaining() / kMinValueBytes));
  SKEIN_TRY(check_count("tensors", header.tensors, kMaxTensors, in.remaining() / kMinTensorBytes));
  return header;
}

Status check_bools(std::span<const std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > std::byte{1}) {
      return invalid_argument("bool {} is {}, neither 0 nor 1", i, static_cast<int>(bytes[i]));
    }
  }
  return ok_status();
}

Status read_fixed(ByteReader& in, Value& value) {
  SKEIN_ASSIGN(value.bytes, in.take(value.count * fixed_size(value.type)));
  return value.type == ValueType::kBool ? check_bools(value.bytes) : ok_status();
}

Status read_strings(ByteReader& in, Value& value) {
  value.strings.reserve(value.count);
  for (uint64_t i = 0; i < value.count; ++i) {
    auto text = in.string(kMaxHeaderBytes);
    if (!text.ok()) return about("string", i, text.status());
    value.strings.push_back(*text);
  }
  return ok_status();
}

Result<ValueType> read_type(ByteReader& in) {
  SKEIN_ASSIGN(const uint32_t id, in.number<uint32_t>());
  if (id > static_cast<uint32_t>(ValueType::kFloat64)) {
    return invalid_argument("value type {}, the last one is {}", id,
                            static_cast<uint32_t>(ValueType::kFloat64));
  }
  return static_cast<ValueType>(id);
}

Status read_array_head(ByteReader& in, Value& value) {
  value.is_array = true;
  SKEIN_ASSIGN(value.type, read_type(in));
  if (value.type == ValueType::kArray) return unimplemented("an array of arrays");
  SKEIN_ASSIGN(value.count, in.number<uint64_t>());
  if (value.count > kMaxArrayElements) {
    return out_of_range("an array of {} elements, at most {}", value.count, kMaxArrayElements);
  }
  const uint64_t least = value.type == ValueType::kString ? 8 : fixed_size(value.type);
  if (value.count > in.remaining() / least) {
    return data_loss("an array of {} {}, {} bytes are left for it", value.count,
                     name_of(value.type), in.remaining());
  }
  return ok_status();
}

Status read_value(ByteReader& in, Value& value) {
  SKEIN_ASSIGN(value.type, read_type(in));
  if (value.type == ValueType::kArray) SKEIN_TRY(read_array_head(in, value));
  return value.type == ValueType::kString ? read_strings(in, value) : read_fixed(in, value);
}

Result<Metadata> read_metadata(ByteReader& in, uint64_t count) {
  std::vector<Value> values(count);
  for (uint64_t i = 0; i < count; ++i) {
    auto key = in.string(kMaxKeyBytes);
    if (!key.ok()) return about("key", i, key.status());
    if (key->empty()) return about("key", i, invalid_argument("the name is empty"));
    values[i].key = *key;
    if (Status status = read_value(in, values[i]); !status.ok()) return about("key", *key, status);
  }
  std::sort(values.begin(), values.end(),
            [](const Value& a, const Value& b) { return a.key < b.key; });
  const auto twice = std::adjacent_find(
      values.begin(), values.end(), [](const Value& a, const Value& b) { return a.key == b.key; });
  if (twice != values.end())
    return invalid_argument("key {} is there twice", in_quotes(twice->key));
  return Metadata(std::move(values));
}

Result<uint64_t> read_alignment(const Metadata& metadata) {
  const Value* value = metadata.find("general.alignment");
  if (value == nullptr) return kDefaultAlignment;
  if (value->is_array || value->type != ValueType::kUint32) {
    return invalid_argument("key 'general.alignment' holds {}{}, not a uint32",
                            value->is_array ? "an array of " : "a ", name_of(value->type));
  }
  SKEIN_ASSIGN(const uint32_t alignment, metadata.get<uint32_t>("general.alignment"));
  if (alignment < kMinAlignment || (alignment & (alignment - 1)) != 0) {
    return invalid_argument("key 'general.alignment' is {}, not a power of two of at least {}",
                            alignment, kMinAlignment);
  }
  return alignment;
}

struct TensorInfo {
  NamedTensor tensor;
  uint64_t offset = 0;  // from the start of the data
  uint64_t bytes = 0;
};

// Types that people have files of and this reader has no dequantizer for.
std::string_view name_in_brackets(uint32_t type_id) {
  static constexpr std::pair<uint32_t, std::string_view> kNames[] = {
      {16, " (IQ2_XXS)"}, {17, " (IQ2_XS)"}, {18, " (IQ3_XXS)"}, {19, " (IQ1_S)"}, {21, " (IQ3_S)"},
      {22, " (IQ2_S)"},   {29, " (IQ1_M)"},  {34, " (TQ1_0)"},   {35, " (TQ2_0)"}, {40, " (NVFP4)"},
  };
  for (const auto& [id, name] : kNames) {
    if (id == type_id) return name;
  }
  return "";
}

Result<Shape> read_shape(ByteReader& in) {
  SKEIN_ASSIGN(const uint32_t rank, in.number<uint32_t>());
  if (rank == 0 || rank > kMaxTensorDims) {
    return invalid_argument("{} dimensions, 1 to {} are read", rank, kMaxTensorDims);
  }
  uint64_t dims[kMaxTensorDims];
  for (uint32_t i = 0; i < rank; ++i) {
    SKEIN_ASSIGN(dims[rank - 1 - i], in.number<uint64_t>());  // innermost first in the file
    if (dims[rank - 1 - i] == 0) return invalid_argument("dimension {} is 0", i);
  }
  return Shape::of(std::span(dims, rank));
}

Status read_tensor(ByteReader& in, uint64_t alignment, TensorInfo& info) {
  TensorView& view = info.tensor.view;
  SKEIN_ASSIGN(view.shape, read_shape(in));
  SKEIN_ASSIGN(const uint32_t type_id, in.number<uint32_t>());
  const std::optional<ElementType> type = element_type_of_gguf_id(type_id);
  if (!type) {
    return unimplemented("element type {}{} is not one that is read", type_id,
                         name_in_brackets(type_id));
  }
  view.type = *type;
  SKEIN_ASSIGN(info.bytes, checked_byte_size(view.type, view.shape));
  SKEIN_ASSIGN(info.offset, in.number<uint64_t>());
  if (info.offset % alignment != 0) {
    return invalid_argument("offset {} is not a multiple of the alignment {}", info.offset,
                            alignment);
  }
  return ok_status();
}

Result<std::vector<TensorInfo>> read_tensors(ByteReader& in, uint64_t count, uint64_t alignment) {
  std::vector<TensorInfo> tensors(count);
  for (uint64_t i = 0; i < count; ++i) {
    auto name = in.string(kMaxTensorNameBytes);
    if (!name.ok()) return about("tensor", i, name.status());
    if (name->empty()) return about("tensor", i, invalid_argument("the name is empty"));
    tensors[i].tensor.name = *name;
    if (Status status = read_tensor(in, alignment, tensors[i]); !status.ok()) {
      return about("tensor", *name, status);
    }
  }
  return tensors;
}

Status check_names(const std::vector<TensorInfo>& tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorInfo& info : tensors) names.push_back(info.tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) return invalid_argument("tensor {} is there twice", in_quotes(*twice));
  return ok_status();
}

Status check_overlap(const std::vector<TensorInfo>& tensors) {
  std::vector<const TensorInfo*> order;
  order.reserve(tensors.size());
  for (const TensorInfo& info : tensors) order.push_back(&info);
  std::sort(order.begin(), order.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const TensorInfo &before = *order[i - 1], &after = *order[i];
    if (after.offset - before.offset < before.bytes) {
      return invalid_argument("tensor {} starts at {}, inside of tensor {} ({} bytes at {})",
                              in_quotes(after.tensor.name), after.offset,
                              in_quotes(before.tensor.name), before.bytes, before.offset);
    }
  }
  return ok_status();
}

// Where the tensors' bytes begin: the next multiple of the alignment. A file without tensors may
// end before it.
std::span<const std::byte> data_section(std::span<const std::byte> bytes, uint64_t header_end,
                                        uint64_t alignment) {
  const uint64_t start = (header_end + alignment - 1) / alignment * alignment;
  return start < bytes.size() ? bytes.subspan(start) : std::span<const std::byte>();
}

Status place_tensors(std::vector<TensorInfo>& tensors, std::span<const std::byte> data) {
  for (TensorInfo& info : tensors) {
    if (info.offset > data.size() || info.bytes > data.size() - info.offset) {
      return about("tensor", info.tensor.name,
                   data_loss("{} bytes at offset {} of the data, which has {}", info.bytes,
                             info.offset, data.size()));
    }
    info.tensor.view.bytes = data.subspan(info.offset, info.bytes);
  }
  return check_overlap(tensors);
}

}  // namespace

Result<GgufFile> parse_gguf(std::span<const std::byte> bytes) {
  ByteReader in(bytes.first(std::min<uint64_t>(bytes.size(), kMaxHeaderBytes)));
  SKEIN_ASSIGN(const Header header, read_header(in, bytes));
  GgufFile file;
  file.version = header.version;
  SKEIN_ASSIGN(file.metadata, read_metadata(in, header.values));
  SKEIN_ASSIGN(const uint64_t alignment, read_alignment(file.metadata));
  SKEIN_ASSIGN(std::vector<TensorInfo> tensors, read_tensors(in, header.tensors, alignment));
  SKEIN_TRY(check_names(tensors));
  SKEIN_TRY(place_tensors(tensors, data_section(bytes, in.offset(), alignment)));
  file.tensors.reserve(tensors.size());
  for (TensorInfo& info : tensors) file.tensors.push_back(std::move(info.tensor));
  return file;
}

}  // namespace skein::gguf
