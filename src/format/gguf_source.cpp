// GGUF files as a WeightSource: one file, or the parts NAME-00001-of-000NN.gguf of a split one.
#include <fmt/format.h>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "format/gguf.h"
#include "format/quote.h"
#include "format/weight_source.h"

namespace skein {
namespace {

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

}  // namespace

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

}  // namespace skein
