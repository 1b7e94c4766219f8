// Operations on values, which the interpreter, filters, tests and methods are made of. They count
// their work and the memory they take with the Runtime.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace skein::jinja {

// --- printing (print.cpp) ---
std::string python_float(double value);
Result<MarkedText> to_text(Runtime& rt, const Value& value);  // str()
Result<MarkedText> to_repr(Runtime& rt, const Value& value);  // repr()
struct JsonStyle {
  std::optional<std::string> indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};
Result<MarkedText> to_json(Runtime& rt, const Value& value, const JsonStyle& style);

// --- access (access.cpp) ---
// a.b: attribute first, then item. a[b]: item first, then attribute.
Result<Value> get_attribute(Runtime& rt, const Value& object, std::string_view name);
Result<Value> get_item(Runtime& rt, const Value& object, const Value& key);
Result<Value> get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop,
                        const Value& step);
// All that iterating over the value gives; empties an iterator.
Result<std::vector<Value>> iterate(Runtime& rt, const Value& value);
Result<int64_t> length_of(Runtime& rt, const Value& value);
// ".attribute" and "[item]" any number of times, as str.format() reads them.
Result<Value> follow_path(Runtime& rt, Value value, std::string_view path);

// "a.b.0" as the attribute arguments of filters mean it.
class AttributePath {
 public:
  // A string, an integer or None (the item itself).
  static Result<AttributePath> parse(const Value& attribute);
  // "a.b,c": several paths.
  static Result<std::vector<AttributePath>> parse_list(Runtime& rt, const Value& attribute);

  // A step that is undefined gives this instead.
  void set_default(Value value) {
    default_ = std::move(value);
    has_default_ = true;
  }
  Result<Value> get(Runtime& rt, const Value& item) const;

 private:
  struct Part {
    std::string name;
    int64_t index = 0;
    bool is_index = false;
  };
  std::vector<Part> parts_;
  Value default_;
  bool has_default_ = false;
};

// Strings in lower case, everything else as it is.
Value ignore_case(Runtime& rt, const Value& value);

// --- operators (operators.cpp) ---
Result<Value> apply(Runtime& rt, Op op, const Value& a, const Value& b);  // arithmetic
Result<Value> negate(const Value& a);
Result<Value> unary_plus(const Value& a);
// ==, <, in and their kin.
Result<bool> compare(Runtime& rt, Op op, const Value& a, const Value& b);
Result<bool> equals(Runtime& rt, const Value& a, const Value& b);
Result<bool> less(Runtime& rt, const Value& a, const Value& b, std::string_view op = "<");
Result<bool> contains(Runtime& rt, const Value& container, const Value& item);
// Stable, by precomputed keys; fails on keys that have no order.
Result<std::vector<size_t>> sorted_order(Runtime& rt, const std::vector<Value>& keys, bool reverse);

// --- formatting (format.cpp) ---
Result<Value> percent_format(Runtime& rt, const MarkedText& format, const Value& arguments);
Result<Value> brace_format(Runtime& rt, const MarkedText& format, Args& args);

// --- strings (strings.cpp) ---
// Byte offset of the first or last `needle`, in linear time; npos when there is none.
size_t find_first(std::string_view text, std::string_view needle);
size_t find_last(std::string_view text, std::string_view needle);
// All of `needle` in `text`: byte offsets, not overlapping, at most `limit`.
Result<std::vector<size_t>> find_all(Runtime& rt, std::string_view text, std::string_view needle,
                                     int64_t limit);
Result<Value> strip_text(Runtime& rt, const Value& text, const Value& characters, bool left,
                         bool right);
Result<Value> replace_text(Runtime& rt, const MarkedText& text, const MarkedText& from,
                           const MarkedText& to, int64_t limit, bool markup);
Result<Value> join_texts(Runtime& rt, const std::vector<Value>& items, const MarkedText& separator);
enum class Pad : uint8_t { kLeft, kRight, kBoth };  // the side that is filled
Result<Value> pad_text(Runtime& rt, const Value& text, int64_t width, std::string_view fill,
                       Pad side);
MarkedText escape_html(const MarkedText& text);
MarkedText change_case(const MarkedText& text, bool upper);
MarkedText capitalize_text(const MarkedText& text);
Result<std::vector<MarkedText>> split_lines(Runtime& rt, const MarkedText& text, bool keep_ends);

}  // namespace skein::jinja
