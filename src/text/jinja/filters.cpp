// Filters: of one value, which make text or numbers; of lists and dictionaries; and those that
// apply a filter or a test to every item.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "text/jinja/python_text.h"
#include "text/jinja/runtime.h"

namespace skein::jinja {
namespace {

// The input as a string value; Markup stays Markup.
Result<Value> soft_string(Runtime& rt, const Value& value) {
  if (value.is_string()) return value;
  SKEIN_ASSIGN(MarkedText text, to_text(rt, value));
  return rt.string(std::move(text));
}

Result<Value> filter_case(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const Value text, soft_string(rt, self));
  SKEIN_TRY(rt.spend(text.bytes().size() / 8));
  return rt.string(change_case(text.text(), a.name() == "upper"), text.string().markup);
}

Result<Value> filter_capitalize(Runtime& rt, const Value& self, const Bound&) {
  SKEIN_ASSIGN(const Value text, soft_string(rt, self));
  SKEIN_TRY(rt.spend(text.bytes().size() / 8));
  return rt.string(capitalize_text(text.text()));
}

// Words start after whitespace and after - ( { [ <.
Result<Value> filter_title(Runtime& rt, const Value& self, const Bound&) {
  SKEIN_ASSIGN(const Value value, soft_string(rt, self));
  const MarkedText& text = value.text();
  SKEIN_TRY(rt.spend(text.size()));
  MarkedText out;
  bool in_word = false;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = code_point_at(text.bytes(), pos);
    const bool separates = is_space(c.value) || c.value == '-' || c.value == '(' ||
                           c.value == '{' || c.value == '[' || c.value == '<';
    out.append(change_case(text.slice(pos, pos + c.length), !in_word));
    in_word = !separates;
    pos += c.length;
  }
  return rt.string(std::move(out));
}

Result<Value> trim(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const Value text, soft_string(rt, self));
  return strip_text(rt, text, a.value_or(0, Value::none()), true, true);
}

Result<Value> filter_replace(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const MarkedText text, to_text(rt, self));
  SKEIN_ASSIGN(const MarkedText from, to_text(rt, a[0]));
  SKEIN_ASSIGN(const MarkedText to, to_text(rt, a[1]));
  int64_t limit = -1;
  if (a.has(2) && !a[2].is_none()) {
    SKEIN_ASSIGN(limit, expect_int(a[2], "replace: the count"));
  }
  return replace_text(rt, text, from, to, limit, false);
}

Result<Value> to_string(Runtime& rt, const Value& self, const Bound&) {
  return soft_string(rt, self);
}

Result<Value> safe(Runtime& rt, const Value& self, const Bound&) {
  SKEIN_ASSIGN(MarkedText text, to_text(rt, self));
  return rt.string(std::move(text), true);
}

Result<Value> escape(Runtime& rt, const Value& self, const Bound& a) {
  const bool forced = a.name() == "forceescape";
  if (!forced && self.is_string() && self.string().markup) return self;
  SKEIN_ASSIGN(const MarkedText text, to_text(rt, self));
  SKEIN_TRY(rt.expect_bytes(text.held_bytes() * 6));
  SKEIN_TRY(rt.spend(text.size() / 8));
  return rt.string(escape_html(text), true);
}

Result<Value> indent(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const MarkedText* input, expect_string(self, "indent: the input"));
  MarkedText prefix("    ", true);
  if (a.has(0) && a[0].is_string()) {
    prefix = a[0].text();
  } else if (a.has(0)) {
    SKEIN_ASSIGN(const int64_t width, expect_int(a[0], "indent: the width"));
    SKEIN_TRY(rt.expect_bytes(static_cast<uint64_t>(std::max<int64_t>(width, 0))));
    prefix = MarkedText(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '), true);
  }
  const bool first = a.is_true(1);
  const bool blank = a.is_true(2);
  MarkedText text = *input;
  text.append("\n", true);  // as Jinja2 does, so that a last empty line counts
  SKEIN_ASSIGN(const std::vector<MarkedText> lines, split_lines(rt, text, false));
  SKEIN_TRY(rt.spend(lines.size() * (1 + prefix.held_bytes() / 32)));
  SKEIN_TRY(rt.expect_bytes(text.held_bytes() + lines.size() * (prefix.held_bytes() + 1)));
  MarkedText out;
  if (first) out.append(prefix);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out.append("\n", text.from_template());
      if (blank || !lines[i].empty()) out.append(prefix);
    }
    out.append(lines[i]);
    SKEIN_TRY(rt.expect_bytes(out.held_bytes()));
  }
  return rt.string(std::move(out), self.string().markup);
}

