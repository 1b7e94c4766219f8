// What filters, tests, methods and operators see of a render: its heap, its budget, and the
// operations on values that they share. One Runtime serves one render on one thread.
//
// Errors are Statuses without a line; the interpreter adds the line on the way out.
#pragma once

#include <ctime>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/jinja/template.h"
#include "text/jinja/value.h"

namespace skein::jinja {

class Runtime {
 public:
  Runtime(const Limits& limits, const std::optional<std::tm>& now) : limits_(limits), now_(now) {}

  Heap& heap() { return heap_; }
  const Limits& limits() const { return limits_; }
  const std::optional<std::tm>& now() const { return now_; }
  // What was made so far (the context, which the caller chose) does not count against the limits.
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
  Value function(std::string_view name, NativeFn fn, Value self);
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

// Arguments of a call spread over named parameters.
class Bound {
 public:
  bool has(size_t i) const { return i < values_.size() && given_[i]; }
  const Value& operator[](size_t i) const { return values_[i]; }

 private:
  friend Result<Bound> bind(const Args&, std::string_view, std::initializer_list<std::string_view>,
                            size_t);
  std::vector<Value> values_;
  std::vector<bool> given_;
};
// Fails when one of the first `required` parameters is missing, or on an argument too many.
Result<Bound> bind(const Args& args, std::string_view function,
                   std::initializer_list<std::string_view> parameters, size_t required);

// Arguments that must have a type; they fail with the function's and the type's name.
Result<int64_t> expect_int(const Value& value, std::string_view what);
Result<const MarkedText*> expect_string(const Value& value, std::string_view what);

// UndefinedError of an undefined value that is used.
Status undefined_error(const Value& value);

// --- printing (print.cpp, json.cpp) ---
std::string python_float(double value);
Result<MarkedText> to_text(Runtime& rt, const Value& value);  // str()
Result<MarkedText> to_repr(Runtime& rt, const Value& value);  // repr()
MarkedText escape_html(const MarkedText& text);
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
// The method of a built-in type, or nothing (methods.cpp, string_methods.cpp).
NativeFn find_method(const Value& object, std::string_view name);
bool is_forbidden_method(const Value& object, std::string_view name);

// --- operators (operators.cpp) ---
Result<Value> add(Runtime& rt, const Value& a, const Value& b);
Result<Value> subtract(Runtime& rt, const Value& a, const Value& b);
Result<Value> multiply(Runtime& rt, const Value& a, const Value& b);
Result<Value> divide(Runtime& rt, const Value& a, const Value& b);
Result<Value> floor_divide(Runtime& rt, const Value& a, const Value& b);
Result<Value> modulo(Runtime& rt, const Value& a, const Value& b);
Result<Value> power(Runtime& rt, const Value& a, const Value& b);
Result<Value> negate(Runtime& rt, const Value& a);
Result<Value> unary_plus(Runtime& rt, const Value& a);

// --- comparison (compare.cpp) ---
Result<bool> equals(Runtime& rt, const Value& a, const Value& b);
Result<bool> less(Runtime& rt, const Value& a, const Value& b, std::string_view op = "<");
Result<bool> contains(Runtime& rt, const Value& container, const Value& item);
// Stable, by precomputed keys; fails on keys that have no order.
Result<std::vector<size_t>> sorted_order(Runtime& rt, const std::vector<Value>& keys, bool reverse);

// --- formatting (percent_format.cpp, brace_format.cpp) ---
Result<Value> percent_format(Runtime& rt, const MarkedText& format, const Value& arguments);
Result<Value> brace_format(Runtime& rt, const MarkedText& format, Args& args);

// --- tables ---
NativeFn find_filter(std::string_view name);
NativeFn find_test(std::string_view name);
NativeFn find_global(std::string_view name);

}  // namespace skein::jinja
