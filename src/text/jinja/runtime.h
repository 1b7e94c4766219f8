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
const Native* find_sequence_filter(std::string_view name);  // of lists and dictionaries
const Native* find_test(std::string_view name);
const Native* find_global(std::string_view name);
const Native* find_string_method(std::string_view name);
// The method of a built-in type.
const Native* find_method(const Value& object, std::string_view name);
bool is_forbidden_method(const Value& object, std::string_view name);

}  // namespace skein::jinja