Result<Value> center(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const int64_t width, a.int_or(0, 80, "center: the width"));
  SKEIN_ASSIGN(const Value text, soft_string(rt, self));
  return pad_text(rt, text, width, " ", Pad::kBoth);
}

Result<Value> truncate(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const MarkedText* text, expect_string(self, "truncate: the input"));
  SKEIN_ASSIGN(const int64_t length, a.int_or(0, 255, "truncate: the length"));
  int64_t leeway = 5;
  MarkedText end("...", true);
  if (a.has(2)) {
    SKEIN_ASSIGN(const MarkedText* given, expect_string(a[2], "truncate: the end"));
    end = *given;
  }
  if (a.has(3) && !a[3].is_none()) {
    SKEIN_ASSIGN(leeway, expect_int(a[3], "truncate: the leeway"));
  }
  SKEIN_TRY(rt.spend((text->size() + end.held_bytes()) / 32));
  const auto end_length = static_cast<int64_t>(count_code_points(end.bytes()));
  if (length < end_length) {
    return invalid_argument("truncate: expected length >= {}, got {}", end_length, length);
  }
  if (leeway < 0) return invalid_argument("truncate: expected leeway >= 0, got {}", leeway);
  const auto size = static_cast<int64_t>(self.string().code_points());
  if (size <= length || size - length <= leeway) return self;
  MarkedText cut =
      text->slice(0, offset_of(text->bytes(), static_cast<size_t>(length - end_length)));
  if (!a.is_true(1)) {
    const size_t space = cut.bytes().rfind(' ');
    if (space != std::string::npos) cut = cut.slice(0, space);
  }
  cut.append(end);
  return rt.string(std::move(cut));
}

Result<Value> wordcount(Runtime& rt, const Value& self, const Bound&) {
  SKEIN_ASSIGN(const MarkedText text, to_text(rt, self));
  SKEIN_TRY(rt.spend(text.size() / 8));
  int64_t words = 0;
  bool in_word = false;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = code_point_at(text.bytes(), pos);
    if (is_word(c.value) && !in_word) ++words;
    in_word = is_word(c.value);
    pos += c.length;
  }
  return Value::integer(words);
}

Result<Value> filter_format(Runtime& rt, const Value& self, const Bound& a) {
  const Args& args = a.all();
  if (!args.positional.empty() && !args.keywords.empty()) {
    return invalid_argument("format: positional and keyword arguments can not be mixed");
  }
  SKEIN_ASSIGN(const Value text, soft_string(rt, self));
  if (args.keywords.empty()) {
    const Value tuple = rt.list(args.positional, Kind::kTuple);
    return percent_format(rt, text.text(), tuple);
  }
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, value] : args.keywords) entries.emplace_back(rt.string(name), value);
  SKEIN_ASSIGN(const Value dict, make_dict(rt, entries));
  return percent_format(rt, text.text(), dict);
}

