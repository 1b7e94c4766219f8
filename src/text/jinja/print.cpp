// Values as text: str(), repr(), and json.dumps as Hugging Face's tojson calls it.
#include <charconv>
#include <cmath>

#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"

namespace skein::jinja {

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value,
                                    std::chars_format::scientific);  // d.ddde+xx, shortest
  const std::string_view text(buffer, static_cast<size_t>(result.ptr - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  const std::string_view exponent_text = text.substr(e + (text[e + 1] == '+' ? 2 : 1));
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  const std::string_view sign = text[0] == '-' ? "-" : "";
  std::string digits;
  for (char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  const std::string_view d = digits;
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}{}{}{}e{}{:02}", sign, d.substr(0, 1), d.size() > 1 ? "." : "",
                       d.substr(1), exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return fmt::format("{}0.{:0>{}}", sign, d, d.size() + static_cast<size_t>(-exponent - 1));
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (d.size() <= whole) return fmt::format("{}{:0<{}}.0", sign, d, whole);
  return fmt::format("{}{}.{}", sign, d.substr(0, whole), d.substr(whole));
}

namespace {

void append_string_repr(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out += quote;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = code_point_at(text, pos);
    if (c.value == static_cast<uint32_t>(quote) || c.value == '\\') {
      out += '\\';
      out += static_cast<char>(c.value);
    } else if (c.value == '\n') {
      out += "\\n";
    } else if (c.value == '\r') {
      out += "\\r";
    } else if (c.value == '\t') {
      out += "\\t";
    } else if (is_printable(c.value)) {
      out.append(text.substr(pos, c.length));
    } else if (c.value < 0x100) {
      out += fmt::format("\\x{:02x}", c.value);
    } else if (c.value < 0x10000) {
      out += fmt::format("\\u{:04x}", c.value);
    } else {
      out += fmt::format("\\U{:08x}", c.value);
    }
    pos += c.length;
  }
  out += quote;
}

// Writes one value's repr; the whole result counts as data when anything in it is.
class ReprWriter {
 public:
  explicit ReprWriter(Runtime& rt) : rt_(rt) {}

  Status write(const Value& value);
  MarkedText take() { return MarkedText(std::move(out_), !has_data_); }

 private:
  Status write_items(const std::vector<Value>& items, size_t from);
  Status write_dict(const std::vector<std::pair<Value, Value>>& entries);
  Status write_sequence(const Value& value);
  Status write_other(const Value& value);

  Runtime& rt_;
  std::string out_;
  bool has_data_ = false;
  uint32_t depth_ = 0;
};

Status ReprWriter::write_items(const std::vector<Value>& items, size_t from) {
  for (size_t i = from; i < items.size(); ++i) {
    if (i > from) out_ += ", ";
    SKEIN_TRY(write(items[i]));
  }
  return {};
}

Status ReprWriter::write_dict(const std::vector<std::pair<Value, Value>>& entries) {
  out_ += '{';
  bool first = true;
  for (const auto& [key, value] : entries) {
    if (!first) out_ += ", ";
    first = false;
    SKEIN_TRY(write(key));
    out_ += ": ";
    SKEIN_TRY(write(value));
  }
  out_ += '}';
  return {};
}

Status ReprWriter::write_sequence(const Value& value) {
  const SequenceObject& sequence = value.sequence();
  switch (value.kind()) {
    case Kind::kTuple:
      out_ += '(';
      SKEIN_TRY(write_items(sequence.items, 0));
      out_ += sequence.items.size() == 1 ? ",)" : ")";
      return {};
    case Kind::kView:
      out_ += fmt::format("{}([", sequence.label);
      SKEIN_TRY(write_items(sequence.items, 0));
      out_ += "])";
      return {};
    case Kind::kIterator:
      out_ += fmt::format("<{} object>", sequence.label);
      return {};
    default:
      out_ += '[';
      SKEIN_TRY(write_items(sequence.items, 0));
      out_ += ']';
      return {};
  }
}

Status ReprWriter::write_other(const Value& value) {
  if (value.is(Kind::kNamespace)) {
    has_data_ = true;  // its names may have come from outside
    out_ += "<Namespace {";
    bool first = true;
    for (const auto& [name, item] : value.as<NamespaceObject>().attributes) {
      if (!first) out_ += ", ";
      first = false;
      append_string_repr(out_, name);
      out_ += ": ";
      SKEIN_TRY(write(item));
    }
    out_ += "}>";
  } else if (value.is(Kind::kRange)) {
    const RangeObject& r = value.range();
    out_ += fmt::format("range({}, {}", r.start, r.at(r.count));
    out_ += r.step == 1 ? ")" : fmt::format(", {})", r.step);
  } else {
    out_ += fmt::format("<{} object>", type_name(value));
  }
  return {};
}

Status ReprWriter::write(const Value& value) {
  SKEIN_TRY(rt_.spend(1));
  SKEIN_TRY(rt_.expect_bytes(out_.size()));
  if (++depth_ > rt_.limits().depth) return invalid_argument("a value is nested too deep to print");
  Status status;
  has_data_ |= value.is_data();
  switch (value.kind()) {
    case Kind::kUndefined:
      out_ += "Undefined";
      break;
    case Kind::kNone:
      out_ += "None";
      break;
    case Kind::kBool:
      out_ += value.as_bool() ? "True" : "False";
      break;
    case Kind::kInt:
      out_ += std::to_string(value.as_int());
      break;
    case Kind::kFloat:
      out_ += python_float(value.as_double());
      break;
    case Kind::kString:
      has_data_ |= !value.text().from_template();
      SKEIN_TRY(rt_.spend(value.bytes().size() / 4));
      SKEIN_TRY(rt_.expect_bytes(out_.size() + value.bytes().size()));
      if (value.string().markup) {
        out_ += "Markup(";
        append_string_repr(out_, value.bytes());
        out_ += ')';
      } else {
        append_string_repr(out_, value.bytes());
      }
      break;
    case Kind::kDict:
      status = write_dict(value.dict().entries);
      break;
    default:
      status = value.is_sequence_object() ? write_sequence(value) : write_other(value);
      break;
  }
  --depth_;
  return status;
}

class JsonWriter {
 public:
  JsonWriter(Runtime& rt, const JsonStyle& style) : rt_(rt), style_(style) {}

  Status write(const Value& value);
  MarkedText take() { return MarkedText(std::move(out_), !has_data_); }

 private:
  Status write_string(const Value& value);
  Status write_list(const std::vector<Value>& items);
  Status write_dict(const DictObject& dict);
  Result<Value> key_text(const Value& key);
  void newline();

  Runtime& rt_;
  const JsonStyle& style_;
  std::string out_;
  bool has_data_ = false;
  uint32_t depth_ = 0;
};

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return python_float(value);
}

