// Values as text: str(), repr(), json.dumps as Hugging Face's tojson calls it, and the formats of
// "%-6.2f" % x and "{:>6.2f}".format(x).
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/python_text.h"
#include "text/jinja/runtime.h"

namespace skein::jinja {
namespace {

// repr() of a float.
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

// --- formats ---

namespace {

// How a value is laid out in a field.
struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // '<', '>', '^', '='; 0: numbers right, text left
  char sign = '-';
  bool thousands = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

constexpr int64_t kMaxPrecision = 300;

void group_thousands(std::string& digits) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t i = whole; i > 3; i -= 3) digits.insert(i - 3, 1, ',');
}

bool is_one_of(char c, std::string_view letters) {
  return letters.find(c) != std::string_view::npos;
}

// The digits of |value| in the spec's type, without sign.
Result<std::string> float_digits(double value, const FormatSpec& spec) {
  const double magnitude = std::fabs(value);
  if (spec.type == 0 && spec.precision < 0) return python_float(magnitude);
  const int64_t precision = spec.precision < 0 ? 6 : spec.precision;
  if (spec.type == '%') return fmt::format("{:.{}f}%", magnitude * 100, precision);
  const char type = spec.type == 0 ? 'g' : spec.type == 'F' ? 'f' : spec.type;
  if (!is_one_of(type, "feEgG")) {
    return invalid_argument("unknown format code '{}' for a float", spec.type);
  }
  const int64_t least = is_one_of(type, "gG") ? 1 : 0;
  const std::string layout = fmt::format("{{:.{}{}}}", std::max(precision, least), type);
  return fmt::format(fmt::runtime(layout), magnitude);
}

Result<std::string> int_digits(int64_t value, const FormatSpec& spec) {
  const uint64_t magnitude =
      value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  if (spec.type == 0 || is_one_of(spec.type, "diu")) return std::to_string(magnitude);
  if (!is_one_of(spec.type, "xXob")) return float_digits(static_cast<double>(value), spec);
  return fmt::format(fmt::runtime(fmt::format("{{:{}}}", spec.type)), magnitude);
}

Result<Value> padded(Runtime& rt, MarkedText text, const FormatSpec& spec, char default_align) {
  const char align = spec.align == 0 ? default_align : spec.align;
  Value value = rt.string(std::move(text));
  if (align == '^') {  // unlike str.center, the odd one goes right
    const auto length = static_cast<int64_t>(count_code_points(value.bytes()));
    if (spec.width > length) {
      const int64_t before = (spec.width - length) / 2;
      SKEIN_ASSIGN(value, pad_text(rt, value, length + before, spec.fill, Pad::kLeft));
    }
  }
  const Pad side = align == '<' || align == '^' ? Pad::kRight : Pad::kLeft;
  return pad_text(rt, value, spec.width, spec.fill, side);
}

// `value` is a number. Fails on a type letter that numbers do not have.
Result<Value> format_number(Runtime& rt, const Value& value, const FormatSpec& spec) {
  if (spec.precision > kMaxPrecision) {
    return invalid_argument("a precision of {} is more than {}", spec.precision, kMaxPrecision);
  }
  const bool negative =
      value.is(Kind::kFloat) ? std::signbit(value.as_double()) : value.as_int() < 0;
  SKEIN_ASSIGN(std::string digits, value.is(Kind::kFloat) ? float_digits(value.as_double(), spec)
                                                          : int_digits(value.as_int(), spec));
  if (spec.thousands) group_thousands(digits);
  const std::string sign = negative ? "-" : (spec.sign == '-' ? "" : std::string(1, spec.sign));
  const bool from_template = !value.is_data();
  if (spec.align == '=') {
    SKEIN_ASSIGN(const Value number,
                 pad_text(rt, rt.string(std::move(digits), from_template),
                          spec.width - static_cast<int64_t>(sign.size()), spec.fill, Pad::kLeft));
    MarkedText out(sign, from_template);
    out.append(number.text());
    return rt.string(std::move(out));
  }
  return padded(rt, MarkedText(sign + digits, from_template), spec, '>');
}

// Cut to the precision and padded; `default_align` where the spec has none.
Result<Value> format_text(Runtime& rt, MarkedText text, const FormatSpec& spec,
                          char default_align) {
  if (spec.precision >= 0) {
    text = text.slice(0, offset_of(text.bytes(), static_cast<size_t>(spec.precision)));
  }
  return padded(rt, std::move(text), spec, default_align);
}

// The digits at format[pos], which moves past them; -1 when there are none.
Result<int64_t> read_number(std::string_view format, size_t& pos) {
  const size_t begin = pos;
  while (pos < format.size() && format[pos] >= '0' && format[pos] <= '9') ++pos;
  if (pos == begin) return -1;
  int64_t value = 0;
  if (parse_int(format.substr(begin, pos - begin), 10, value) != ParseNumber::kOk) {
    return invalid_argument("a number in a format is too large");
  }
  return value;
}

// The place in a format string and in its arguments, and the text that was made of them so far.
class Formatter {
 protected:
  Formatter(Runtime& rt, const MarkedText& format)
      : rt_(rt), format_(format), text_(format.bytes()) {}