Result<Value> tojson(Runtime& rt, const Value& self, const Bound& a) {
  JsonStyle style;
  style.ensure_ascii = a.is_true(0);
  style.sort_keys = a.is_true(3);
  if (a.has(1) && a[1].is_string()) {
    SKEIN_TRY(rt.spend(a[1].bytes().size() / 32));
    style.indent = a[1].bytes();
  } else if (a.has(1) && !a[1].is_none()) {
    SKEIN_ASSIGN(const int64_t width, expect_int(a[1], "tojson: indent"));
    constexpr int64_t kMaxIndent = 1000;
    if (width > kMaxIndent) {
      return invalid_argument("tojson: an indent of {} is more than {}", width, kMaxIndent);
    }
    style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  if (style.indent) style.item_separator.assign(1, ',');
  if (a.has(2) && !a[2].is_none()) {
    SKEIN_ASSIGN(const std::vector<Value> pair, iterate(rt, a[2]));
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      return invalid_argument("tojson: separators must be a pair of strings");
    }
    SKEIN_TRY(rt.spend((pair[0].bytes().size() + pair[1].bytes().size()) / 32));
    style.item_separator = pair[0].bytes();
    style.key_separator = pair[1].bytes();
  }
  SKEIN_ASSIGN(MarkedText text, to_json(rt, self, style));
  return rt.string(std::move(text));
}

void append_quoted(std::string& out, std::string_view text, bool in_query) {
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !in_query);
    if (plain) {
      out += c;
    } else if (c == ' ' && in_query) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
}

Result<Value> urlencode(Runtime& rt, const Value& self, const Bound&) {
  std::string out;
  bool from_template = true;
  const auto append = [&](const Value& value, bool in_query) -> Status {
    SKEIN_ASSIGN(const MarkedText text, to_text(rt, value));
    SKEIN_TRY(rt.expect_bytes(out.size() + 3 * text.size()));
    SKEIN_TRY(rt.spend(text.size() / 2));
    from_template &= text.from_template();
    append_quoted(out, text.bytes(), in_query);
    return {};
  };
  if (!self.is_dict() && !self.is_sequence_object()) {
    SKEIN_TRY(append(self, false));
    return rt.string(std::move(out), from_template);
  }
  if (!self.is_dict()) SKEIN_TRY(rt.spend(self.items().size()));
  SKEIN_ASSIGN(const std::vector<Value> pairs,
               self.is_dict() ? item_pairs(rt, self) : Result<std::vector<Value>>(self.items()));
  for (const Value& pair : pairs) {
    SKEIN_ASSIGN(const std::vector<Value> parts, iterate(rt, pair));
    if (parts.size() != 2) return invalid_argument("urlencode: expected pairs");
    if (!out.empty()) out += '&';
    SKEIN_TRY(append(parts[0], true));
    out += '=';
    SKEIN_TRY(append(parts[1], true));
  }
  return rt.string(std::move(out), from_template);
}

Result<Value> pprint(Runtime& rt, const Value& self, const Bound&) {
  SKEIN_ASSIGN(MarkedText text, to_repr(rt, self));
  constexpr size_t kLineWidth = 80;
  if (text.size() > kLineWidth && !self.is_string()) {
    return unimplemented("pprint: values over {} characters are not supported", kLineWidth);
  }
  return rt.string(std::move(text));
}

Result<Value> truncated(double value, const Value& fallback, bool data) {
  if (std::isnan(value)) return fallback;
  if (std::isinf(value)) return out_of_range("cannot convert float infinity to integer");
  if (!(std::fabs(value) < 9.223372036854775e18)) {
    return out_of_range("int: {} does not fit 64 bits", value);
  }
  return Value::integer(static_cast<int64_t>(value), data);
}

