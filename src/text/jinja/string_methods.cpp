// Methods of Python's str.
#include <cstring>

#include "text/jinja/chars.h"
#include "text/jinja/natives.h"

namespace skein::jinja {
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

Result<Value> split_at(Runtime& rt, const Value& self, Args& args, bool from_right) {
  SKEIN_ASSIGN(const Bound a, bind(args, "split", {"sep", "maxsplit"}, 0));
  int64_t limit = -1;
  if (a.has(1)) {
    SKEIN_ASSIGN(limit, expect_int(a[1], "split(): maxsplit"));
  }
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

Result<Value> split(Runtime& rt, const Value& self, Args& args) {
  return split_at(rt, self, args, false);
}
Result<Value> rsplit(Runtime& rt, const Value& self, Args& args) {
  return split_at(rt, self, args, true);
}

Result<Value> splitlines(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "splitlines", {"keepends"}, 0));
  std::vector<Value> lines;
  SKEIN_ASSIGN(std::vector<MarkedText> parts,
               split_lines(rt, self.text(), a.has(0) && truthy(a[0])));
  for (MarkedText& line : parts) {
    SKEIN_TRY(rt.spend(1));
    lines.push_back(rt.string(std::move(line)));
  }
  return rt.list(std::move(lines));
}

template <bool kLeft, bool kRight>
Result<Value> strip(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "strip", {"chars"}, 0));
  return strip_text(rt, self, a.has(0) ? a[0] : Value::none(), kLeft, kRight);
}

bool has_affix(std::string_view text, std::string_view affix, bool at_end) {
  if (affix.size() > text.size()) return false;
  return text.substr(at_end ? text.size() - affix.size() : 0, affix.size()) == affix;
}

template <bool kAtEnd>
Result<Value> has_affixes(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a,
               bind(args, kAtEnd ? "endswith" : "startswith", {"affix", "start", "end"}, 1));
  Value part = self;
  if (a.has(1)) {
    SKEIN_ASSIGN(part, get_slice(rt, self, a[1], a.has(2) ? a[2] : Value::none(), Value::none()));
  }
  const std::vector<Value> one{a[0]};
  for (const Value& affix : a[0].is(Kind::kTuple) ? a[0].items() : one) {
    SKEIN_ASSIGN(const MarkedText* text, expect_string(affix, "startswith/endswith: the argument"));
    SKEIN_TRY(rt.spend(1 + text->size() / 64));
    if (has_affix(part.bytes(), text->bytes(), kAtEnd)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool kAtEnd>
Result<Value> remove_affix(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, kAtEnd ? "removesuffix" : "removeprefix", {"affix"}, 1));
  SKEIN_ASSIGN(const MarkedText* affix, expect_string(a[0], "the affix"));
  const MarkedText& text = self.text();
  SKEIN_TRY(rt.spend(1 + affix->size() / 64));
  if (affix->empty() || !has_affix(text.bytes(), affix->bytes(), kAtEnd)) return self;
  if (kAtEnd) return rt.string(text.slice(0, text.size() - affix->size()));
  return rt.string(text.slice(affix->size(), text.size()));
}

Result<Value> replace(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "replace", {"old", "new", "count"}, 2));
  SKEIN_ASSIGN(const MarkedText* from, expect_string(a[0], "replace(): the old text"));
  SKEIN_ASSIGN(const MarkedText* to, expect_string(a[1], "replace(): the new text"));
  int64_t limit = -1;
  if (a.has(2)) {
    SKEIN_ASSIGN(limit, expect_int(a[2], "replace(): the count"));
  }
  return replace_text(rt, self.text(), *from, *to, limit, self.string().markup);
}

template <bool kUpper>
Result<Value> change_case_method(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, kUpper ? "upper" : "lower", {}, 0));
  SKEIN_TRY(rt.spend(self.bytes().size() / 8));
  return rt.string(change_case(self.text(), kUpper), self.string().markup);
}

Result<Value> capitalize(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "capitalize", {}, 0));
  SKEIN_TRY(rt.spend(self.bytes().size() / 8));
  return rt.string(capitalize_text(self.text()));
}

Result<Value> title(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "title", {}, 0));
  const MarkedText& text = self.text();
  SKEIN_TRY(rt.spend(text.size()));
  MarkedText out;
  bool in_word = false;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = code_point_at(text.bytes(), pos);
    out.append(change_case(text.slice(pos, pos + c.length), !in_word));
    in_word = is_alpha(c.value);
    pos += c.length;
  }
  return rt.string(std::move(out));
}

Result<Value> swapcase(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "swapcase", {}, 0));
  const MarkedText& text = self.text();
  SKEIN_TRY(rt.spend(text.size()));
  MarkedText out;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = code_point_at(text.bytes(), pos);
    out.append(change_case(text.slice(pos, pos + c.length), !is_upper(c.value)));
    pos += c.length;
  }
  return rt.string(std::move(out));
}

Result<Value> join(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "join", {"iterable"}, 1));
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, a[0]));
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) {
      return invalid_argument("sequence item {}: expected str instance, {} found", i,
                              type_name(items[i]));
    }
  }
  return join_texts(rt, items, self.text());
}

Result<Value> format(Runtime& rt, const Value& self, Args& args) {
  return brace_format(rt, self.text(), args);
}