  Status append(const Result<Value>& piece) {
    SKEIN_TRY(piece.status());
    out_.append(piece->text());
    return {};
  }

  Runtime& rt_;
  const MarkedText& format_;
  std::string_view text_;
  MarkedText out_;
  size_t next_ = 0;  // of the arguments that have no name
};

class BraceFormatter : Formatter {
 public:
  BraceFormatter(Runtime& rt, const MarkedText& format, Args& args)
      : Formatter(rt, format), args_(args) {}

  Result<Value> run() {
    for (size_t pos = 0; pos < text_.size();) {
      const size_t brace = std::min(text_.find_first_of("{}", pos), text_.size());
      out_.append_range(format_, pos, brace);
      if (brace == text_.size()) break;
      if (brace + 1 < text_.size() && text_[brace + 1] == text_[brace]) {
        out_.append_range(format_, brace, brace + 1);
        pos = brace + 2;
        continue;
      }
      if (text_[brace] == '}') return invalid_argument("single '}}' encountered in format string");
      const size_t close = text_.find('}', brace);
      if (close == std::string_view::npos) {
        return invalid_argument("expected '}}' before end of string");
      }
      SKEIN_TRY(field(text_.substr(brace + 1, close - brace - 1)));
      SKEIN_TRY(rt_.expect_bytes(out_.held_bytes()));
      pos = close + 1;
    }
    return rt_.string(std::move(out_));
  }