Result<Value> to_int(Runtime& rt, const Value& self, const Bound& a) {
  const Value fallback = a.value_or(0, Value::integer(0));
  if (self.is_undefined()) return undefined_error(self);
  if (self.is_integral()) return Value::integer(self.as_int(), self.is_data());
  if (self.is(Kind::kFloat)) return truncated(self.as_double(), fallback, self.is_data());
  if (!self.is_string()) return fallback;
  SKEIN_TRY(rt.spend(self.bytes().size() / 8));
  int64_t base = 10;
  if (a.has(1)) base = a[1].is_integral() ? a[1].as_int() : -1;  // a bad base reads no integer
  const bool data = !self.text().from_template();
  int64_t value = 0;
  switch (parse_int(self.bytes(), base < 0 || base > 36 ? 1 : static_cast<int>(base), value)) {
    case ParseNumber::kOk:
      return Value::integer(value, data);
    case ParseNumber::kTooLarge:
      return out_of_range("int: the number does not fit 64 bits");
    case ParseNumber::kBad:
      break;
  }
  double real = 0;
  if (!parse_float(self.bytes(), real)) return fallback;
  return truncated(real, fallback, data);
}

Result<Value> to_float(Runtime& rt, const Value& self, const Bound& a) {
  if (self.is_undefined()) return undefined_error(self);
  if (self.is_number()) return Value::real(self.as_double(), self.is_data());
  double value = 0;
  if (self.is_string()) SKEIN_TRY(rt.spend(self.bytes().size() / 8));
  if (self.is_string() && parse_float(self.bytes(), value)) {
    return Value::real(value, !self.text().from_template());
  }
  return a.value_or(0, Value::real(0));
}

Result<Value> absolute(Runtime&, const Value& self, const Bound&) {
  if (self.is_undefined()) return undefined_error(self);
  if (!self.is_number())
    return invalid_argument("bad operand type for abs(): '{}'", type_name(self));
  if (self.is(Kind::kFloat)) return Value::real(std::fabs(self.as_double()), self.is_data());
  return self.as_int() < 0 ? negate(self) : unary_plus(self);
}

// Half to even on the decimal that the double stands for, as Python rounds.
double round_to(double value, int64_t digits) {
  if (!std::isfinite(value)) return value;
  if (digits >= 0) {
    if (digits > 320) return value;
    return std::strtod(fmt::format("{:.{}f}", value, digits).c_str(), nullptr);
  }
  if (digits < -320) return std::copysign(0.0, value);
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / scale) * scale;
}

Result<Value> round_number(Runtime&, const Value& self, const Bound& a) {
  if (self.is_undefined()) return undefined_error(self);
  if (!self.is_number())
    return invalid_argument("round: a number is needed, not {}", type_name(self));
  SKEIN_ASSIGN(const int64_t precision, a.int_or(0, 0, "round: the precision"));
  const std::string method = a.has(1) && a[1].is_string() ? a[1].bytes() : "common";
  if (method == "common") {
    if (self.is_integral() && precision >= 0) return unary_plus(self);
    const double rounded = round_to(self.as_double(), precision);
    if (self.is_integral()) return truncated(rounded, self, self.is_data());
    return Value::real(rounded, self.is_data());
  }
  if (method != "ceil" && method != "floor") {
    return invalid_argument("round: method must be common, ceil or floor");
  }
  if (precision < -300 || precision > 300) {
    return out_of_range("round: a precision of {} is out of range", precision);
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = self.as_double() * scale;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale,
                     self.is_data());
}

// --- lists and dictionaries ---

Result<Value> call_by_name(Runtime& rt, const Native& native, const Value& item, const Args& args) {
  const Runtime::Nested nested(rt);
  SKEIN_TRY(nested.check());
  SKEIN_TRY(rt.spend(1 + args.positional.size() / 4));
  Args copy = args;
  return call_native(rt, native, item, copy);
}

// The filter or test that args.positional[at] names; the rest stay as its arguments.
Result<const Native*> take_function(Args& args, size_t at, bool is_test) {
  SKEIN_ASSIGN(const MarkedText* name, expect_string(args.positional[at], "the name"));
  const Native* native = is_test ? find_test(name->bytes()) : find_filter(name->bytes());
  if (native == nullptr) {
    return invalid_argument("no {} named '{}'", is_test ? "test" : "filter", name->bytes());
  }
  args.positional.erase(args.positional.begin(),
                        args.positional.begin() + static_cast<ptrdiff_t>(at) + 1);
  return native;
}