void JsonWriter::newline() {
  if (!style_.indent) return;
  out_ += '\n';
  for (uint32_t i = 0; i < depth_; ++i) out_ += *style_.indent;
}

Status JsonWriter::write_string(const Value& value) {
  const std::string& text = value.bytes();
  has_data_ |= !value.text().from_template();
  SKEIN_TRY(rt_.spend(text.size() / 8));
  SKEIN_TRY(rt_.expect_bytes(out_.size() + text.size()));
  out_ += '"';
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = code_point_at(text, pos);
    static constexpr std::string_view kShort = "\"\\\n\r\t\f\b";
    static constexpr std::string_view kLetter = "\"\\nrtfb";
    if (c.value >= 0x20 && c.value < 0x80 && c.value != '"' && c.value != '\\') {
      out_ += text[pos];
    } else if (const size_t i = c.value < 0x80 ? kShort.find(static_cast<char>(c.value))
                                               : std::string_view::npos;
               i != std::string_view::npos) {
      out_ += '\\';
      out_ += kLetter[i];
    } else if (c.value >= 0x20 && !style_.ensure_ascii) {
      out_.append(text, pos, c.length);
    } else if (c.value < 0x10000) {
      out_ += fmt::format("\\u{:04x}", c.value);
    } else {
      const uint32_t v = c.value - 0x10000;
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (v >> 10), 0xdc00 + (v & 0x3ff));
    }
    pos += c.length;
  }
  out_ += '"';
  return {};
}

