// String operations that filters and methods share. Marks follow the bytes.
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"

namespace skein::jinja {

size_t find_first(std::string_view text, std::string_view needle) {
  const void* hit = memmem(text.data(), text.size(), needle.data(), needle.size());
  if (hit == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(hit) - text.data());
}

size_t find_last(std::string_view text, std::string_view needle) {
  if (needle.size() > text.size()) return std::string_view::npos;
  const std::string backwards(text.rbegin(), text.rend());
  const size_t at = find_first(backwards, std::string(needle.rbegin(), needle.rend()));
  return at == std::string_view::npos ? at : text.size() - at - needle.size();
}

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

}  // namespace skein::jinja
