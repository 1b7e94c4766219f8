#include "dialog/answer_grammar.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "dialog/template_probe.h"
#include "dialog/units.h"
#include "grammar/json_schema.h"

namespace skein::dialog {
namespace {

using grammar::ExprId;
using grammar::FormCode;
using grammar::FormError;
using grammar::Symbol;
using Symbols = std::vector<Symbol>;

constexpr std::string_view kAnyObject = R"({"type": "object"})";

grammar::ByteSet letters_and_digits() {
  return grammar::ByteSet::range('0', '9') | grammar::ByteSet::range('A', 'Z') |
         grammar::ByteSet::range('a', 'z');
}

class AnswerGrammar {
 public:
  AnswerGrammar(const ChatFormat& format, std::span<const Tool> tools, const AnswerOptions& options)
      : format_(format), calls_(format.calls), tools_(tools), options_(options) {}

  grammar::FormResult<AnswerRules> write() {
    const bool harmony = calls_.shape == CallShape::kHarmony;
    const uint32_t start = harmony ? write_messages() : write_answer();
    if (error_) return *error_;
    out_.rules.start = start;
    return std::move(out_);
  }

 private:
  grammar::Rules& rules() { return out_.rules; }
  grammar::RegexStore& regex() { return *out_.rules.regex; }

  uint32_t rule(std::vector<Symbols> productions) {
    const uint32_t index = rules().add_rule();
    for (Symbols& symbols : productions) rules().add(index, std::move(symbols));
    return index;
  }
  void terminal(ExprId expression, Symbols& out) {
    out.push_back(Symbol::terminal(rules().add_terminal(expression)));
  }
  TokenId token(std::string_view marker) const {
    return options_.tokens ? options_.tokens(marker) : kNoToken;
  }
  // The format's own text: bytes, and the markers that are tokens.
  void literal(std::string_view text, Symbols& out) {
    const auto bytes = [&](std::string_view part) {
      if (!part.empty()) terminal(regex().literal(part), out);
    };
    for (const std::string_view marker : markers_in(text)) {
      const TokenId id = token(marker);
      if (id == kNoToken) continue;
      bytes(text.substr(0, static_cast<size_t>(marker.data() - text.data())));
      out.push_back(Symbol::terminal(rules().add_token(id)));
      text.remove_prefix(static_cast<size_t>(marker.data() + marker.size() - text.data()));
    }
    bytes(text);
  }
  // Any text in which `marker` does not stand; no bytes stand for one that begins with a token.
  ExprId text_without(std::string_view marker) {
    const auto inside = markers_in(marker);
    const bool is_token =
        !inside.empty() && inside[0].data() == marker.data() && token(inside[0]) != kNoToken;
    return marker.empty() || is_token ? grammar::kAnything : regex().negation(around(marker));
  }
  void free_text(std::string_view marker, Symbols& out) { terminal(text_without(marker), out); }
  ExprId around(std::string_view marker) {
    const std::vector<ExprId> parts = {grammar::kAnything, regex().literal(marker),
                                       grammar::kAnything};
    return regex().concat(parts);
  }

  // [thought] and then text, calls, or both.
  uint32_t write_answer() {
    std::vector<Symbols> productions;
    const bool calls = options_.choice != ToolChoice::kNone && !tools_.empty();
    Symbols section;
    if (calls) section = {Symbol::rule(write_section())};
    const auto add = [&](const Symbols& body) {
      const ReasoningFormat& thought = format_.reasoning;
      if (!options_.in_reasoning || thought.end.empty()) productions.push_back(body);
      if (thought.end.empty()) return;
      Symbols with_thought;
      if (!options_.in_reasoning) literal(thought.begin, with_thought);
      free_text(thought.end, with_thought);
      literal(thought.end, with_thought);
      terminal(white_space(), with_thought);
      with_thought.insert(with_thought.end(), body.begin(), body.end());
      productions.push_back(std::move(with_thought));
    };
    if (options_.choice == ToolChoice::kRequired && calls) {
      add(section);
      return rule(std::move(productions));
    }
    Symbols text;
    terminal(text_without_call(), text);
    add(text);
    if (calls && bare()) {
      add(section);
    } else if (calls) {
      text.insert(text.end(), section.begin(), section.end());
      add(text);
    }
    return rule(std::move(productions));
  }

