// What an answer may look like, as a client asks for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace skein {

struct FormSpec {
  enum class Kind : uint8_t { kJsonObject, kJsonSchema, kRegex, kChoice, kGbnf, kLark };
  Kind kind = Kind::kJsonObject;
  std::string text = {};                  // the schema, the expression or the grammar
  std::vector<std::string> choices = {};  // of kChoice
  bool strict = false;                    // a keyword that cannot be enforced refuses the schema
  bool open = false;  // an object that lists its properties may have others, unless it says so

  // JSON: what may stand between its parts, as a pattern; "" is nothing. Else as json_schema.h
  // says.
  std::optional<std::string> white_space = {};

  friend bool operator==(const FormSpec&, const FormSpec&) = default;
};

}  // namespace skein
