// Types, constants, numbers and strings.
#include <algorithm>
#include <fmt/format.h>

#include "grammar/regex_parser.h"
#include "grammar/schema_formats.h"
#include "grammar/schema_reader.h"

namespace skein::grammar {

bool SchemaReader::are_strings(JsonId list) const {
  const std::vector<JsonId>& items = node(list).items;
  return node(list).type == Type::kArray && std::all_of(items.begin(), items.end(), [&](JsonId id) {
           return node(id).type == Type::kString;
         });
}

// What keywords must be, where their readers do not see it.
void SchemaReader::check_keywords(JsonId schema) {
  struct Rule {
    std::string_view keyword, what;
    bool (*holds)(Type);
  };
  constexpr auto kIsObject = [](Type type) { return type == Type::kObject; };
  constexpr auto kIsList = [](Type type) { return type == Type::kArray; };
  constexpr auto kIsBoolean = [](Type type) { return type == Type::kTrue || type == Type::kFalse; };
  constexpr auto kIsText = [](Type type) { return type == Type::kString; };
  constexpr auto kIsNumber = [](Type type) { return type == Type::kNumber; };
  constexpr Rule kRules[] = {
      {"patternProperties", "an object", kIsObject},
      {"dependentRequired", "an object", kIsObject},
      {"dependentSchemas", "an object", kIsObject},
      {"dependencies", "an object", kIsObject},
      {"$defs", "an object", kIsObject},
      {"definitions", "an object", kIsObject},
      {"prefixItems", "a list of schemas", kIsList},
      {"uniqueItems", "a boolean", kIsBoolean},
      {"nullable", "a boolean", kIsBoolean},
      {"format", "a string", kIsText},
      {"minimum", "a number", kIsNumber},
      {"maximum", "a number", kIsNumber},
      {"multipleOf", "a number", kIsNumber},
  };
  for (const Rule& rule : kRules) {
    const JsonId keyword = get(schema, rule.keyword);
    if (keyword == kNoJson || rule.holds(node(keyword).type)) continue;
    return fail(FormCode::kInvalidSchema, fmt::format("{} is not {}", rule.keyword, rule.what),
                keyword);
  }
  const JsonId type = get(schema, "type");
  if (type != kNoJson && node(type).type != Type::kString &&
      (!are_strings(type) || node(type).items.empty())) {
    fail(FormCode::kInvalidSchema, "type is neither a name nor a list of names", type);
  }
  const JsonId required = get(schema, "required");
  if (required != kNoJson && node(required).type == Type::kArray && !are_strings(required)) {
    fail(FormCode::kInvalidSchema, "required is not a list of names", required);
  }
  const JsonId dependent = get(schema, "dependentRequired");
  if (dependent == kNoJson) return;
  for (const auto& [key, names] : node(dependent).members) {
    if (are_strings(names)) continue;
    return fail(FormCode::kInvalidSchema, "it is not a list of names", names);
  }
}

void SchemaReader::read_types(JsonId schema, ValueSet& set) {
  const JsonId keyword = get(schema, "type");
  if (keyword == kNoJson) return;
  std::vector<JsonId> names = node(keyword).items;
  if (node(keyword).type == Type::kString) names = {keyword};
  ValueSet allowed;
  const ValueSet all = ValueSet::everything();
  for (const JsonId id : names) {
    const std::string& name = node(id).text;
    if (name == "null") {
      allowed.null = true;
    } else if (name == "boolean") {
      allowed.yes = allowed.no = true;
    } else if (name == "string") {
      allowed.strings = all.strings;
    } else if (name == "number") {
      allowed.numbers = all.numbers;
    } else if (name == "integer") {
      if (allowed.numbers.empty()) {
        allowed.numbers = all.numbers;
        allowed.numbers[0].integers = true;
      }
    } else if (name == "array") {
      allowed.arrays = all.arrays;
    } else if (name == "object") {
      allowed.objects = all.objects;
    } else {
      fail(FormCode::kInvalidSchema, fmt::format("'{}' is not a type", name), keyword);
    }
  }
  if (const JsonId null = get(schema, "nullable");
      null != kNoJson && node(null).type == Type::kTrue) {
    allowed.null = true;
  }
  restrict(set, allowed);
}

ValueSet SchemaReader::read_constant(JsonId value) {
  ValueSet set;
  const JsonDocument::Node& what = node(value);
  switch (what.type) {
    case Type::kNull:
      set.null = true;
      break;
    case Type::kTrue:
      set.yes = true;
      break;
    case Type::kFalse:
      set.no = true;
      break;
    case Type::kString:
      set.strings = {{0, kUnbounded, spelled_text(store_, what.text, Spelling::kJson), 1}};
      break;
    case Type::kNumber: {
      const auto number = Decimal::parse(what.text);
      if (!number) {
        fail(FormCode::kTooComplex, "a number of more than 400 digits", value);
        break;
      }
      NumberSet one;
      one.values = std::vector<Decimal>{*number};
      set.numbers = {one};
      break;
    }
    case Type::kArray: {
      ArraySet array;
      for (const JsonId item : what.items) array.prefix.push_back(forms_.constant(item));
      array.rest = kNoForm;
      array.lo = array.hi = static_cast<uint32_t>(what.items.size());
      set.arrays = {array};
      break;
    }
    case Type::kObject: {
      ObjectSet object;
      for (const auto& [name, member] : what.members) {
        object.members.push_back({name, forms_.constant(member), true});
      }
      object.cells = {{kAnything, kNoForm, false}};
      object.listed = true;
      set.objects = {object};
      break;
    }
  }
  return set;
}

void SchemaReader::read_enum(JsonId schema, ValueSet& set) {
  if (const JsonId keyword = get(schema, "const"); keyword != kNoJson) {
    restrict(set, read_constant(keyword));
  }
  const JsonId keyword = get(schema, "enum");
  if (keyword == kNoJson) return;
  if (node(keyword).type != Type::kArray) {
    fail(FormCode::kInvalidSchema, "enum is not an array", keyword);
    return;
  }
  const std::vector<JsonId>& items = node(keyword).items;
  enum_values_ += static_cast<uint32_t>(items.size());
  if (enum_values_ > kMaxEnumValues) {
    fail(FormCode::kTooComplex,
         fmt::format("{} enum values, at most {}", enum_values_, kMaxEnumValues), keyword);
    return;
  }
  ValueSet allowed;
  std::vector<std::string> texts;
  for (const JsonId item : items) {
    if (node(item).type != Type::kString) {
      algebra_.unite(allowed, read_constant(item));
      if (!charge(1)) return;
      continue;
    }
    texts.push_back(node(item).text);
  }
  if (!texts.empty()) {
    const auto count = static_cast<uint32_t>(texts.size());
    allowed.strings = {{0, kUnbounded, spelled_texts(store_, std::move(texts)), count}};
  }
  if (const JsonId null = get(schema, "nullable");
      null != kNoJson && node(null).type == Type::kTrue) {
    allowed.null = true;
  }
  restrict(set, allowed);
}

std::optional<Decimal> SchemaReader::read_number(JsonId schema, std::string_view name) {
  const JsonId keyword = get(schema, name);
  if (keyword == kNoJson || node(keyword).type == Type::kTrue ||
      node(keyword).type == Type::kFalse) {
    return std::nullopt;
  }
  if (node(keyword).type != Type::kNumber) {
    fail(FormCode::kInvalidSchema, fmt::format("{} is not a number", name), keyword);
    return std::nullopt;
  }
  auto value = Decimal::parse(node(keyword).text);
  if (!value) fail(FormCode::kTooComplex, "a number of more than 400 digits", keyword);
  return value;
}

void SchemaReader::read_numbers(JsonId schema, ValueSet& set) {
  NumberSet bounds;
  const auto is_true = [&](std::string_view name) {
    const JsonId id = get(schema, name);
    return id != kNoJson && node(id).type == Type::kTrue;
  };
  if (const auto value = read_number(schema, "minimum")) {
    bounds.lo = value;
    bounds.lo_open = is_true("exclusiveMinimum");
  }
  if (const auto value = read_number(schema, "maximum")) {
    bounds.hi = value;
    bounds.hi_open = is_true("exclusiveMaximum");
  }
  NumberSet open_bounds;
  open_bounds.lo = read_number(schema, "exclusiveMinimum");
  open_bounds.hi = read_number(schema, "exclusiveMaximum");
  open_bounds.lo_open = open_bounds.hi_open = true;
  bounds = both_of(bounds, open_bounds);
  if (const auto unit = read_number(schema, "multipleOf")) {
    if (unit->is_zero() || unit->negative()) {
      fail(FormCode::kInvalidSchema, "multipleOf is not above 0", get(schema, "multipleOf"));
      return;
    }
    NumberSet probe;
    probe.multiples = {*unit};
    if (unit->is_integer()) bounds.integers = true;
    if (!number_expression(store_, probe)) {
      relax(get(schema, "multipleOf"), "multipleOf with that many digits cannot be enforced");
    } else {
      bounds.multiples = {*unit};
    }
  }
  if (!bounds.lo && !bounds.hi && bounds.multiples.empty() && !bounds.integers) return;
  ValueSet other = ValueSet::everything();
  other.numbers = {bounds};
  restrict(set, other);
}

bool SchemaReader::read_count(JsonId schema, std::string_view name, uint32_t& value) {
  const JsonId keyword = get(schema, name);
  if (keyword == kNoJson) return false;
  const auto number = read_number(schema, name);
  if (!number || number->negative() || !number->is_integer()) {
    fail(FormCode::kInvalidSchema, fmt::format("{} is not a whole number from 0 on", name),
         keyword);
    return false;
  }
  const bool large = Decimal::of(kMaxRepeat) < *number;
  if (large && name.substr(0, 3) == "min") {
    fail(FormCode::kTooComplex,
         fmt::format("{} is {}, at most {}", name, node(keyword).text, kMaxRepeat), keyword);
    return false;
  }
  value = large ? kMaxRepeat : static_cast<uint32_t>(std::stoul(number->whole()));
  return true;
}

std::optional<ExprId> SchemaReader::pattern(JsonId keyword, std::string_view text) {
  PatternOptions options;
  options.spelling = Spelling::kJson;
  charge(1 + text.size() / 8);
  FormResult<ExprId> parsed = parse_pattern(store_, text, options);
  if (parsed.ok()) return *parsed;
  const FormError& problem = parsed.error();
  if (problem.code == FormCode::kTooComplex) {
    fail(problem.code, problem.message, keyword);
  } else if (problem.message.find("not supported") != std::string::npos) {
    relax(keyword, problem.message);
  } else {
    fail(FormCode::kInvalidRegex, problem.message, keyword);
  }
  return std::nullopt;
}

void SchemaReader::read_strings(JsonId schema, ValueSet& set) {
  StringSet string;
  read_count(schema, "minLength", string.lo);
  read_count(schema, "maxLength", string.hi);
  if (const JsonId keyword = get(schema, "pattern"); keyword != kNoJson) {
    if (node(keyword).type != Type::kString) {
      fail(FormCode::kInvalidSchema, "pattern is not a string", keyword);
      return;
    }
    if (const auto language = pattern(keyword, node(keyword).text)) string.language = *language;
  }
  if (const JsonId keyword = get(schema, "format"); keyword != kNoJson) {
    const std::string_view known = format_pattern(node(keyword).text);
    if (!known.empty()) {
      if (const auto language = pattern(keyword, known)) {
        string.language = store_.both(string.language, *language);
      }
    }
  }
  if (string == StringSet{}) return;
  ValueSet other = ValueSet::everything();
  other.strings.clear();
  if (string.lo <= string.hi) other.strings.push_back(string);
  restrict(set, other);
}

}  // namespace skein::grammar