  ExprId white_space() {
    const ExprId one = regex().byte_class(grammar::ByteSet::of(" \n"));
    return regex().repeat(one, 0, 2);
  }

  bool bare() const { return trigger().empty(); }
  std::string trigger() const {
    return std::string(trim(calls_.section_begin + calls_.call_begin));
  }

  // Where nothing but JSON tells a call from text, text does not begin as one does.
  ExprId text_without_call() {
    if (options_.choice == ToolChoice::kNone) return grammar::kAnything;
    if (!bare()) return text_without(trigger());
    const std::string begin = calls_.body.substr(0, calls_.body.find(kNamePlace));
    return regex().negation(regex().concat(regex().literal(begin), grammar::kAnything));
  }

  uint32_t write_section() {
    const Symbol call = Symbol::rule(write_calls());
    Symbols symbols;
    literal(calls_.section_begin, symbols);
    symbols.push_back(call);
    if (options_.parallel && calls_.parallel) {
      Symbols another;
      literal(calls_.separator, another);
      another.push_back(call);
      symbols.push_back(
          counted_list(rules(), Symbol::rule(rule({std::move(another)})), 0, kMaxCalls - 1));
    }
    literal(calls_.section_end, symbols);
    return rule({std::move(symbols)});
  }

  // One production a tool.
  uint32_t write_calls() {
    std::vector<Symbols> productions;
    for (size_t i = 0; i < tools_.size() && !error_; ++i) {
      tool_ = i;
      Symbols symbols;
      literal(calls_.call_begin, symbols);
      write_body(tools_[i], symbols);
      literal(calls_.call_end, symbols);
      productions.push_back(std::move(symbols));
    }
    return rule(std::move(productions));
  }

  void write_body(const Tool& tool, Symbols& out) {
    std::string text;
    const auto flush = [&] {
      literal(text, out);
      text.clear();
    };
    for (const char c : calls_.body) {
      if (c == kNamePlace) {
        text += tool.name;
      } else if (c == kArgumentsPlace) {
        flush();
        write_arguments(tool, out);
      } else if (c == kIdPlace || c == kIndexPlace) {
        flush();
        terminal(c == kIdPlace ? id() : index(), out);
      } else {
        text.push_back(c);
      }
    }
    flush();
  }

  ExprId id() { return regex().repeat(regex().byte_class(letters_and_digits()), 9, 9); }
  ExprId index() {
    return regex().repeat(regex().byte_class(grammar::ByteSet::of("0123456789")), 1, 2);
  }

  void write_arguments(const Tool& tool, Symbols& out) {
    const bool any =
        tool.strict == false || !tool.parameters.is_object() || tool.parameters.empty();
    if (calls_.shape == CallShape::kTagged || calls_.shape == CallShape::kLoose) {
      out.push_back(Symbol::rule(write_pairs(tool, any)));
    } else {
      out.push_back(Symbol::rule(
          schema(any ? OrderedJson::parse(kAnyObject) : tool.parameters, tool.strict == true, "")));
    }
  }

  std::string pointer(std::string_view rest) const { return fmt::format("/{}{}", tool_, rest); }

  void fail(FormError error) {
    if (!error_) error_ = std::move(error);
  }
  void relax(const std::string& where, const Tool& tool) {
    if (tool.strict == true) {
      return fail({FormCode::kUnsupportedSchema,
                   fmt::format("{} cannot be enforced in this model's format of calls", where),
                   pointer(where)});
    }
    out_.relaxed.push_back(pointer(where));
  }

  uint32_t schema(const OrderedJson& schema, bool strict, const std::string& where) {
    const std::string text = schema.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
    auto start = grammar::append_json_schema(rules(), text, {.strict = strict});
    if (!start.ok()) {
      FormError error = start.error();
      error.where = pointer(where + error.where);
      fail(std::move(error));
      return 0;
    }
    for (const std::string& keyword : start->relaxed) {
      out_.relaxed.push_back(pointer(where + keyword));
    }
    return start->rule;
  }