 private:
  Status field(std::string_view field) {
    std::string_view spec_text;
    if (const size_t colon = field.find(':'); colon != std::string_view::npos) {
      spec_text = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = 0;
    if (const size_t bang = field.find('!'); bang != std::string_view::npos) {
      if (field.size() != bang + 2) return invalid_argument("bad conversion in a format field");
      conversion = field[bang + 1];
      field = field.substr(0, bang);
    }
    SKEIN_ASSIGN(Value value, lookup(field));
    if (conversion == 'r' || conversion == 's') {
      SKEIN_ASSIGN(MarkedText text, conversion == 'r' ? to_repr(rt_, value) : to_text(rt_, value));
      value = rt_.string(std::move(text));
    } else if (conversion != 0) {
      return invalid_argument("unknown conversion specifier '{}'", conversion);
    }
    FormatSpec spec;
    SKEIN_TRY(read_spec(spec_text, spec));
    const bool as_number = value.is(Kind::kInt) || value.is(Kind::kFloat) ||
                           (value.is(Kind::kBool) && !spec_text.empty());
    if (!as_number && spec.type != 0 && spec.type != 's') {
      return invalid_argument("unknown format code '{}' for '{}'", spec.type, type_name(value));
    }
    if (as_number) return append(format_number(rt_, value, spec));
    if (!value.is_string() && !spec_text.empty()) {
      return invalid_argument("unsupported format string passed to {}", type_name(value));
    }
    SKEIN_ASSIGN(MarkedText text, to_text(rt_, value));
    return append(format_text(rt_, std::move(text), spec, '<'));
  }

  // [[fill]align][sign][0][width][,][.precision][type]
  static Status read_spec(std::string_view text, FormatSpec& spec) {
    const auto is_align = [](char c) { return is_one_of(c, "<>^="); };
    size_t pos = 0;
    const size_t first = text.empty() ? 0 : code_point_at(text, 0).length;
    if (first < text.size() && is_align(text[first])) {
      spec.fill = std::string(text.substr(0, first));
      spec.align = text[first];
      pos = first + 1;
    } else if (!text.empty() && is_align(text[0])) {
      spec.align = text[0];
      pos = 1;
    }
    const auto at = [&] { return pos < text.size() ? text[pos] : '\0'; };
    if (at() == '+' || at() == '-' || at() == ' ') spec.sign = text[pos++];
    if (at() == '0' && spec.align == 0) {
      spec.fill.assign(1, '0');
      spec.align = '=';
    }
    SKEIN_ASSIGN(const int64_t width, read_number(text, pos));
    spec.width = std::max<int64_t>(width, 0);
    if (at() == ',') {
      spec.thousands = true;
      ++pos;
    }
    if (at() == '.') {
      ++pos;
      SKEIN_ASSIGN(spec.precision, read_number(text, pos));
      if (spec.precision < 0) return invalid_argument("format specifier missing precision");
    }
    if (pos < text.size()) spec.type = text[pos++];
    if (pos != text.size()) return invalid_argument("invalid format specifier");
    return {};
  }

  // "", "0", "name", then ".attribute" and "[item]" any number of times.
  Result<Value> lookup(std::string_view field) {
    const size_t end = std::min(field.find_first_of(".["), field.size());
    const std::string_view name = field.substr(0, end);
    Value value;
    int64_t index = 0;
    if (name.empty() || parse_int(name, 10, index) == ParseNumber::kOk) {
      const size_t i = name.empty() ? next_++ : static_cast<size_t>(index);
      if (i >= args_.positional.size()) {
        return invalid_argument("replacement index {} out of range for positional args", i);
      }
      value = args_.positional[i];
    } else {
      SKEIN_TRY(rt_.spend(args_.keywords.size() / 16));
      const auto it = std::find_if(args_.keywords.begin(), args_.keywords.end(),
                                   [name](const auto& kw) { return kw.first.bytes() == name; });
      if (it == args_.keywords.end()) return invalid_argument("no format argument '{}'", name);
      value = it->second;
    }
    return follow_path(rt_, std::move(value), field.substr(end));
  }

  Args& args_;
};

class PercentFormatter : Formatter {
 public:
  PercentFormatter(Runtime& rt, const MarkedText& format, const Value& arguments)
      : Formatter(rt, format), arguments_(arguments) {}

  Result<Value> run() {
    for (size_t pos = 0; pos < text_.size();) {
      const size_t percent = std::min(text_.find('%', pos), text_.size());
      out_.append_range(format_, pos, percent);
      pos = percent;
      if (percent < text_.size()) SKEIN_TRY(directive(pos));
      SKEIN_TRY(rt_.expect_bytes(out_.held_bytes()));
    }
    const bool all_used = arguments_.is(Kind::kTuple) ? next_ >= arguments_.items().size()
                                                      : next_ > 0 || arguments_.is_dict();
    if (!all_used) {
      return invalid_argument("not all arguments converted during string formatting");
    }
    return rt_.string(std::move(out_));
  }