Result<Value> map_attribute(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(AttributePath path, AttributePath::parse(a[0]));
  if (a.has(1) && !a[1].is_none()) path.set_default(a[1]);
  SKEIN_ASSIGN(std::vector<Value> items, iterate(rt, self));
  for (Value& item : items) {
    SKEIN_ASSIGN(item, path.get(rt, item));
  }
  return rt.iterator(std::move(items), "generator");
}

constexpr Native kMapAttribute{"map", map_attribute, {"attribute", "default"}, 1};

Result<Value> map(Runtime& rt, const Value& self, const Bound& a) {
  Args& args = a.all();
  if (!truthy(self)) return rt.iterator({}, "generator");
  if (args.positional.empty()) {
    if (args.keywords.empty()) return invalid_argument("map requires a filter argument");
    return call_native(rt, kMapAttribute, self, args);
  }
  SKEIN_ASSIGN(const Native* filter, take_function(args, 0, false));
  SKEIN_ASSIGN(std::vector<Value> items, iterate(rt, self));
  for (Value& item : items) {
    SKEIN_ASSIGN(item, call_by_name(rt, *filter, item, args));
  }
  return rt.iterator(std::move(items), "generator");
}

// select, reject, selectattr, rejectattr
Result<Value> select(Runtime& rt, const Value& self, const Bound& a) {
  if (!truthy(self)) return rt.iterator({}, "generator");
  const bool keep = a.name().starts_with("select");
  const bool by_attribute = a.name().ends_with("attr");
  Args& args = a.all();
  AttributePath path;
  if (by_attribute) {
    if (args.positional.empty()) return invalid_argument("missing parameter for attribute name");
    SKEIN_ASSIGN(path, AttributePath::parse(args.positional[0]));
  }
  const Native* test = nullptr;
  if (args.positional.size() > (by_attribute ? 1 : 0)) {
    SKEIN_ASSIGN(test, take_function(args, by_attribute ? 1 : 0, true));
  }
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  std::vector<Value> out;
  for (const Value& item : items) {
    SKEIN_ASSIGN(Value value, path.get(rt, item));
    if (test != nullptr) {
      SKEIN_ASSIGN(value, call_by_name(rt, *test, value, args));
    }
    SKEIN_TRY(rt.spend(1));
    if (truthy(value) == keep) out.push_back(item);
  }
  return rt.iterator(std::move(out), "generator");
}

Result<Value> length(Runtime& rt, const Value& self, const Bound&) {
  SKEIN_ASSIGN(const int64_t n, length_of(rt, self));
  return Value::integer(n);
}

Result<Value> first(Runtime& rt, const Value& self, const Bound&) {
  if (self.is(Kind::kIterator)) {
    SequenceObject& sequence = self.sequence();
    if (sequence.next < sequence.items.size()) return sequence.items[sequence.next++];
  } else if (self.is_string() && !self.text().empty()) {
    return get_item(rt, self, Value::integer(0));
  } else {
    SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
    if (!items.empty()) return items.front();
  }
  return rt.undefined("No first item, sequence was empty.");
}

Result<Value> last(Runtime& rt, const Value& self, const Bound&) {
  if (self.is(Kind::kIterator)) return invalid_argument("'{}' is not reversible", type_name(self));
  if (self.is_string() && !self.text().empty()) return get_item(rt, self, Value::integer(-1));
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  if (!items.empty()) return items.back();
  return rt.undefined("No last item, sequence was empty.");
}

Result<Value> list(Runtime& rt, const Value& self, const Bound&) {
  SKEIN_ASSIGN(std::vector<Value> items, iterate(rt, self));
  return rt.list(std::move(items));
}

