// Methods of Python's str, and the operations on strings that filters share with them. Marks follow
// the bytes.
#include "text/jinja/python_text.h"
#include "text/jinja/runtime.h"

namespace skein::jinja {

size_t find_first(std::string_view text, std::string_view needle) {
  const void* hit = memmem(text.data(), text.size(), needle.data(), needle.size());
  if (hit == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(hit) - text.data());
}

namespace {

size_t find_last(std::string_view text, std::string_view needle) {
  if (needle.size() > text.size()) return std::string_view::npos;
  const std::string backwards(text.rbegin(), text.rend());
  const size_t at = find_first(backwards, std::string(needle.rbegin(), needle.rend()));
  return at == std::string_view::npos ? at : text.size() - at - needle.size();
}

// All of `needle` in `text`: byte offsets, not overlapping, at most `limit`.
Result<std::vector<size_t>> find_all(Runtime& rt, std::string_view text, std::string_view needle,
                                     int64_t limit) {
  SKEIN_TRY(rt.spend(1 + text.size() / 32));
  std::vector<size_t> found;
  const auto more = [&] { return limit < 0 || static_cast<int64_t>(found.size()) < limit; };
  if (needle.empty()) {  // before every character and at the end
    SKEIN_TRY(rt.expect_bytes(text.size() * sizeof(size_t)));
    for (size_t pos = 0; more();) {
      found.push_back(pos);
      if (pos >= text.size()) break;
      pos += code_point_at(text, pos).length;
    }
    return found;
  }
  for (size_t pos = 0; more() && pos < text.size();) {
    const size_t hit = find_first(text.substr(pos), needle);
    if (hit == std::string_view::npos) break;
    found.push_back(pos + hit);
    pos += hit + needle.size();
    SKEIN_TRY(rt.spend(1));
  }
  return found;
}

}  // namespace

Result<Value> strip_text(Runtime& rt, const Value& value, const Value& characters, bool left,
                         bool right) {
  const MarkedText& text = value.text();
  const std::string& bytes = text.bytes();
  SKEIN_TRY(rt.spend(1 + bytes.size() / 64));
  const bool markup = value.string().markup;
  if (characters.is_none()) {
    const Span span = strip_space(bytes, left, right);
    if (span.begin == 0 && span.end == bytes.size()) return value;
    return rt.string(text.slice(span.begin, span.end), markup);
  }
  SKEIN_ASSIGN(const MarkedText* set, expect_string(characters, "strip(): the characters"));
  SKEIN_TRY(rt.spend(set->size()));
  const auto in_set = [set](std::string_view character) {
    return find_first(set->bytes(), character) != std::string_view::npos;
  };
  size_t begin = 0;
  size_t end = bytes.size();
  while (left && begin < end) {
    const size_t size = code_point_at(bytes, begin).length;
    if (!in_set(std::string_view(bytes).substr(begin, size))) break;
    SKEIN_TRY(rt.spend(1 + set->size() / 32));
    begin += size;
  }
  while (right && begin < end) {
    size_t pos = end - 1;
    while (pos > begin && (static_cast<unsigned char>(bytes[pos]) & 0xc0) == 0x80) --pos;
    if (!in_set(std::string_view(bytes).substr(pos, end - pos))) break;
    SKEIN_TRY(rt.spend(1 + set->size() / 32));
    end = pos;
  }
  return rt.string(text.slice(begin, end), markup);
}

Result<Value> replace_text(Runtime& rt, const MarkedText& text, const MarkedText& from,
                           const MarkedText& to, int64_t limit, bool markup) {
  SKEIN_ASSIGN(const std::vector<size_t> hits, find_all(rt, text.bytes(), from.bytes(), limit));
  const uint64_t growth = hits.size() * to.held_bytes();
  SKEIN_TRY(rt.expect_bytes(text.held_bytes() + growth));
  SKEIN_TRY(rt.spend(growth / 32));
  MarkedText out;
  size_t pos = 0;
  for (const size_t hit : hits) {
    out.append_range(text, pos, hit);
    out.append(to);
    pos = hit + from.size();
    SKEIN_TRY(rt.expect_bytes(out.held_bytes()));
  }
  out.append_range(text, pos, text.size());
  return rt.string(std::move(out), markup);
}

Result<Value> join_texts(Runtime& rt, const std::vector<Value>& items,
                         const MarkedText& separator) {
  MarkedText out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(separator);
    SKEIN_TRY(rt.spend(1 + separator.held_bytes() / 32));
    if (items[i].is_string()) {
      SKEIN_TRY(rt.expect_bytes(out.held_bytes() + items[i].text().held_bytes()));
      SKEIN_TRY(rt.spend(items[i].text().held_bytes() / 32));
      out.append(items[i].text());
    } else {
      SKEIN_ASSIGN(const MarkedText text, to_text(rt, items[i]));
      out.append(text);
    }
    SKEIN_TRY(rt.expect_bytes(out.held_bytes()));
  }
  return rt.string(std::move(out));
}