 private:
  Status directive(size_t& pos) {
    ++pos;
    FormatSpec spec;
    Value value;
    bool has_key = false;
    if (pos < text_.size() && text_[pos] == '(') {
      const size_t close = text_.find(')', pos);
      if (close == std::string_view::npos) return invalid_argument("incomplete format key");
      if (!arguments_.is_dict()) return invalid_argument("format requires a mapping");
      const Value* found = arguments_.dict().find(text_.substr(pos + 1, close - pos - 1));
      if (found == nullptr) return invalid_argument("a format key is missing in the mapping");
      value = *found;
      has_key = true;
      pos = close + 1;
    }
    SKEIN_TRY(read_spec(spec, pos));
    if (pos >= text_.size()) return invalid_argument("incomplete format");
    spec.type = text_[pos++];
    if (spec.type == '%') {
      out_.append("%", true);
      return {};
    }
    if (!has_key) {
      SKEIN_ASSIGN(value, next_argument());
    }
    return append(convert(value, spec));
  }

  Status read_spec(FormatSpec& spec, size_t& pos) const {
    for (; pos < text_.size(); ++pos) {
      if (text_[pos] == '-') {
        spec.align = '<';
      } else if (text_[pos] == '0') {
        if (spec.align == 0) spec.align = '=', spec.fill.assign(1, '0');
      } else if (text_[pos] == '+' || text_[pos] == ' ') {
        if (spec.sign != '+') spec.sign = text_[pos];
      } else {
        break;
      }
    }
    SKEIN_ASSIGN(const int64_t width, read_number(text_, pos));
    spec.width = std::max<int64_t>(width, 0);
    if (pos < text_.size() && text_[pos] == '.') {
      ++pos;
      SKEIN_ASSIGN(const int64_t precision, read_number(text_, pos));
      spec.precision = std::max<int64_t>(precision, 0);
    }
    while (pos < text_.size() && is_one_of(text_[pos], "hlL")) ++pos;
    return {};
  }

  Result<Value> next_argument() {
    const size_t i = next_++;
    if (!arguments_.is(Kind::kTuple)) {
      if (i == 0) return arguments_;
    } else if (i < arguments_.items().size()) {
      return arguments_.items()[i];
    }
    return invalid_argument("not enough arguments for format string");
  }

  Result<Value> convert(const Value& value, const FormatSpec& spec) {
    if (is_one_of(spec.type, "sr")) {
      SKEIN_ASSIGN(MarkedText text, spec.type == 's' ? to_text(rt_, value) : to_repr(rt_, value));
      return format_text(rt_, std::move(text), plain(spec), '>');
    }
    if (is_one_of(spec.type, "diu") && value.is(Kind::kFloat)) {
      if (!(std::fabs(value.as_double()) < 9.2e18)) {
        return invalid_argument("%d: {} does not fit 64 bits", value.as_double());
      }
      return format_number(
          rt_, Value::integer(static_cast<int64_t>(value.as_double()), value.is_data()), spec);
    }
    if (is_one_of(spec.type, "diuxXo")) {
      if (!value.is_integral()) {
        return invalid_argument("%{} format: a number is required, not {}", spec.type,
                                type_name(value));
      }
      return format_number(rt_, Value::integer(value.as_int(), value.is_data()), spec);
    }
    if (!is_one_of(spec.type, "fFeEgG")) {
      return invalid_argument("unsupported format character '{}'", spec.type);
    }
    if (!value.is_number()) {
      return invalid_argument("must be real number, not {}", type_name(value));
    }
    return format_number(rt_, Value::real(value.as_double(), value.is_data()), spec);
  }

  // "%05s" pads with spaces.
  static FormatSpec plain(FormatSpec spec) {
    if (spec.align == '=') spec.align = 0, spec.fill.assign(1, ' ');
    return spec;
  }

  const Value& arguments_;
};

}  // namespace

Result<Value> brace_format(Runtime& rt, const MarkedText& format, Args& args) {
  SKEIN_TRY(rt.spend(1 + format.size() / 8));
  return BraceFormatter(rt, format, args).run();
}

Result<Value> percent_format(Runtime& rt, const MarkedText& format, const Value& arguments) {
  SKEIN_TRY(rt.spend(1 + format.size() / 8));
  return PercentFormatter(rt, format, arguments).run();
}

}  // namespace skein::jinja
