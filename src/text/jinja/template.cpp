#include "text/jinja/template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/jinja/python_text.h"

namespace skein::jinja {
namespace {

using Json = OrderedJson;

// JSON to values; everything is marked as data except what the options trust.
class ContextReader {
 public:
  ContextReader(Runtime& rt, const RenderOptions& options) : rt_(rt), options_(options) {}

  Result<Value> read_variable(const std::string& name, const Json& json) {
    const auto& trusted = options_.template_variables;
    trusted_ = json.is_string() &&
               std::find(trusted.begin(), trusted.end(),
                         std::pair(name, json.get_ref<const std::string&>())) != trusted.end();
    return read(json, name, 0);
  }

 private:
  Result<Value> read(const Json& json, std::string_view key, int depth);
  Result<Value> read_object(const Json& json, int depth);
  bool trusts(std::string_view key, const std::string& text) const {
    const auto& roles = options_.template_roles;
    return trusted_ ||
           (key == "role" && std::find(roles.begin(), roles.end(), text) != roles.end());
  }

  Runtime& rt_;
  const RenderOptions& options_;
  bool trusted_ = false;
};

Result<Value> ContextReader::read(const Json& json, std::string_view key, int depth) {
  constexpr int kMaxDepth = 200;
  if (depth > kMaxDepth) return out_of_range("the context is nested more than {} deep", kMaxDepth);
  switch (json.type()) {
    case Json::value_t::null:
      return Value::none(!trusted_);
    case Json::value_t::boolean:
      return Value::boolean(json.get_ref<const bool&>(), !trusted_);
    case Json::value_t::number_integer:
      return Value::integer(json.get_ref<const int64_t&>(), !trusted_);
    case Json::value_t::number_unsigned: {
      const uint64_t value = json.get_ref<const uint64_t&>();
      if (value > INT64_MAX) {
        return out_of_range("{} in the context is more than {}", value, INT64_MAX);
      }
      return Value::integer(static_cast<int64_t>(value), !trusted_);
    }
    case Json::value_t::number_float:
      return Value::real(json.get_ref<const double&>(), !trusted_);
    case Json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      return rt_.string(to_utf8(text), trusts(key, text));
    }
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) {
        SKEIN_ASSIGN(Value value, read(item, "", depth + 1));
        items.push_back(std::move(value));
      }
      return rt_.list(std::move(items));
    }
    case Json::value_t::object:
      return read_object(json, depth);
    default:
      return invalid_argument("the context holds a value that is no JSON");
  }
}

Result<Value> ContextReader::read_object(const Json& json, int depth) {
  const Ref<DictObject> dict = rt_.heap().make<DictObject>(0);
  for (const auto& item : json.items()) {
    SKEIN_ASSIGN(Value value, read(item.value(), item.key(), depth + 1));
    rt_.heap().grow(*dict, kDictEntryBytes + item.key().size());
    dict->set(rt_.string(to_utf8(item.key()), trusted_), std::move(value));
  }
  return Value::object(Kind::kDict, dict);
}

}  // namespace

std::string Rendered::text() const {
  std::string out;
  for (const Piece& piece : pieces) out += piece.text;
  return out;
}

Result<Template> Template::parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return out_of_range("the template has {} bytes, at most {} are allowed", source.size(),
                        kMaxSourceBytes);
  }
  SKEIN_ASSIGN(auto program, parse_program(source));
  return Template(std::move(program));
}

std::vector<std::string> literals_of(std::string_view source) {
  if (source.size() > Template::kMaxSourceBytes) return {};
  const auto tokens = tokenize(to_utf8(source));
  if (!tokens.ok()) return {std::string(source)};
  std::vector<std::string> out;
  bool goes_on = false;  // strings side by side are one
  for (const Token& token : *tokens) {
    const bool is_string = token.type == TokenType::kString;
    if (is_string && goes_on) {
      out.back() += token.text;
    } else if (is_string || token.type == TokenType::kData) {
      out.push_back(token.text);
    }
    goes_on = is_string;
  }
  return out;
}

Result<Rendered> Template::render(const Json& context, const RenderOptions& options) const {
  if (!context.is_object()) return invalid_argument("the context of a template must be an object");
  Runtime rt(options.limits, options.now);
  std::vector<std::pair<Symbol, Value>> variables;  // only those that the template names
  ContextReader reader(rt, options);
  for (const auto& item : context.items()) {
    const auto symbol = program_->symbols.find(item.key());
    if (symbol == program_->symbols.end()) continue;
    SKEIN_ASSIGN(Value value, reader.read_variable(item.key(), item.value()));
    variables.emplace_back(symbol->second, std::move(value));
  }
  for (const auto& [name, text] : options.template_variables) {
    const auto symbol = program_->symbols.find(name);
    if (symbol == program_->symbols.end() || context.contains(name)) continue;
    variables.emplace_back(symbol->second, rt.string(to_utf8(text), true));
  }
  rt.forgive();
  SKEIN_ASSIGN(const MarkedText out, Interpreter(*program_, rt).run(std::move(variables)));
  Rendered rendered;
  rendered.steps = rt.steps();
  out.for_each_run([&rendered](std::string_view run, bool from_template) {
    rendered.pieces.push_back({std::string(run), from_template});
  });
  return rendered;
}

}  // namespace skein::jinja