Result<Value> pad_text(Runtime& rt, const Value& value, int64_t width, std::string_view fill,
                       Pad side) {
  const auto length = static_cast<int64_t>(value.string().code_points());
  if (width <= length) return value;
  const auto missing = static_cast<uint64_t>(width - length);
  if (missing > rt.limits().memory_bytes) {
    return resource_exhausted("a width of {} is more than {} bytes", width,
                              rt.limits().memory_bytes);
  }
  SKEIN_TRY(rt.expect_bytes(missing * fill.size()));
  SKEIN_TRY(rt.spend(missing / 8));
  uint64_t left = side == Pad::kLeft ? missing : 0;
  if (side == Pad::kBoth) {  // str.center puts the odd one left only when the width is odd
    left = missing / 2 + (missing & static_cast<uint64_t>(width) & 1);
  }
  MarkedText out;
  const bool mark = value.text().from_template();
  for (uint64_t i = 0; i < left; ++i) out.append(fill, mark);
  out.append(value.text());
  for (uint64_t i = left; i < missing; ++i) out.append(fill, mark);
  return rt.string(std::move(out), value.string().markup);
}

MarkedText escape_html(const MarkedText& text) {
  static constexpr std::string_view kSpecial = "&<>'\"";
  static constexpr std::string_view kEscaped[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  MarkedText out;
  text.for_each_run([&out](std::string_view run, bool from_template) {
    std::string escaped;
    for (const char c : run) {
      const size_t i = kSpecial.find(c);
      escaped += i == std::string_view::npos ? std::string_view(&c, 1) : kEscaped[i];
    }
    out.append(escaped, from_template);
  });
  return out;
}

MarkedText change_case(const MarkedText& text, bool upper) {
  MarkedText out;
  text.for_each_run(
      [&](std::string_view run, bool mark) { out.append(in_case(run, upper), mark); });
  return out;
}

MarkedText capitalize_text(const MarkedText& text) {
  if (text.empty()) return text;
  const size_t first = code_point_at(text.bytes(), 0).length;
  MarkedText out = change_case(text.slice(0, first), true);
  out.append(change_case(text.slice(first, text.size()), false));
  return out;
}

Result<std::vector<MarkedText>> split_lines(Runtime& rt, const MarkedText& text, bool keep_ends) {
  const std::string& bytes = text.bytes();
  std::vector<MarkedText> lines;
  size_t begin = 0;
  for (size_t pos = 0; pos < bytes.size();) {
    const CodePoint c = code_point_at(bytes, pos);
    const bool is_break = (c.value >= 0x0a && c.value <= 0x0d) ||
                          (c.value >= 0x1c && c.value <= 0x1e) || c.value == 0x85 ||
                          c.value == 0x2028 || c.value == 0x2029;
    size_t end = pos + c.length;
    if (is_break) {
      if (c.value == '\r' && end < bytes.size() && bytes[end] == '\n') ++end;
      SKEIN_TRY(rt.spend(1));
      SKEIN_TRY(rt.expect_bytes(2 * (lines.size() + 1) * sizeof(MarkedText)));
      lines.push_back(text.slice(begin, keep_ends ? end : pos));
      begin = end;
    }
    pos = end;
  }
  if (begin < bytes.size()) lines.push_back(text.slice(begin, bytes.size()));
  return lines;
}

// --- methods ---

namespace {

Result<std::vector<Value>> split_spaces(Runtime& rt, const MarkedText& text, int64_t limit) {
  const std::string& bytes = text.bytes();
  std::vector<Value> parts;
  size_t pos = strip_space(bytes, true, false).begin;
  while (pos < bytes.size()) {
    SKEIN_TRY(rt.spend(1));
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(rt.string(text.slice(pos, bytes.size())));
      break;
    }
    size_t end = pos;
    while (end < bytes.size() && !is_space(code_point_at(bytes, end).value)) {
      end += code_point_at(bytes, end).length;
    }
    parts.push_back(rt.string(text.slice(pos, end)));
    pos = end;
    while (pos < bytes.size() && is_space(code_point_at(bytes, pos).value)) {
      pos += code_point_at(bytes, pos).length;
    }
  }
  return parts;
}

// From the right: the last `limit` words, and before them what is left.
Result<std::vector<Value>> rsplit_spaces(Runtime& rt, const MarkedText& text, int64_t limit) {
  SKEIN_ASSIGN(std::vector<Value> words, split_spaces(rt, text, -1));
  if (limit < 0 || static_cast<int64_t>(words.size()) <= limit) return words;
  const size_t kept = static_cast<size_t>(limit);
  const std::string& bytes = text.bytes();
  size_t end = strip_space(bytes, false, true).end;
  for (size_t i = 0; i < kept; ++i) {
    end -= words[words.size() - 1 - i].bytes().size();
    end = strip_space(std::string_view(bytes).substr(0, end), false, true).end;
  }
  std::vector<Value> out;
  if (const size_t begin = strip_space(bytes, true, false).begin; begin < end) {
    out.push_back(rt.string(text.slice(0, end)));
  }
  out.insert(out.end(), words.end() - static_cast<ptrdiff_t>(kept), words.end());
  return out;
}

Result<Value> method_split(Runtime& rt, const Value& self, const Bound& a) {
  const bool from_right = a.name() == "rsplit";
  SKEIN_ASSIGN(const int64_t limit, a.int_or(1, -1, "split(): maxsplit"));
  const MarkedText& text = self.text();
  SKEIN_TRY(rt.spend(text.size() / 32));
  if (!a.has(0) || a[0].is_none()) {
    SKEIN_ASSIGN(std::vector<Value> parts,
                 from_right ? rsplit_spaces(rt, text, limit) : split_spaces(rt, text, limit));
    return rt.list(std::move(parts));
  }
  SKEIN_ASSIGN(const MarkedText* separator, expect_string(a[0], "split(): the separator"));
  if (separator->empty()) return invalid_argument("empty separator");
  SKEIN_ASSIGN(std::vector<size_t> hits,
               find_all(rt, text.bytes(), separator->bytes(), from_right ? -1 : limit));
  if (from_right && limit >= 0 && static_cast<int64_t>(hits.size()) > limit) {
    hits.erase(hits.begin(), hits.end() - static_cast<ptrdiff_t>(limit));
  }
  SKEIN_TRY(rt.expect_bytes(hits.size() * (sizeof(StringObject) + sizeof(Value))));
  std::vector<Value> parts;
  size_t pos = 0;
  for (const size_t hit : hits) {
    parts.push_back(rt.string(text.slice(pos, hit)));
    pos = hit + separator->size();
  }
  parts.push_back(rt.string(text.slice(pos, text.size())));
  return rt.list(std::move(parts));
}

Result<Value> method_split_lines(Runtime& rt, const Value& self, const Bound& a) {
  std::vector<Value> lines;
  SKEIN_ASSIGN(std::vector<MarkedText> parts, split_lines(rt, self.text(), a.is_true(0)));
  for (MarkedText& line : parts) {
    SKEIN_TRY(rt.spend(1));
    lines.push_back(rt.string(std::move(line)));
  }
  return rt.list(std::move(lines));
}

Result<Value> method_strip(Runtime& rt, const Value& self, const Bound& a) {
  return strip_text(rt, self, a.value_or(0, Value::none()), a.name() != "rstrip",
                    a.name() != "lstrip");
}

bool has_affix(std::string_view text, std::string_view affix, bool at_end) {
  if (affix.size() > text.size()) return false;
  return text.substr(at_end ? text.size() - affix.size() : 0, affix.size()) == affix;
}

Result<Value> has_affixes(Runtime& rt, const Value& self, const Bound& a) {
  Value part = self;
  if (a.has(1)) {
    SKEIN_ASSIGN(part, get_slice(rt, self, a[1], a.value_or(2, Value::none()), Value::none()));
  }
  const std::vector<Value> one{a[0]};
  for (const Value& affix : a[0].is(Kind::kTuple) ? a[0].items() : one) {
    SKEIN_ASSIGN(const MarkedText* text, expect_string(affix, "startswith/endswith: the argument"));
    SKEIN_TRY(rt.spend(1 + text->size() / 64));
    if (has_affix(part.bytes(), text->bytes(), a.name() == "endswith")) return Value::boolean(true);
  }
  return Value::boolean(false);
}

Result<Value> remove_affix(Runtime& rt, const Value& self, const Bound& a) {
  const bool at_end = a.name() == "removesuffix";
  SKEIN_ASSIGN(const MarkedText* affix, expect_string(a[0], "the affix"));
  const MarkedText& text = self.text();
  SKEIN_TRY(rt.spend(1 + affix->size() / 64));
  if (affix->empty() || !has_affix(text.bytes(), affix->bytes(), at_end)) return self;
  if (at_end) return rt.string(text.slice(0, text.size() - affix->size()));
  return rt.string(text.slice(affix->size(), text.size()));
}

Result<Value> method_replace(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const MarkedText* from, expect_string(a[0], "replace(): the old text"));
  SKEIN_ASSIGN(const MarkedText* to, expect_string(a[1], "replace(): the new text"));
  SKEIN_ASSIGN(const int64_t limit, a.int_or(2, -1, "replace(): the count"));
  return replace_text(rt, self.text(), *from, *to, limit, self.string().markup);
}