Result<Value> filter_join(Runtime& rt, const Value& self, const Bound& a) {
  MarkedText separator;
  if (a.has(0)) {
    SKEIN_ASSIGN(separator, to_text(rt, a[0]));
  }
  SKEIN_ASSIGN(std::vector<Value> items, iterate(rt, self));
  if (a.has(1) && !a[1].is_none()) {
    SKEIN_ASSIGN(const AttributePath path, AttributePath::parse(a[1]));
    for (Value& item : items) {
      SKEIN_ASSIGN(item, path.get(rt, item));
    }
  }
  return join_texts(rt, items, separator);
}

Result<Value> reverse(Runtime& rt, const Value& self, const Bound&) {
  if (self.is_string()) {
    return get_slice(rt, self, Value::none(), Value::none(), Value::integer(-1));
  }
  SKEIN_ASSIGN(std::vector<Value> items, iterate(rt, self));
  std::reverse(items.begin(), items.end());
  if (self.is(Kind::kIterator)) return rt.list(std::move(items));
  return rt.iterator(std::move(items), "list_reverseiterator");
}

Result<Value> unique(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const AttributePath path, AttributePath::parse(a.value_or(1, Value::none())));
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  std::set<std::string> seen;
  std::vector<Value> out;
  for (const Value& item : items) {
    SKEIN_ASSIGN(Value key, path.get(rt, item));
    if (!a.is_true(0)) key = ignore_case(rt, key);
    std::string text;
    if (!hash_key(key, text)) return invalid_argument("unhashable type: '{}'", type_name(key));
    SKEIN_TRY(rt.spend(1 + text.size() / 8));
    if (seen.insert(std::move(text)).second) out.push_back(item);
  }
  return rt.iterator(std::move(out), "generator");
}

Result<Value> dictsort(Runtime& rt, const Value& self, const Bound& a) {
  if (self.is_undefined()) return undefined_error(self);
  if (!self.is_dict()) return invalid_argument("dictsort: '{}' has no items()", type_name(self));
  const std::string by = a.has(1) && a[1].is_string() ? a[1].bytes() : "key";
  if (by != "key" && by != "value") {
    return invalid_argument("dictsort: you can only sort by either \"key\" or \"value\"");
  }
  std::vector<Value> keys;
  for (const auto& [key, value] : self.dict().entries) {
    const Value& wanted = by == "key" ? key : value;
    keys.push_back(a.is_true(0) ? wanted : ignore_case(rt, wanted));
    SKEIN_TRY(rt.spend(1));
  }
  SKEIN_ASSIGN(const std::vector<size_t> order, sorted_order(rt, keys, a.is_true(2)));
  SKEIN_ASSIGN(const std::vector<Value> pairs, item_pairs(rt, self));
  std::vector<Value> out;
  out.reserve(order.size());
  for (const size_t i : order) out.push_back(pairs[i]);
  return rt.list(std::move(out));
}

Result<Value> sort(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  SKEIN_ASSIGN(const std::vector<AttributePath> paths,
               AttributePath::parse_list(rt, a.value_or(2, Value::none())));
  const bool case_sensitive = a.is_true(1);
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) {
      SKEIN_ASSIGN(Value part, path.get(rt, item));
      key.push_back(case_sensitive ? part : ignore_case(rt, part));
    }
    keys.push_back(rt.list(std::move(key)));
    SKEIN_TRY(rt.spend(1));
  }
  SKEIN_ASSIGN(const std::vector<size_t> order, sorted_order(rt, keys, a.is_true(0)));
  std::vector<Value> out;
  out.reserve(order.size());
  for (const size_t i : order) out.push_back(items[i]);
  return rt.list(std::move(out));
}

Result<Value> extreme(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const AttributePath path, AttributePath::parse(a.value_or(1, Value::none())));
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  if (items.empty()) return rt.undefined("No aggregated item, sequence was empty.");
  const bool case_sensitive = a.is_true(0);
  size_t best = 0;
  Value best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    SKEIN_ASSIGN(Value key, path.get(rt, items[i]));
    if (!case_sensitive) key = ignore_case(rt, key);
    bool better = i == 0;
    if (i > 0) {
      SKEIN_ASSIGN(better,
                   a.name() == "max" ? less(rt, best_key, key, ">") : less(rt, key, best_key));
    }
    if (better) {
      best = i;
      best_key = std::move(key);
    }
  }
  return items[best];
}

