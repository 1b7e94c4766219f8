// Filters that make text.
#include <algorithm>

#include "text/jinja/chars.h"
#include "text/jinja/natives.h"

namespace skein::jinja {
namespace {

// The input as a string value; Markup stays Markup.
Result<Value> soft_string(Runtime& rt, const Value& value) {
  if (value.is_string()) return value;
  SKEIN_ASSIGN(MarkedText text, to_text(rt, value));
  return rt.string(std::move(text));
}

template <bool kUpper>
Result<Value> change_case_filter(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, kUpper ? "upper" : "lower", {}, 0));
  SKEIN_ASSIGN(const Value text, soft_string(rt, self));
  SKEIN_TRY(rt.spend(text.bytes().size() / 8));
  return rt.string(change_case(text.text(), kUpper), text.string().markup);
}

Result<Value> capitalize(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "capitalize", {}, 0));
  SKEIN_ASSIGN(const Value text, soft_string(rt, self));
  SKEIN_TRY(rt.spend(text.bytes().size() / 8));
  return rt.string(capitalize_text(text.text()));
}

// Words start after whitespace and after - ( { [ <.
Result<Value> title(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "title", {}, 0));
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

Result<Value> trim(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "trim", {"chars"}, 0));
  SKEIN_ASSIGN(const Value text, soft_string(rt, self));
  return strip_text(rt, text, a.has(0) ? a[0] : Value::none(), true, true);
}

Result<Value> replace(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "replace", {"old", "new", "count"}, 2));
  SKEIN_ASSIGN(const MarkedText text, to_text(rt, self));
  SKEIN_ASSIGN(const MarkedText from, to_text(rt, a[0]));
  SKEIN_ASSIGN(const MarkedText to, to_text(rt, a[1]));
  int64_t limit = -1;
  if (a.has(2) && !a[2].is_none()) {
    SKEIN_ASSIGN(limit, expect_int(a[2], "replace: the count"));
  }
  return replace_text(rt, text, from, to, limit, false);
}

Result<Value> to_string(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "string", {}, 0));
  return soft_string(rt, self);
}

Result<Value> safe(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "safe", {}, 0));
  SKEIN_ASSIGN(MarkedText text, to_text(rt, self));
  return rt.string(std::move(text), true);
}

Result<Value> escape(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "escape", {}, 0));
  if (self.is_string() && self.string().markup) return self;
  SKEIN_ASSIGN(const MarkedText text, to_text(rt, self));
  SKEIN_TRY(rt.expect_bytes(text.held_bytes() * 6));
  SKEIN_TRY(rt.spend(text.size() / 8));
  return rt.string(escape_html(text), true);
}

Result<Value> force_escape(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "forceescape", {}, 0));
  SKEIN_ASSIGN(const MarkedText text, to_text(rt, self));
  SKEIN_TRY(rt.expect_bytes(text.held_bytes() * 6));
  SKEIN_TRY(rt.spend(text.size() / 8));
  return rt.string(escape_html(text), true);
}

Result<Value> indent(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "indent", {"width", "first", "blank"}, 0));
  SKEIN_ASSIGN(const MarkedText* input, expect_string(self, "indent: the input"));
  MarkedText prefix("    ", true);
  if (a.has(0) && a[0].is_string()) {
    prefix = a[0].text();
  } else if (a.has(0)) {
    SKEIN_ASSIGN(const int64_t width, expect_int(a[0], "indent: the width"));
    SKEIN_TRY(rt.expect_bytes(static_cast<uint64_t>(std::max<int64_t>(width, 0))));
    prefix = MarkedText(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '), true);
  }
  const bool first = a.has(1) && truthy(a[1]);
  const bool blank = a.has(2) && truthy(a[2]);
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

Result<Value> center(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "center", {"width"}, 0));
  int64_t width = 80;
  if (a.has(0)) {
    SKEIN_ASSIGN(width, expect_int(a[0], "center: the width"));
  }
  SKEIN_ASSIGN(const Value text, soft_string(rt, self));
  return pad_text(rt, text, width, " ", 0.5);
}

Result<Value> truncate(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "truncate", {"length", "killwords", "end", "leeway"}, 0));
  SKEIN_ASSIGN(const MarkedText* text, expect_string(self, "truncate: the input"));
  int64_t length = 255;
  int64_t leeway = 5;
  MarkedText end("...", true);
  if (a.has(0)) {
    SKEIN_ASSIGN(length, expect_int(a[0], "truncate: the length"));
  }
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
  if (!(a.has(1) && truthy(a[1]))) {
    const size_t space = cut.bytes().rfind(' ');
    if (space != std::string::npos) cut = cut.slice(0, space);
  }
  cut.append(end);
  return rt.string(std::move(cut));
}

Result<Value> wordcount(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "wordcount", {}, 0));
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

Result<Value> format(Runtime& rt, const Value& self, Args& args) {
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

Result<Value> tojson(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a,
               bind(args, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0));
  JsonStyle style;
  style.ensure_ascii = a.has(0) && truthy(a[0]);
  style.sort_keys = a.has(3) && truthy(a[3]);
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

Result<Value> urlencode(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "urlencode", {}, 0));
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

Result<Value> pprint(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "pprint", {}, 0));
  SKEIN_ASSIGN(MarkedText text, to_repr(rt, self));
  constexpr size_t kLineWidth = 80;
  if (text.size() > kLineWidth && !self.is_string()) {
    return unimplemented("pprint: values over {} characters are not supported", kLineWidth);
  }
  return rt.string(std::move(text));
}

constexpr NativeEntry kTextFilters[] = {
    {"upper", change_case_filter<true>},
    {"lower", change_case_filter<false>},
    {"capitalize", capitalize},
    {"title", title},
    {"trim", trim},
    {"replace", replace},
    {"string", to_string},
    {"safe", safe},
    {"escape", escape},
    {"e", escape},
    {"forceescape", force_escape},
    {"indent", indent},
    {"center", center},
    {"truncate", truncate},
    {"wordcount", wordcount},
    {"format", format},
    {"tojson", tojson},
    {"urlencode", urlencode},
    {"pprint", pprint},
};

}  // namespace

NativeFn find_text_filter(std::string_view name) {
  return find_native(kTextFilters, name);
}

}  // namespace skein::jinja
