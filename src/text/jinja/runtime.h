// A render as filters, tests, methods and operators see it: its heap, its budget, and the calls of
// native functions. One Runtime serves one render on one thread.
//
// Errors are Statuses without a line; the interpreter adds the line on the way out.
#pragma once

#include <array>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/template.h"
#include "text/jinja/value.h"

namespace skein::jinja {

class Runtime {
 public:
  Runtime(const Limits& limits, const std::optional<std::tm>& now) : limits_(limits), now_(now) {}

  Heap& heap() { return heap_; }
  const Limits& limits() const { return limits_; }
  const std::optional<std::tm>& now() const { return now_; }
  // The context, which the caller chose, does not count against the limits: nothing that was made
  // so far does.
  void forgive() {
    exempt_bytes_ = heap_.live_bytes();
    steps_ = 0;
  }

  // Counts work. Fails when the steps, the memory or the caller's time are used up.
  Status spend(uint64_t steps) {
    steps_ += steps;
    if (steps_ < next_check_ && heap_.live_bytes() <= limits_.memory_bytes + exempt_bytes_) {
      return {};
    }
    return check_budget();
  }
  // Fails when `bytes` more would not fit; called before anything that can multiply.
  Status expect_bytes(uint64_t bytes) const;
  uint64_t steps() const { return steps_; }

  // Counts nesting of anything that recurses with the template, for as long as it lives.
  class Nested {
   public:
    explicit Nested(Runtime& rt) : rt_(rt) { ++rt_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    ~Nested() { --rt_.depth_; }
    Status check() const {
      if (rt_.depth_ <= rt_.limits_.depth) return {};
      return resource_exhausted("the template nests more than {} deep", rt_.limits_.depth);
    }

   private:
    Runtime& rt_;
  };

  Value string(MarkedText text, bool markup = false);
  Value string(std::string bytes, bool from_template) {
    return string(MarkedText(std::move(bytes), from_template));
  }
  Value list(std::vector<Value> items, Kind kind = Kind::kList, const char* label = "");
  Value iterator(std::vector<Value> items, const char* label) {
    return list(std::move(items), Kind::kIterator, label);
  }
  Value range(int64_t start, int64_t step, int64_t count);
  Value function(const Native& native, Value self);
  Value undefined(std::string hint);
  // "'dict object' has no attribute 'x'", as Jinja2 puts it.
  Value missing(const Value& object, const Value& key);
  Value missing(const Value& object, std::string_view attribute);

 private:
  Status check_budget();

  const Limits& limits_;
  const std::optional<std::tm>& now_;
  Heap heap_;
  uint64_t steps_ = 0;
  uint64_t next_check_ = 1024;
  uint64_t exempt_bytes_ = 0;
  uint32_t depth_ = 0;
};

// Arguments that must have a type; they fail with the function's and the type's name.
Result<int64_t> expect_int(const Value& value, std::string_view what);
Result<const MarkedText*> expect_string(const Value& value, std::string_view what);

// UndefinedError of an undefined value that is used.
Status undefined_error(const Value& value);

// The cost of a dictionary entry besides the key's text: values, index node, string header.
inline constexpr uint64_t kDictEntryBytes = 160;
// Fails on keys that are not hashable.
Result<Value> make_dict(Runtime& rt, const std::vector<std::pair<Value, Value>>& entries);
// (key, value) tuples.
Result<std::vector<Value>> item_pairs(Runtime& rt, const Value& dict);

// --- native functions ---

// The arguments of one call, spread over the parameters of the function.
class Bound {
 public:
  bool has(size_t i) const { return given_[i]; }
  const Value& operator[](size_t i) const { return values_[i]; }
  bool is_true(size_t i) const { return given_[i] && truthy(values_[i]); }
  Value value_or(size_t i, Value otherwise) const {
    if (given_[i]) return values_[i];
    return otherwise;
  }
  // An argument that must be an integer, or `otherwise` where there is none.
  Result<int64_t> int_or(size_t i, int64_t otherwise, std::string_view what) const {
    return given_[i] ? expect_int(values_[i], what) : otherwise;
  }
  // The name by which the function was found: one function can stand in several rows of a table.
  std::string_view name() const { return name_; }
  // The arguments as they were given, for functions that take any.
  Args& all() const { return *all_; }

 private:
  friend Result<Bound> bind(const Native& native, Args& args);
  static constexpr size_t kMaxParameters = 4;
  std::string_view name_;
  Args* all_ = nullptr;
  std::array<Value, kMaxParameters> values_;
  std::array<bool, kMaxParameters> given_{};
};

// Every filter, test, method and global: `self` is the input or the object.
using NativeFn = Result<Value> (*)(Runtime&, const Value& self, const Bound& a);

// One row of a table of native functions.
struct Native {
  static constexpr size_t kAnyArguments = SIZE_MAX;  // for `required`: Bound::all() has them

  std::string_view name;
  NativeFn fn;
  std::string_view parameters[4] = {};
  size_t required = 0;          // so many of the first parameters must be given
  std::string_view shown = {};  // the name in errors, where it is another one
};

const Native* find_native(std::span<const Native> table, std::string_view name);
// Fails when a required parameter is missing, or on an argument too many.
Result<Bound> bind(const Native& native, Args& args);
Result<Value> call_native(Runtime& rt, const Native& native, const Value& self, Args& args);

// The tables; null where there is no such name.
const Native* find_filter(std::string_view name);
const Native* find_test(std::string_view name);
const Native* find_global(std::string_view name);
const Native* find_string_method(std::string_view name);
// The method of a built-in type.
const Native* find_method(const Value& object, std::string_view name);
bool is_forbidden_method(const Value& object, std::string_view name);

// Operations on values, which the interpreter, filters, tests and methods are made of. They count
// their work and the memory they take with the Runtime.

// --- printing (format.cpp) ---
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

// --- access (operations.cpp) ---
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

// --- operators (operations.cpp) ---
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
// Byte offset of the first `needle`, in linear time; npos when there is none.
size_t find_first(std::string_view text, std::string_view needle);
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