Result<Value> method_case(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_TRY(rt.spend(self.bytes().size() / 8));
  return rt.string(change_case(self.text(), a.name() == "upper"), self.string().markup);
}

Result<Value> method_capitalize(Runtime& rt, const Value& self, const Bound&) {
  SKEIN_TRY(rt.spend(self.bytes().size() / 8));
  return rt.string(capitalize_text(self.text()));
}

// title: upper case at the start of a word; swapcase: the other case.
Result<Value> change_each(Runtime& rt, const Value& self, const Bound& a) {
  const MarkedText& text = self.text();
  SKEIN_TRY(rt.spend(text.size()));
  MarkedText out;
  bool in_word = false;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = code_point_at(text.bytes(), pos);
    const bool upper = a.name() == "title" ? !in_word : !is_upper(c.value);
    out.append(change_case(text.slice(pos, pos + c.length), upper));
    in_word = is_alpha(c.value);
    pos += c.length;
  }
  return rt.string(std::move(out));
}

Result<Value> method_join(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, a[0]));
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) {
      return invalid_argument("sequence item {}: expected str instance, {} found", i,
                              type_name(items[i]));
    }
  }
  return join_texts(rt, items, self.text());
}

Result<Value> method_format(Runtime& rt, const Value& self, const Bound& a) {
  return brace_format(rt, self.text(), a.all());
}