Result<Value> sum(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const AttributePath path, AttributePath::parse(a.value_or(0, Value::none())));
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  Value total = a.value_or(1, Value::integer(0));
  if (total.is_string()) return invalid_argument("sum: can't sum strings; use join instead");
  for (const Value& item : items) {
    SKEIN_ASSIGN(const Value part, path.get(rt, item));
    SKEIN_ASSIGN(total, apply(rt, Op::kAdd, total, part));
    SKEIN_TRY(rt.spend(1));
  }
  return total;
}

Result<Value> batch(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const int64_t size, expect_int(a[0], "batch: the line count"));
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  std::vector<Value> out;
  std::vector<Value> line;
  for (const Value& item : items) {
    if (static_cast<int64_t>(line.size()) == size) {
      out.push_back(rt.list(std::exchange(line, {})));
    }
    line.push_back(item);
  }
  if (!line.empty()) {
    const auto have = static_cast<int64_t>(line.size());
    if (a.has(1) && !a[1].is_none() && have < size) {
      const auto missing = static_cast<uint64_t>(size - have);
      if (missing > rt.limits().memory_bytes / sizeof(Value)) {
        return resource_exhausted("batch: a line of {} items is too long", size);
      }
      SKEIN_TRY(rt.expect_bytes(missing * sizeof(Value)));
      line.insert(line.end(), missing, a[1]);
    }
    out.push_back(rt.list(std::move(line)));
  }
  return rt.iterator(std::move(out), "generator");
}

Result<Value> slice(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const int64_t slices, expect_int(a[0], "slice: the number of slices"));
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  if (slices == 0) return invalid_argument("integer division or modulo by zero");
  std::vector<Value> out;
  const auto size = static_cast<int64_t>(items.size());
  const int64_t per_slice = slices < 0 ? 0 : size / slices;
  const int64_t with_extra = slices < 0 ? 0 : size % slices;
  int64_t begin = 0;
  for (int64_t i = 0; i < slices; ++i) {
    SKEIN_TRY(rt.spend(1));
    const int64_t end = begin + per_slice + (i < with_extra ? 1 : 0);
    std::vector<Value> part(items.begin() + begin, items.begin() + end);
    if (a.has(1) && !a[1].is_none() && i >= with_extra) part.push_back(a[1]);
    out.push_back(rt.list(std::move(part)));
    begin = end;
  }
  return rt.iterator(std::move(out), "generator");
}

Result<Value> groupby(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(AttributePath path, AttributePath::parse(a[0]));
  if (a.has(1) && !a[1].is_none()) path.set_default(a[1]);
  const bool case_sensitive = a.is_true(2);
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  std::vector<Value> keys;
  for (const Value& item : items) {
    SKEIN_ASSIGN(const Value key, path.get(rt, item));
    keys.push_back(case_sensitive ? key : ignore_case(rt, key));
  }
  SKEIN_ASSIGN(const std::vector<size_t> order, sorted_order(rt, keys, false));
  std::vector<Value> out;
  for (size_t i = 0; i < order.size();) {
    std::vector<Value> group;
    const size_t head = order[i];
    for (; i < order.size(); ++i) {
      SKEIN_ASSIGN(const bool same, equals(rt, keys[order[i]], keys[head]));
      if (!same) break;
      group.push_back(items[order[i]]);
    }
    SKEIN_ASSIGN(const Value key, path.get(rt, items[head]));
    const Value pair = rt.list({key, rt.list(std::move(group))}, Kind::kTuple);
    pair.sequence().is_group = true;
    out.push_back(pair);
  }
  return rt.list(std::move(out));
}

