// JSON Schema (2020-12, with the spellings of drafts 4 and 7 and OpenAPI's `nullable`) to Rules.
//
// Members come in the order of `properties`, then of `required`, then others; no name comes twice.
// An object that lists properties and says nothing of others is closed unless `open`. Every keyword
// that restricts values is enforced, or it is relaxed (the rules then allow more) and named, or
// with `strict` the schema is refused and the keyword named. References stay inside the document.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/form_error.h"
#include "grammar/rules.h"

namespace skein::grammar {

inline constexpr uint32_t kMaxUnion = 256;
inline constexpr uint32_t kMaxProperties = 10'000;
inline constexpr uint32_t kMaxEnumValues = 100'000;
inline constexpr uint32_t kMaxReferences = 10'000;
inline constexpr uint64_t kMaxCompileUnits = 1'000'000;
inline constexpr size_t kMaxRelaxedBytes = size_t{64} << 10;  // of pointers

// Where an error of SchemaOptions::white_space stands: it is no pointer.
inline constexpr std::string_view kWhiteSpaceField = "whitespace_pattern";

struct SchemaOptions {
  bool strict = false;
  bool open = false;
  // What may stand between tokens of JSON, as a pattern of white space; "" is none at all. Where
  // nothing is said: none, one space, or a new line and at most 20 spaces or tabs.
  std::optional<std::string> white_space = {};
  // The schema's place in the text, as a JSON pointer; references are to all of the text.
  std::string at = {};
  bool objects_only = false;  // of its values those that are objects
  uint64_t spent_units = 0;   // of kMaxCompileUnits, by schemas that are compiled together with it
};

struct SchemaRules {
  Rules rules;
  std::vector<std::string> relaxed;  // JSON pointers of keywords that are not enforced
};

struct SchemaStart {
  uint32_t rule;
  std::vector<std::string> relaxed;
  uint64_t units = 0;  // that it took
};

// Adds a schema's rules to what is there, for grammars that have several schemas in them.
FormResult<SchemaStart> append_json_schema(Rules& rules, std::string_view schema,
                                           const SchemaOptions& options);

FormResult<SchemaRules> json_schema_rules(std::string_view schema, const SchemaOptions& options);

}  // namespace skein::grammar