// The position in code points; -1 where there is none, which index() and rindex() refuse.
Result<Value> find_position(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const MarkedText* needle, expect_string(a[0], "find(): the text"));
  const std::string& text = self.bytes();
  SKEIN_TRY(rt.spend(1 + text.size() / 16));
  const bool last = a.name().front() == 'r';
  const size_t at = last ? find_last(text, needle->bytes()) : find_first(text, needle->bytes());
  if (at != std::string::npos) {
    const size_t before = count_code_points(std::string_view(text).substr(0, at));
    return Value::integer(static_cast<int64_t>(before));
  }
  if (a.name().ends_with("index")) return invalid_argument("substring not found");
  return Value::integer(-1);
}

Result<Value> method_count(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const MarkedText* needle, expect_string(a[0], "count(): the text"));
  SKEIN_ASSIGN(const std::vector<size_t> hits, find_all(rt, self.bytes(), needle->bytes(), -1));
  return Value::integer(static_cast<int64_t>(hits.size()));
}

// All characters pass, and there is at least one.
template <bool (*kPasses)(uint32_t)>
Result<Value> all_are(Runtime& rt, const Value& self, const Bound&) {
  const std::string& bytes = self.bytes();
  SKEIN_TRY(rt.spend(bytes.size() / 8));
  for (size_t pos = 0; pos < bytes.size();) {
    const CodePoint c = code_point_at(bytes, pos);
    if (!kPasses(c.value)) return Value::boolean(false);
    pos += c.length;
  }
  return Value::boolean(!bytes.empty());
}

Result<Value> method_is_case(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_TRY(rt.spend(self.bytes().size() / 8));
  return Value::boolean(has_only_case(self.bytes(), a.name() == "isupper"));
}