Result<Value> items(Runtime& rt, const Value& self, const Bound&) {
  if (self.is_undefined()) return rt.iterator({}, "generator");
  if (!self.is_dict()) return invalid_argument("items: can only get item pairs from a mapping");
  SKEIN_ASSIGN(std::vector<Value> pairs, item_pairs(rt, self));
  return rt.iterator(std::move(pairs), "generator");
}

Result<Value> default_value(Runtime& rt, const Value& self, const Bound& a) {
  const bool use_default = self.is_undefined() || (a.is_true(1) && !truthy(self));
  if (!use_default) return self;
  return a.has(0) ? a[0] : rt.string("", true);
}

Result<Value> attribute(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const MarkedText* name, expect_string(a[0], "attr: the name"));
  if (self.is_dict() && find_method(self, name->bytes()) == nullptr) return rt.missing(self, a[0]);
  return get_attribute(rt, self, name->bytes());
}

Result<Value> not_provided(Runtime&, const Value&, const Bound&) {
  return unimplemented("this filter of Jinja2 is not provided");
}

constexpr Native kFilters[] = {
    {"upper", filter_case},
    {"lower", filter_case},
    {"capitalize", filter_capitalize},
    {"title", filter_title},
    {"trim", trim, {"chars"}},
    {"replace", filter_replace, {"old", "new", "count"}, 2},
    {"string", to_string},
    {"safe", safe},
    {"escape", escape},
    {"e", escape, {}, 0, "escape"},
    {"forceescape", escape},
    {"indent", indent, {"width", "first", "blank"}},
    {"center", center, {"width"}},
    {"truncate", truncate, {"length", "killwords", "end", "leeway"}},
    {"wordcount", wordcount},
    {"format", filter_format, {}, Native::kAnyArguments},
    {"tojson", tojson, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"urlencode", urlencode},
    {"pprint", pprint},
    {"int", to_int, {"default", "base"}},
    {"float", to_float, {"default"}},
    {"abs", absolute},
    {"round", round_number, {"precision", "method"}},
    {"map", map, {}, Native::kAnyArguments},
    {"select", select, {}, Native::kAnyArguments},
    {"reject", select, {}, Native::kAnyArguments},
    {"selectattr", select, {}, Native::kAnyArguments},
    {"rejectattr", select, {}, Native::kAnyArguments},
    {"length", length},
    {"count", length, {}, 0, "length"},
    {"first", first},
    {"last", last},
    {"list", list},
    {"join", filter_join, {"d", "attribute"}},
    {"reverse", reverse},
    {"unique", unique, {"case_sensitive", "attribute"}},
    {"dictsort", dictsort, {"case_sensitive", "by", "reverse"}},
    {"sort", sort, {"reverse", "case_sensitive", "attribute"}},
    {"max", extreme, {"case_sensitive", "attribute"}},
    {"min", extreme, {"case_sensitive", "attribute"}},
    {"sum", sum, {"attribute", "start"}},
    {"batch", batch, {"linecount", "fill_with"}, 1},
    {"slice", slice, {"slices", "fill_with"}, 1},
    {"groupby", groupby, {"attribute", "default", "case_sensitive"}, 1},
    {"items", items},
    {"default", default_value, {"default_value", "boolean"}},
    {"d", default_value, {"default_value", "boolean"}, 0, "default"},
    {"attr", attribute, {"name"}, 1},
    // Jinja2 knows these, so a template may name them; no chat template has a use for them.
    {"random", not_provided, {}, Native::kAnyArguments},
    {"filesizeformat", not_provided, {}, Native::kAnyArguments},
    {"striptags", not_provided, {}, Native::kAnyArguments},
    {"urlize", not_provided, {}, Native::kAnyArguments},
    {"wordwrap", not_provided, {}, Native::kAnyArguments},
    {"xmlattr", not_provided, {}, Native::kAnyArguments},
};

}  // namespace

const Native* find_filter(std::string_view name) {
  return find_native(kFilters, name);
}

}  // namespace skein::jinja
