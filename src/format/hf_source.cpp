// Hugging Face folders as a WeightSource: model.safetensors, or the shards that
// model.safetensors.index.json names.
#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "format/mlx.h"
#include "format/quote.h"
#include "format/safetensors.h"
#include "format/weight_source.h"

namespace skein {
namespace {

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