Result<Value> method_pad(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const int64_t width, expect_int(a[0], "the width"));
  std::string fill = " ";
  if (a.has(1)) {
    SKEIN_ASSIGN(const MarkedText* text, expect_string(a[1], "the fill character"));
    if (count_code_points(text->bytes()) != 1) {
      return invalid_argument("the fill character must be exactly one character long");
    }
    fill = text->bytes();
  }
  const Pad side = a.name() == "center"  ? Pad::kBoth
                   : a.name() == "rjust" ? Pad::kLeft
                                         : Pad::kRight;
  return pad_text(rt, self, width, fill, side);
}

Result<Value> zfill(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const int64_t width, expect_int(a[0], "the width"));
  const MarkedText& text = self.text();
  const bool sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+');
  if (!sign) return pad_text(rt, self, width, "0", Pad::kLeft);
  SKEIN_ASSIGN(const Value rest,
               pad_text(rt, rt.string(text.slice(1, text.size())), width - 1, "0", Pad::kLeft));
  MarkedText out = text.slice(0, 1);
  out.append(rest.text());
  return rt.string(std::move(out));
}

Result<Value> partition(Runtime& rt, const Value& self, const Bound& a) {
  const bool last = a.name() == "rpartition";
  SKEIN_ASSIGN(const MarkedText* separator, expect_string(a[0], "partition(): the separator"));
  if (separator->empty()) return invalid_argument("empty separator");
  const MarkedText& text = self.text();
  SKEIN_TRY(rt.spend(1 + text.size() / 16));
  const size_t at = last ? find_last(text.bytes(), separator->bytes())
                         : find_first(text.bytes(), separator->bytes());
  const Value empty = rt.string("", true);
  if (at == std::string::npos) {
    if (last) return rt.list({empty, empty, self}, Kind::kTuple);
    return rt.list({self, empty, empty}, Kind::kTuple);
  }
  const size_t end = at + separator->size();
  return rt.list({rt.string(text.slice(0, at)), rt.string(text.slice(at, end)),
                  rt.string(text.slice(end, text.size()))},
                 Kind::kTuple);
}

constexpr Native kStringMethods[] = {
    {"split", method_split, {"sep", "maxsplit"}},
    {"rsplit", method_split, {"sep", "maxsplit"}, 0, "split"},
    {"splitlines", method_split_lines, {"keepends"}},
    {"strip", method_strip, {"chars"}},
    {"lstrip", method_strip, {"chars"}, 0, "strip"},
    {"rstrip", method_strip, {"chars"}, 0, "strip"},
    {"startswith", has_affixes, {"affix", "start", "end"}, 1},
    {"endswith", has_affixes, {"affix", "start", "end"}, 1},
    {"removeprefix", remove_affix, {"affix"}, 1},
    {"removesuffix", remove_affix, {"affix"}, 1},
    {"replace", method_replace, {"old", "new", "count"}, 2},
    {"upper", method_case},
    {"lower", method_case},
    {"casefold", method_case, {}, 0, "lower"},
    {"capitalize", method_capitalize},
    {"title", change_each},
    {"swapcase", change_each},
    {"join", method_join, {"iterable"}, 1},
    {"format", method_format, {}, Native::kAnyArguments},
    {"find", find_position, {"sub"}, 1},
    {"rfind", find_position, {"sub"}, 1, "find"},
    {"index", find_position, {"sub"}, 1},
    {"rindex", find_position, {"sub"}, 1, "index"},
    {"count", method_count, {"sub"}, 1},
    {"isdigit", all_are<is_digit>, {}, 0, "is..."},
    {"isdecimal", all_are<is_digit>, {}, 0, "is..."},
    {"isnumeric", all_are<is_digit>, {}, 0, "is..."},
    {"isalpha", all_are<is_alpha>, {}, 0, "is..."},
    {"isalnum", all_are<is_alnum>, {}, 0, "is..."},
    {"isspace", all_are<is_space>, {}, 0, "is..."},
    {"isupper", method_is_case},
    {"islower", method_is_case},
    {"center", method_pad, {"width", "fillchar"}, 1, "center/ljust/rjust"},
    {"ljust", method_pad, {"width", "fillchar"}, 1, "center/ljust/rjust"},
    {"rjust", method_pad, {"width", "fillchar"}, 1, "center/ljust/rjust"},
    {"zfill", zfill, {"width"}, 1},
    {"partition", partition, {"sep"}, 1},
    {"rpartition", partition, {"sep"}, 1, "partition"},
};

}  // namespace

const Native* find_string_method(std::string_view name) {
  return find_native(kStringMethods, name);
}

}  // namespace skein::jinja
