#include "dialog/arguments_grammar.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "dialog/template_probe.h"
#include "grammar/json_schema.h"
#include "grammar/lark.h"

namespace skein::dialog {
namespace {

using grammar::ExprId;
using grammar::FormCode;
using grammar::FormError;
using grammar::Symbol;

constexpr std::string_view kAnyObject = R"({"type": "object"})";

std::string json_text(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::set<std::string_view> required_of(const OrderedJson& parameters) {
  std::set<std::string_view> names;
  const auto required = parameters.find("required");
  if (required == parameters.end() || !required->is_array()) return names;
  for (const OrderedJson& name : *required) {
    if (name.is_string()) names.insert(name.get_ref<const std::string&>());
  }
  return names;
}

}  // namespace

void ArgumentsGrammar::write(const Tool& tool, size_t number, Symbols& out) {
  tool_ = number;
  if (error_) return;
  if (!tool.lark.empty()) return write_text(tool, out);
  const bool any = tool.strict == false || !tool.parameters.is_object() || tool.parameters.empty();
  if (calls_.shape == CallShape::kTagged || calls_.shape == CallShape::kLoose) {
    out.push_back(Symbol::rule(write_pairs(tool, any)));
  } else {
    out.push_back(Symbol::rule(
        schema(any ? OrderedJson::parse(kAnyObject) : tool.parameters, tool.strict == true, "")));
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

uint32_t ArgumentsGrammar::schema(const OrderedJson& schema, bool strict,
                                  const std::string& where) {
  if (error_) return 0;  // what is refused takes no more work
  const std::string text = json_text(schema);
  // A tool's questions are its own, so that what is enforced of it depends on no other.
  regex().allow_more_questions();
  auto start =
      grammar::append_json_schema(rules(), text, {.strict = strict, .spent_units = units_});
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

// The one text of a tool with a grammar: as it is in a tag and in marks of the format's own, else
// inside a JSON string.
void ArgumentsGrammar::write_text(const Tool& tool, Symbols& out) {
  const std::string key = tool.parameters["properties"].items().begin().key();
  const bool pairs = tagged() || calls_.shape == CallShape::kLoose;
  const bool raw = tagged() || (pairs && !calls_.quote.empty());
  auto text = grammar::append_lark(rules(), tool.lark, !raw);
  if (!text.ok()) {
    FormError error = text.error();
    error.where = pointer("");
    return fail(std::move(error));
  }
  if (pairs) write_key(key, false, out);
  if (!pairs) literal("{\"" + key + "\": ", out);
  if (tagged()) literal(calls_.key_end, out);
  const std::string quote = tagged() ? "" : raw ? calls_.quote : "\"";
  literal(quote, out);
  out.push_back(Symbol::rule(*text));
  literal(quote, out);
  if (tagged()) literal(calls_.value_end, out);
  if (!pairs) literal("}", out);
}

// Arguments one by one, in the order of the properties.
uint32_t ArgumentsGrammar::write_pairs(const Tool& tool, bool any) {
  const auto listed = any ? tool.parameters.end() : tool.parameters.find("properties");
  if (any || listed == tool.parameters.end() || !listed->is_object()) {
    if (!any) relax("", tool);
    return free_pairs();
  }
  for (const auto& [key, value] : tool.parameters.items()) {
    constexpr std::string_view kKnown[] = {"type",  "properties",  "required",
                                           "title", "$schema",     "description",
                                           "$defs", "definitions", "additionalProperties"};
    if (std::find(std::begin(kKnown), std::end(kKnown), key) == std::end(kKnown)) {
      relax("/" + key, tool);
    }
  }
  // From the last to the first; [1]: another one stands before.
  uint32_t next[2] = {rule({{}}), rule({{}})};
  const std::set<std::string_view> required = required_of(tool.parameters);
  const auto& members = listed->get_ref<const OrderedJson::object_t&>();
  for (size_t i = members.size(); i-- > 0 && !error_;) {
    const auto& [key, property] = *(members.begin() + static_cast<long>(i));
    const Symbol value = Symbol::rule(write_value(tool, key, property));
    uint32_t here[2];
    for (const int behind : {0, 1}) {
      Symbols symbols;
      write_key(key, behind != 0, symbols);
      symbols.push_back(value);
      symbols.push_back(Symbol::rule(next[1]));
      std::vector<Symbols> productions = {std::move(symbols)};
      if (!required.contains(key)) productions.push_back({Symbol::rule(next[behind])});
      here[behind] = rule(std::move(productions));
    }
    next[0] = here[0];
    next[1] = here[1];
  }
  return next[0];
}

// The key, with a comma before it where the shape has one.
void ArgumentsGrammar::write_key(const std::string& key, bool behind, Symbols& out) {
  if (tagged()) return literal(calls_.key_begin + key, out);
  const bool python = calls_.quote.empty();
  literal((behind ? (python ? ", " : ",") : "") + key + (python ? "=" : ":"), out);
}

// A string stands as it is in a tag, and in marks of the format's own; all else is JSON.
uint32_t ArgumentsGrammar::write_value(const Tool& tool, const std::string& key,
                                       const OrderedJson& property) {
  const auto type = property.is_object() ? property.find("type") : property.end();
  const bool string = type != property.end() && *type == "string";
  const std::string where = "/properties/" + key;
  Symbols symbols;
  const bool raw = string && (tagged() || !calls_.quote.empty());
  if (tagged()) {
    literal(raw || calls_.key_end_other.empty() ? calls_.key_end : calls_.key_end_other, symbols);
  }
  if (raw) {
    write_raw(tool, where, property, symbols);
  } else {
    OrderedJson whole = property;  // with what it may refer to
    const bool refers = json_text(property).find("\"$ref\"") != std::string::npos;
    for (const char* shared : {"$defs", "definitions"}) {
      if (refers && whole.is_object() && tool.parameters.contains(shared)) {
        whole[shared] = tool.parameters[shared];
      }
    }
    symbols.push_back(Symbol::rule(schema(whole, tool.strict == true, where)));
  }
  if (tagged()) literal(calls_.value_end, symbols);
  return rule({std::move(symbols)});
}

void ArgumentsGrammar::write_raw(const Tool& tool, const std::string& where,
                                 const OrderedJson& property, Symbols& out) {
  for (const char* keyword : {"pattern", "format", "minLength", "maxLength"}) {
    if (property.contains(keyword)) relax(where + "/" + keyword, tool);
  }
  const std::string end(tagged() ? trim(calls_.value_end) : std::string_view(calls_.quote));
  if (!tagged()) literal(calls_.quote, out);
  if (const auto values = property.find("enum"); values != property.end() && values->is_array()) {
    std::vector<std::string> texts;
    for (const OrderedJson& value : *values) {
      if (value.is_string()) texts.push_back(value.get<std::string>());
    }
    terminal(regex().literals(std::move(texts)), out);
  } else {
    free_text(end, out);
  }
  if (!tagged()) literal(calls_.quote, out);
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
      symbols.push_back(Symbol::rule(schema(OrderedJson(true), false, "")));
    }
    return Symbol::rule(rule({std::move(symbols)}));
  };
  const Symbol more = counted_list(rules(), pair(true), 0, grammar::kUnbounded);
  return rule({{}, {pair(false), more}});
}

}  // namespace skein::dialog
