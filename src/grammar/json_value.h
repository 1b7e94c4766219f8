// JSON with the order of members kept and numbers as they are written: what a schema is read with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/form_error.h"

namespace skein::grammar {

inline constexpr size_t kMaxSchemaBytes = size_t{1} << 20;
inline constexpr uint32_t kMaxSchemaDepth = 128;
inline constexpr uint32_t kMaxSchemaNodes = 100'000;

using JsonId = uint32_t;
inline constexpr JsonId kNoJson = UINT32_MAX;

class JsonDocument {
 public:
  enum class Type : uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };
  struct Node {
    Type type = Type::kNull;
    std::string text;  // of a string, decoded; of a number, as it is written
    std::vector<std::pair<std::string, JsonId>> members;
    std::vector<uint32_t> by_name;  // places of members, where there are many
    std::vector<JsonId> items;
    JsonId parent = kNoJson;
    uint32_t place = 0;  // in the parent's members or items
  };

  // Strict RFC 8259. Of members with one name the last counts, at the place of the first.
  static FormResult<JsonDocument> parse(std::string_view text);

  const Node& at(JsonId id) const { return nodes_[id]; }
  JsonId root() const { return 0; }
  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }
  JsonId member(JsonId id, std::string_view name) const;  // kNoJson where there is none
  std::string pointer(JsonId id) const;                   // "" is the root
  JsonId follow(JsonId from, std::string_view pointer) const;

 private:
  friend class JsonReader;
  std::vector<Node> nodes_;
};

}  // namespace skein::grammar