Status JsonWriter::write_list(const std::vector<Value>& items) {
  if (items.empty()) {
    out_ += "[]";
    return {};
  }
  out_ += '[';
  ++depth_;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_ += style_.item_separator;
    newline();
    SKEIN_TRY(write(items[i]));
  }
  --depth_;
  newline();
  out_ += ']';
  return {};
}

Result<Value> JsonWriter::key_text(const Value& key) {
  switch (key.kind()) {
    case Kind::kString:
      return key;
    case Kind::kNone:
      return rt_.string("null", !key.is_data());
    case Kind::kBool:
      return rt_.string(key.as_bool() ? "true" : "false", !key.is_data());
    case Kind::kInt:
      return rt_.string(std::to_string(key.as_int()), !key.is_data());
    case Kind::kFloat:
      return rt_.string(json_float(key.as_double()), !key.is_data());
    default:
      return invalid_argument("tojson: keys must be str, int, float, bool or None, not {}",
                              type_name(key));
  }
}

Status JsonWriter::write_dict(const DictObject& dict) {
  if (dict.entries.empty()) {
    out_ += "{}";
    return {};
  }
  std::vector<size_t> order(dict.entries.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (style_.sort_keys) {
    std::vector<Value> keys;
    keys.reserve(dict.entries.size());
    for (const auto& [key, value] : dict.entries) keys.push_back(key);
    SKEIN_ASSIGN(order, sorted_order(rt_, keys, false));
  }
  out_ += '{';
  ++depth_;
  bool first = true;
  for (const size_t i : order) {
    if (!first) out_ += style_.item_separator;
    first = false;
    newline();
    SKEIN_ASSIGN(const Value key, key_text(dict.entries[i].first));
    SKEIN_TRY(write_string(key));
    out_ += style_.key_separator;
    SKEIN_TRY(write(dict.entries[i].second));
  }
  --depth_;
  newline();
  out_ += '}';
  return {};
}

Status JsonWriter::write(const Value& value) {
  SKEIN_TRY(rt_.spend(1 + (style_.indent ? depth_ * style_.indent->size() / 32 : 0)));
  SKEIN_TRY(rt_.expect_bytes(out_.size()));
  if (depth_ > rt_.limits().depth) return invalid_argument("tojson: a value is nested too deep");
  has_data_ |= value.is_data();
  switch (value.kind()) {
    case Kind::kNone:
      out_ += "null";
      return {};
    case Kind::kBool:
      out_ += value.as_bool() ? "true" : "false";
      return {};
    case Kind::kInt:
      out_ += std::to_string(value.as_int());
      return {};
    case Kind::kFloat:
      out_ += json_float(value.as_double());
      return {};
    case Kind::kString:
      return write_string(value);
    case Kind::kList:
    case Kind::kTuple:
      return write_list(value.items());
    case Kind::kDict:
      return write_dict(value.dict());
    default:
      return invalid_argument("tojson: an object of type {} is not JSON serializable",
                              type_name(value));
  }
}

}  // namespace

Result<MarkedText> to_repr(Runtime& rt, const Value& value) {
  ReprWriter writer(rt);
  SKEIN_TRY(writer.write(value));
  return writer.take();
}

Result<MarkedText> to_text(Runtime& rt, const Value& value) {
  if (value.is_string()) {
    SKEIN_TRY(rt.spend(value.text().held_bytes() / 32));  // of the copy
    return value.text();
  }
  if (value.is_undefined()) return MarkedText();
  return to_repr(rt, value);
}

Result<MarkedText> to_json(Runtime& rt, const Value& value, const JsonStyle& style) {
  JsonWriter writer(rt, style);
  SKEIN_TRY(writer.write(value));
  return writer.take();
}

}  // namespace skein::jinja
