// Where a `$ref` leads inside its document: JSON pointers, `$id` and `$anchor`.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "grammar/json_value.h"

namespace skein::grammar {

class SchemaRefs {
 public:
  explicit SchemaRefs(const JsonDocument& document);
  // kNoJson: nothing in the document has that name; nothing is ever fetched.
  JsonId find(JsonId schema, std::string_view reference) const;

 private:
  std::string base_of(JsonId id) const;
  const JsonDocument& document_;
  std::unordered_map<std::string, JsonId> by_uri_;
  std::unordered_map<JsonId, std::string> base_at_;  // of objects with an `$id`
};

}  // namespace skein::grammar