// Where `what` is, in code points, or -1.
Result<int64_t> find_position(Runtime& rt, const Value& self, const Value& what, bool last) {
  SKEIN_ASSIGN(const MarkedText* needle, expect_string(what, "find(): the text"));
  const std::string& text = self.bytes();
  SKEIN_TRY(rt.spend(1 + text.size() / 16));
  const size_t at = last ? find_last(text, needle->bytes()) : find_first(text, needle->bytes());
  if (at == std::string::npos) return -1;
  return static_cast<int64_t>(count_code_points(std::string_view(text).substr(0, at)));
}

template <bool kLast, bool kMustExist>
Result<Value> find(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, kMustExist ? "index" : "find", {"sub"}, 1));
  SKEIN_ASSIGN(const int64_t position, find_position(rt, self, a[0], kLast));
  if (kMustExist && position < 0) return invalid_argument("substring not found");
  return Value::integer(position);
}

Result<Value> count(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "count", {"sub"}, 1));
  SKEIN_ASSIGN(const MarkedText* needle, expect_string(a[0], "count(): the text"));
  SKEIN_ASSIGN(const std::vector<size_t> hits, find_all(rt, self.bytes(), needle->bytes(), -1));
  return Value::integer(static_cast<int64_t>(hits.size()));
}

// All characters pass, and there is at least one.
template <bool (*kPasses)(uint32_t)>
Result<Value> all_are(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "is...", {}, 0));
  const std::string& bytes = self.bytes();
  SKEIN_TRY(rt.spend(bytes.size() / 8));
  for (size_t pos = 0; pos < bytes.size();) {
    const CodePoint c = code_point_at(bytes, pos);
    if (!kPasses(c.value)) return Value::boolean(false);
    pos += c.length;
  }
  return Value::boolean(!bytes.empty());
}

template <bool kUpper>
Result<Value> is_case(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, kUpper ? "isupper" : "islower", {}, 0));
  SKEIN_TRY(rt.spend(self.bytes().size() / 8));
  return Value::boolean(has_only_case(self.bytes(), kUpper));
}

template <int kShareLeftPercent>
Result<Value> pad(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "center/ljust/rjust", {"width", "fillchar"}, 1));
  SKEIN_ASSIGN(const int64_t width, expect_int(a[0], "the width"));
  std::string fill = " ";
  if (a.has(1)) {
    SKEIN_ASSIGN(const MarkedText* text, expect_string(a[1], "the fill character"));
    if (count_code_points(text->bytes()) != 1) {
      return invalid_argument("the fill character must be exactly one character long");
    }
    fill = text->bytes();
  }
  return pad_text(rt, self, width, fill, kShareLeftPercent / 100.0);
}

Result<Value> zfill(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "zfill", {"width"}, 1));
  SKEIN_ASSIGN(const int64_t width, expect_int(a[0], "the width"));
  const MarkedText& text = self.text();
  const bool sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+');
  if (!sign) return pad_text(rt, self, width, "0", 1);
  SKEIN_ASSIGN(const Value rest,
               pad_text(rt, rt.string(text.slice(1, text.size())), width - 1, "0", 1));
  MarkedText out = text.slice(0, 1);
  out.append(rest.text());
  return rt.string(std::move(out));
}

template <bool kLast>
Result<Value> partition(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "partition", {"sep"}, 1));
  SKEIN_ASSIGN(const MarkedText* separator, expect_string(a[0], "partition(): the separator"));
  if (separator->empty()) return invalid_argument("empty separator");
  const MarkedText& text = self.text();
  SKEIN_TRY(rt.spend(1 + text.size() / 16));
  const size_t at = kLast ? find_last(text.bytes(), separator->bytes())
                          : find_first(text.bytes(), separator->bytes());
  const Value empty = rt.string("", true);
  if (at == std::string::npos) {
    if (kLast) return rt.list({empty, empty, self}, Kind::kTuple);
    return rt.list({self, empty, empty}, Kind::kTuple);
  }
  const size_t end = at + separator->size();
  return rt.list({rt.string(text.slice(0, at)), rt.string(text.slice(at, end)),
                  rt.string(text.slice(end, text.size()))},
                 Kind::kTuple);
}

constexpr NativeEntry kStringMethods[] = {
    {"split", split},
    {"rsplit", rsplit},
    {"splitlines", splitlines},
    {"strip", strip<true, true>},
    {"lstrip", strip<true, false>},
    {"rstrip", strip<false, true>},
    {"startswith", has_affixes<false>},
    {"endswith", has_affixes<true>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace},
    {"upper", change_case_method<true>},
    {"lower", change_case_method<false>},
    {"casefold", change_case_method<false>},
    {"capitalize", capitalize},
    {"title", title},
    {"swapcase", swapcase},
    {"join", join},
    {"format", format},
    {"find", find<false, false>},
    {"rfind", find<true, false>},
    {"index", find<false, true>},
    {"rindex", find<true, true>},
    {"count", count},
    {"isdigit", all_are<is_digit>},
    {"isdecimal", all_are<is_digit>},
    {"isnumeric", all_are<is_digit>},
    {"isalpha", all_are<is_alpha>},
    {"isalnum", all_are<is_alnum>},
    {"isspace", all_are<is_space>},
    {"isupper", is_case<true>},
    {"islower", is_case<false>},
    {"center", pad<50>},
    {"ljust", pad<0>},
    {"rjust", pad<100>},
    {"zfill", zfill},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
};

}  // namespace

NativeFn find_string_method(std::string_view name) {
  return find_native(kStringMethods, name);
}

}  // namespace skein::jinja
