#include "apps/token_lists.h"

#include "apps/files.h"
#include "format/json.h"
#include "format/quote.h"

namespace skein::apps {
namespace {

Result<TokenId> read_id(const Json& value) {
  if (value.is_number_integer()) {
    const auto id = value.get<int64_t>();
    if (id >= 0 && id <= INT32_MAX) return static_cast<TokenId>(id);
  }
  return invalid_argument("{} is no token id", printable(value.dump(), 40));
}

}  // namespace

Result<std::vector<std::vector<TokenId>>> read_token_lists(const std::string& path) {
  SKEIN_ASSIGN(const std::string text, read_file(path));
  const Result<Json> json = parse_json(text);
  if (!json.ok()) return invalid_argument("{}: {}", path, json.message());
  if (!json->is_array()) return invalid_argument("{}: not a list of id lists", path);
  if (json->empty()) return invalid_argument("{}: the list of id lists is empty", path);
  std::vector<std::vector<TokenId>> lists;
  for (size_t i = 0; i < json->size(); ++i) {
    const Json& list = (*json)[i];
    if (!list.is_array()) return invalid_argument("{}: list {} is not a list of ids", path, i);
    if (list.empty()) return invalid_argument("{}: list {} is empty", path, i);
    lists.emplace_back().reserve(list.size());
    for (size_t j = 0; j < list.size(); ++j) {
      const Result<TokenId> id = read_id(list[j]);
      if (!id.ok()) return invalid_argument("{}: list {}, index {}: {}", path, i, j, id.message());
      lists.back().push_back(*id);
    }
  }
  return lists;
}

}  // namespace skein::apps
