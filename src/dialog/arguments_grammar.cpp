#include "dialog/arguments_grammar.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "dialog/template_probe.h"
#include "grammar/json_schema.h"
#include "grammar/lark.h"
#include "grammar/regex_parser.h"
#include "grammar/schema_formats.h"
#include "text/json_text.h"

namespace skein::dialog {
namespace {

using grammar::ExprId;
using grammar::FormCode;
using grammar::FormError;
using grammar::Symbol;

constexpr std::string_view kAnyObject = R"({"type": "object"})";
constexpr std::string_view kNoArguments = "no arguments can match, so nobody could call this tool";

// Keywords that restrict objects, or strings, and that are enforced in JSON alone. All others that
// are not named in this file say nothing of a value.
constexpr std::string_view kOfObjects[] = {"minProperties",
                                           "maxProperties",
                                           "patternProperties",
                                           "propertyNames",
                                           "dependentRequired",
                                           "dependentSchemas",
                                           "dependencies",
                                           "not",
                                           "allOf",
                                           "anyOf",
                                           "oneOf",
                                           "if",
                                           "$ref",
                                           "$dynamicRef",
                                           "$recursiveRef",
                                           "enum",
                                           "const"};
constexpr std::string_view kOfStrings[] = {"pattern", "format", "minLength",   "maxLength",
                                           "not",     "allOf",  "anyOf",       "oneOf",
                                           "if",      "$ref",   "$dynamicRef", "$recursiveRef"};

std::string json_text(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::vector<std::string_view> required_of(const OrderedJson& parameters) {
  std::vector<std::string_view> names;
  const auto required = parameters.find("required");
  if (required == parameters.end() || !required->is_array()) return names;
  for (const OrderedJson& name : *required) {
    if (name.is_string()) names.push_back(name.get_ref<const std::string&>());
  }
  return names;
}

// The strings that enum and const leave, where there is one of them.
std::optional<std::vector<std::string>> texts_of(const OrderedJson& schema) {
  const auto is_allowed = [&](const OrderedJson& value) {
    const auto only = schema.find("const");
    return value.is_string() && (only == schema.end() || *only == value);
  };
  std::vector<std::string> texts;
  const auto values = schema.find("enum");
  if (values != schema.end() && values->is_array()) {
    for (const OrderedJson& value : *values) {
      if (is_allowed(value)) texts.push_back(value.get<std::string>());
    }
  } else if (const auto only = schema.find("const"); only == schema.end()) {
    return std::nullopt;
  } else if (only->is_string()) {
    texts.push_back(only->get<std::string>());
  }
  return texts;
}

std::string escaped(std::string_view key) {
  std::string out;
  for (const char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

}  // namespace

void ArgumentsGrammar::write(const Tool& tool, size_t number, Symbols& out) {
  tool_ = number;
  if (error_) return;
  if (!tool.lark.empty() || tool.regex) return write_text(tool, out);
  const bool any = tool.strict == false || !tool.parameters.is_object() || tool.parameters.empty();
  if (pairs()) {
    if (!any) check(tool);
    if (error_) return;
    push_rule(write_pairs(tool, any), out);
  } else {
    const OrderedJson object = any ? OrderedJson::parse(kAnyObject) : tool.parameters;
    push_rule(schema(object, {.strict = tool.strict == true, .objects_only = true}, ""), out);
  }
}

void ArgumentsGrammar::push_rule(uint32_t rule, Symbols& out) {
  out.push_back(Symbol::rule(rule));
  written_.emplace_back(tool_, rule);
}

// What is wrong with a schema is wrong in every syntax, and some of it is no pair's.
void ArgumentsGrammar::check(const Tool& tool) {
  grammar::Rules alone;
  auto read = grammar::append_json_schema(alone, json_text(tool.parameters),
                                          {.objects_only = true, .spent_units = units_});
  if (!read.ok()) {
    FormError error = read.error();
    error.where = pointer(error.where);
    return fail(std::move(error));
  }
  units_ += read->units;
  auto finished = grammar::finished_rules(std::move(alone));
  if (finished.ok() || finished.error().code != FormCode::kUnsatisfiableSchema) return;
  fail({FormCode::kUnsatisfiableSchema, std::string(kNoArguments), pointer("")});
}

void ArgumentsGrammar::refuse_empty() {
  if (error_ || written_.empty()) return;
  std::vector<uint8_t> terminals;
  for (const grammar::Terminal& terminal : rules().terminals) {
    const bool live = regex().live(terminal.expression) != grammar::Answer::kNo;
    terminals.push_back(live || terminal.token != kNoToken ? 1 : 0);
  }
  const std::vector<uint8_t> has_end = grammar::rules_made_of(rules(), terminals);
  for (const auto& [tool, rule] : written_) {
    if (has_end[rule]) continue;
    tool_ = tool;
    return fail({FormCode::kUnsatisfiableSchema, std::string(kNoArguments), pointer("")});
  }
}

std::string ArgumentsGrammar::pointer(std::string_view rest) const {
  return fmt::format("/{}{}", tool_, rest);
}

void ArgumentsGrammar::fail(FormError error) {
  if (!error_) error_ = std::move(error);
}
void ArgumentsGrammar::relax(const std::string& where, const Tool& tool) {
  if (tool.strict == true) {
    return fail({FormCode::kUnsupportedSchema,
                 fmt::format("{} cannot be enforced in this model's format of calls", where),
                 pointer(where)});
  }
  relaxed_.push_back(pointer(where));
}

uint32_t ArgumentsGrammar::schema(const OrderedJson& schema, grammar::SchemaOptions options,
                                  const std::string& where) {
  if (error_) return 0;  // what is refused takes no more work
  const std::string text = json_text(schema);
  // A tool's questions are its own, so that what is enforced of it depends on no other.
  regex().allow_more_questions();
  options.spent_units = units_;
  auto start = grammar::append_json_schema(rules(), text, options);
  if (!start.ok()) {
    FormError error = start.error();
    error.where = pointer(where + error.where);
    fail(std::move(error));
    return 0;
  }
  constexpr uint64_t kUnitsAQuestion = 5, kBytesAUnit = 10;
  units_ += start->units + kUnitsAQuestion * regex().search_work() + text.size() / kBytesAUnit;
  for (const std::string& keyword : start->relaxed) {
    relaxed_.push_back(pointer(where + keyword));
  }
  return start->rule;
}

grammar::FormResult<uint32_t> ArgumentsGrammar::pattern(std::string_view text,
                                                        bool in_json_string) {
  auto parsed = grammar::parse_pattern(regex(), text, {.anchored = true});
  if (!parsed.ok()) return parsed.error();
  Symbols symbols;
  terminal(in_json_string ? regex().json_escaped(*parsed) : *parsed, symbols);
  return rule({std::move(symbols)});
}

// The one text of a tool with a grammar: as it is in a tag and in marks of the format's own, else
// inside a JSON string.
void ArgumentsGrammar::write_text(const Tool& tool, Symbols& out) {
  const std::string key = tool.parameters["properties"].items().begin().key();
  const bool raw = tagged() || (pairs() && !calls_.quote.empty());
  auto text =
      tool.regex ? pattern(*tool.regex, !raw) : grammar::append_lark(rules(), tool.lark, !raw);
  if (!text.ok()) {
    FormError error = text.error();
    error.where = pointer("");
    return fail(std::move(error));
  }
  if (pairs()) write_key(key, false, out);
  if (!pairs()) literal("{\"" + key + "\": ", out);
  if (tagged()) literal(calls_.key_end, out);
  const std::string quote = tagged() ? "" : raw ? calls_.quote : "\"";
  literal(quote, out);
  push_rule(*text, out);
  literal(quote, out);
  if (tagged()) literal(calls_.value_end, out);
  if (!pairs()) literal("}", out);
}

// Arguments one by one, in the order of the properties; then what is required besides.
uint32_t ArgumentsGrammar::write_pairs(const Tool& tool, bool any) {
  if (any) return free_pairs();
  const OrderedJson& parameters = tool.parameters;
  relax_any(tool, "", parameters, kOfObjects);
  std::vector<Pair> members;
  std::set<std::string_view> listed;
  if (const auto properties = parameters.find("properties"); properties != parameters.end()) {
    for (const auto& [key, value] : properties->get_ref<const OrderedJson::object_t&>()) {
      members.push_back({key, &value, "/properties/" + escaped(key)});
      listed.insert(key);
    }
  }
  const auto others = parameters.find("additionalProperties");
  const std::vector<std::string_view> names = required_of(parameters);
  const std::set<std::string_view> required(names.begin(), names.end());
  static const OrderedJson kAnything = true;
  for (const std::string_view name : names) {
    if (!listed.insert(name).second) continue;
    const bool said = others != parameters.end();
    members.push_back({std::string(name), said ? &*others : &kAnything,
                       said ? "/additionalProperties" : "/required"});
  }
  if (members.empty() && (others == parameters.end() || *others != false)) {
    if (others != parameters.end() && *others != true) relax("/additionalProperties", tool);
    return free_pairs();
  }
  // From the last to the first; [1]: another one stands before.
  uint32_t next[2] = {rule({{}}), rule({{}})};
  for (size_t i = members.size(); i-- > 0 && !error_;) {
    const Symbol value = Symbol::rule(write_value(tool, members[i]));
    uint32_t here[2];
    for (const int behind : {0, 1}) {
      Symbols symbols;
      write_key(members[i].key, behind != 0, symbols);
      symbols.push_back(value);
      symbols.push_back(Symbol::rule(next[1]));
      std::vector<Symbols> productions = {std::move(symbols)};
      if (!required.contains(members[i].key)) productions.push_back({Symbol::rule(next[behind])});
      here[behind] = rule(std::move(productions));
    }
    next[0] = here[0];
    next[1] = here[1];
  }
  return next[0];
}

// Keywords that pairs, or a text without quotation marks, are not bound to.
void ArgumentsGrammar::relax_any(const Tool& tool, const std::string& where,
                                 const OrderedJson& schema,
                                 std::span<const std::string_view> keywords) {
  for (const auto& [key, value] : schema.items()) {
    if (std::find(keywords.begin(), keywords.end(), key) == keywords.end()) continue;
    const bool annotation = key == "format" && value.is_string() &&
                            grammar::format_pattern(value.get_ref<const std::string&>()).empty();
    if (!annotation) relax(fmt::format("{}/{}", where, key), tool);
  }
}

// The key, with a comma before it where the shape has one.
void ArgumentsGrammar::write_key(const std::string& key, bool behind, Symbols& out) {
  if (tagged()) return literal(calls_.key_begin + key, out);
  const bool python = calls_.quote.empty();
  literal((behind ? (python ? ", " : ",") : "") + key + (python ? "=" : ":"), out);
}

// A string stands as it is in a tag, and in marks of the format's own; all else is JSON.
uint32_t ArgumentsGrammar::write_value(const Tool& tool, const Pair& pair) {
  const OrderedJson& property = *pair.schema;
  const auto type = property.is_object() ? property.find("type") : property.end();
  const bool string = type != property.end() && says(*type, "string");
  Symbols symbols;
  const bool raw = string && (tagged() || !calls_.quote.empty());
  if (tagged()) {
    literal(raw || calls_.key_end_other.empty() ? calls_.key_end : calls_.key_end_other, symbols);
  }
  if (raw) {
    write_raw(tool, pair.where, property, symbols);
  } else {
    // A reference is to all of the parameters.
    const bool refers = json_text(property).find("\"$ref\"") != std::string::npos;
    grammar::SchemaOptions options{.strict = tool.strict == true};
    if (refers) options.at = pair.where;
    const OrderedJson& text = refers ? tool.parameters : property;
    symbols.push_back(Symbol::rule(schema(text, options, refers ? "" : pair.where)));
  }
  if (tagged()) literal(calls_.value_end, symbols);
  return rule({std::move(symbols)});
}

void ArgumentsGrammar::write_raw(const Tool& tool, const std::string& where,
                                 const OrderedJson& property, Symbols& out) {
  relax_any(tool, where, property, kOfStrings);
  if (!tagged()) literal(calls_.quote, out);
  if (const auto texts = texts_of(property)) {
    terminal(regex().literals(*texts), out);
  } else {
    free_text(tagged() ? trim(calls_.value_end) : std::string_view(calls_.quote), out);
  }
  if (!tagged()) literal(calls_.quote, out);
}

// JSON, or a string in the format's own marks.
uint32_t ArgumentsGrammar::any_value() {
  const uint32_t json = schema(OrderedJson(true), {}, "");
  if (calls_.quote.empty()) return json;
  Symbols text;
  literal(calls_.quote, text);
  free_text(calls_.quote, text);
  literal(calls_.quote, text);
  return rule({{Symbol::rule(json)}, std::move(text)});
}

// Any keys with any values.
uint32_t ArgumentsGrammar::free_pairs() {
  grammar::ByteSet letters = letters_and_digits();
  letters.add('_');
  const ExprId key = regex().repeat(regex().byte_class(letters), 1, 64);
  const auto pair = [&](bool behind) {
    Symbols symbols;
    if (tagged()) {
      literal(calls_.key_begin, symbols);
      terminal(key, symbols);
      literal(calls_.key_end, symbols);
      free_text(trim(calls_.value_end), symbols);
      literal(calls_.value_end, symbols);
    } else {
      literal(behind ? (calls_.quote.empty() ? ", " : ",") : "", symbols);
      terminal(key, symbols);
      literal(calls_.quote.empty() ? "=" : ":", symbols);
      symbols.push_back(Symbol::rule(any_value()));
    }
    return Symbol::rule(rule({std::move(symbols)}));
  };
  const Symbol more = counted_list(rules(), pair(true), 0, grammar::kUnbounded);
  return rule({{}, {pair(false), more}});
}

}  // namespace skein::dialog