  // Arguments one by one, in the order of the properties.
  uint32_t write_pairs(const Tool& tool, bool any) {
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
    std::vector<std::string> keys;
    for (const auto& [key, value] : listed->items()) keys.push_back(key);
    for (size_t i = keys.size(); i-- > 0;) {
      const Symbol value = Symbol::rule(write_value(tool, keys[i], (*listed)[keys[i]]));
      uint32_t here[2];
      for (const int behind : {0, 1}) {
        Symbols symbols;
        write_key(keys[i], behind != 0, symbols);
        symbols.push_back(value);
        symbols.push_back(Symbol::rule(next[1]));
        std::vector<Symbols> productions = {std::move(symbols)};
        if (!is_required(tool, keys[i])) productions.push_back({Symbol::rule(next[behind])});
        here[behind] = rule(std::move(productions));
      }
      next[0] = here[0];
      next[1] = here[1];
    }
    return next[0];
  }

  static bool is_required(const Tool& tool, const std::string& key) {
    const auto required = tool.parameters.find("required");
    return required != tool.parameters.end() && required->is_array() &&
           std::find(required->begin(), required->end(), OrderedJson(key)) != required->end();
  }

  bool tagged() const { return calls_.shape == CallShape::kTagged; }

  // The key, with a comma before it where the shape has one.
  void write_key(const std::string& key, bool behind, Symbols& out) {
    if (tagged()) return literal(calls_.key_begin + key, out);
    const bool python = calls_.quote.empty();
    literal((behind ? (python ? ", " : ",") : "") + key + (python ? "=" : ":"), out);
  }

  // A string stands as it is in a tag, and in marks of the format's own; all else is JSON.
  uint32_t write_value(const Tool& tool, const std::string& key, const OrderedJson& property) {
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
      for (const char* shared : {"$defs", "definitions"}) {
        if (whole.is_object() && tool.parameters.contains(shared)) {
          whole[shared] = tool.parameters[shared];
        }
      }
      symbols.push_back(Symbol::rule(schema(whole, tool.strict == true, where)));
    }
    if (tagged()) literal(calls_.value_end, symbols);
    return rule({std::move(symbols)});
  }

  void write_raw(const Tool& tool, const std::string& where, const OrderedJson& property,
                 Symbols& out) {
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
  uint32_t free_pairs() {
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

  // gpt-oss: thoughts, and then a call or the final text.
  uint32_t write_messages() {
    const bool calls = options_.choice != ToolChoice::kNone && !tools_.empty();
    Symbols thought;
    literal("<|channel|>analysis<|message|>", thought);
    free_text(token("<|end|>") == kNoToken ? "<|" : "", thought);
    literal("<|end|><|start|>assistant", thought);
    std::vector<Symbols> ends;
    if (options_.choice != ToolChoice::kRequired || !calls) {
      Symbols text;
      literal("<|channel|>final<|message|>", text);
      free_text(token("<|end|>") == kNoToken ? "<|" : "", text);
      ends.push_back(std::move(text));
    }
    for (size_t i = 0; calls && i < tools_.size() && !error_; ++i) {
      tool_ = i;
      Symbols call;
      literal(
          "<|channel|>commentary to=functions." + tools_[i].name + " <|constrain|>json<|message|>",
          call);
      write_arguments(tools_[i], call);
      literal("<|call|>", call);
      ends.push_back(std::move(call));
    }
    const Symbol thoughts =
        counted_list(rules(), Symbol::rule(rule({std::move(thought)})), 0, grammar::kUnbounded);
    return rule({{thoughts, Symbol::rule(rule(std::move(ends)))}});
  }

  const ChatFormat& format_;
  const CallFormat& calls_;
  std::span<const Tool> tools_;
  AnswerOptions options_;
  AnswerRules out_;
  size_t tool_ = 0;  // that is being written
  std::optional<FormError> error_;
};

}  // namespace

grammar::FormResult<AnswerRules> answer_rules(const ChatFormat& format, std::span<const Tool> tools,
                                              const AnswerOptions& options) {
  return AnswerGrammar(format, tools, options).write();
}

}  // namespace skein::dialog
