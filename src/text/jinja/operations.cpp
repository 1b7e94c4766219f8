// What can be done with values, by Python's rules: arithmetic, equality, order and membership;
// attributes, items and iteration. Integers are 64 bits wide; a result that does not fit is an
// error.
#include <algorithm>
#include <cmath>

#include "text/jinja/python_text.h"
#include "text/jinja/runtime.h"

namespace skein::jinja {
namespace {

Status unsupported(std::string_view op, const Value& a, const Value& b) {
  if (a.is_undefined()) return undefined_error(a);
  if (b.is_undefined()) return undefined_error(b);
  return invalid_argument("unsupported operand type(s) for {}: '{}' and '{}'", op, type_name(a),
                          type_name(b));
}

Status overflow(std::string_view op) {
  return out_of_range("integer overflow: the result of {} does not fit 64 bits", op);
}

bool both_integral(const Value& a, const Value& b) {
  return a.is_integral() && b.is_integral();
}

bool both_numbers(const Value& a, const Value& b) {
  return a.is_number() && b.is_number();
}

bool data_of(const Value& a, const Value& b) {
  return a.is_data() || b.is_data();
}

Result<Value> add_strings(Runtime& rt, const Value& a, const Value& b) {
  SKEIN_TRY(rt.expect_bytes(a.text().held_bytes() + b.text().held_bytes()));
  const bool markup = a.string().markup || b.string().markup;
  MarkedText text;
  text.append(markup && !a.string().markup ? escape_html(a.text()) : a.text());
  text.append(markup && !b.string().markup ? escape_html(b.text()) : b.text());
  return rt.string(std::move(text), markup);
}

// `times` copies of a string or list.
Result<Value> repeat(Runtime& rt, const Value& sequence, int64_t times) {
  const auto count = static_cast<uint64_t>(std::max<int64_t>(times, 0));
  const uint64_t size =
      sequence.is_string() ? sequence.text().held_bytes() : sequence.items().size() * sizeof(Value);
  if (size != 0 && count > rt.limits().memory_bytes / size) {
    return resource_exhausted("{} copies of {} bytes are more than {} bytes", count, size,
                              rt.limits().memory_bytes);
  }
  SKEIN_TRY(rt.expect_bytes(size * count));
  SKEIN_TRY(rt.spend(size * count / 32));
  if (size == 0) return sequence;
  if (sequence.is_string()) {
    MarkedText text;
    for (uint64_t i = 0; i < count; ++i) text.append(sequence.text());
    return rt.string(std::move(text), sequence.string().markup);
  }
  std::vector<Value> items;
  items.reserve(sequence.items().size() * count);
  for (uint64_t i = 0; i < count; ++i) {
    items.insert(items.end(), sequence.items().begin(), sequence.items().end());
  }
  return rt.list(std::move(items), sequence.kind());
}

bool repeatable(const Value& value) {
  return value.is_string() || value.is(Kind::kList) || value.is(Kind::kTuple);
}

Result<Value> integer_power(int64_t base, int64_t exponent, bool data) {
  if (exponent < 0) {
    if (base == 0) return invalid_argument("0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)), data);
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return overflow("**");
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow("**");
  }
  return Value::integer(result, data);
}

// Rounds towards minus infinity, as Python does.
int64_t floor_quotient(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

Result<Value> add(Runtime& rt, const Value& a, const Value& b) {
  if (both_integral(a, b)) {
    int64_t sum = 0;
    if (__builtin_add_overflow(a.as_int(), b.as_int(), &sum)) return overflow("+");
    return Value::integer(sum, data_of(a, b));
  }
  if (both_numbers(a, b)) return Value::real(a.as_double() + b.as_double(), data_of(a, b));
  if (a.is_string() && b.is_string()) return add_strings(rt, a, b);
  if (a.kind() == b.kind() && (a.is(Kind::kList) || a.is(Kind::kTuple))) {
    SKEIN_TRY(rt.expect_bytes((a.items().size() + b.items().size()) * sizeof(Value)));
    std::vector<Value> items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return rt.list(std::move(items), a.kind());
  }
  if (a.is_string() && !b.is_undefined()) {
    return invalid_argument("can only concatenate str (not \"{}\") to str", type_name(b));
  }
  return unsupported("+", a, b);
}

Result<Value> subtract(const Value& a, const Value& b) {
  if (both_integral(a, b)) {
    int64_t difference = 0;
    if (__builtin_sub_overflow(a.as_int(), b.as_int(), &difference)) return overflow("-");
    return Value::integer(difference, data_of(a, b));
  }
  if (both_numbers(a, b)) return Value::real(a.as_double() - b.as_double(), data_of(a, b));
  return unsupported("-", a, b);
}

Result<Value> multiply(Runtime& rt, const Value& a, const Value& b) {
  if (both_integral(a, b)) {
    int64_t product = 0;
    if (__builtin_mul_overflow(a.as_int(), b.as_int(), &product)) return overflow("*");
    return Value::integer(product, data_of(a, b));
  }
  if (both_numbers(a, b)) return Value::real(a.as_double() * b.as_double(), data_of(a, b));
  if (repeatable(a) && b.is_integral()) return repeat(rt, a, b.as_int());
  if (repeatable(b) && a.is_integral()) return repeat(rt, b, a.as_int());
  return unsupported("*", a, b);
}

Result<Value> divide(const Value& a, const Value& b) {
  if (!both_numbers(a, b)) return unsupported("/", a, b);
  if (b.as_double() == 0) return invalid_argument("division by zero");
  return Value::real(a.as_double() / b.as_double(), data_of(a, b));
}

Result<Value> floor_divide(const Value& a, const Value& b) {
  if (!both_numbers(a, b)) return unsupported("//", a, b);
  if (b.as_double() == 0) return invalid_argument("integer division or modulo by zero");
  if (both_integral(a, b)) {
    if (b.as_int() == -1 && a.as_int() == INT64_MIN) return overflow("//");
    return Value::integer(floor_quotient(a.as_int(), b.as_int()), data_of(a, b));
  }
  return Value::real(std::floor(a.as_double() / b.as_double()), data_of(a, b));
}

Result<Value> modulo(Runtime& rt, const Value& a, const Value& b) {
  if (a.is_string()) return percent_format(rt, a.text(), b);
  if (!both_numbers(a, b)) return unsupported("%", a, b);
  if (b.as_double() == 0) return invalid_argument("integer division or modulo by zero");
  if (both_integral(a, b)) {
    if (b.as_int() == -1) return Value::integer(0, data_of(a, b));
    const int64_t r = a.as_int() % b.as_int();
    const bool wrong_sign = r != 0 && (r < 0) != (b.as_int() < 0);
    return Value::integer(wrong_sign ? r + b.as_int() : r, data_of(a, b));
  }
  double r = std::fmod(a.as_double(), b.as_double());
  if (r != 0 && (r < 0) != (b.as_double() < 0)) r += b.as_double();
  if (r == 0) r = std::copysign(0.0, b.as_double());
  return Value::real(r, data_of(a, b));
}

Result<Value> power(const Value& a, const Value& b) {
  if (!both_numbers(a, b)) return unsupported("** or pow()", a, b);
  if (both_integral(a, b)) return integer_power(a.as_int(), b.as_int(), data_of(a, b));
  const double x = a.as_double();
  const double y = b.as_double();
  if (x == 0 && y < 0) return invalid_argument("0.0 cannot be raised to a negative power");
  if (x < 0 && std::floor(y) != y) return unimplemented("complex numbers are not supported");
  const double result = std::pow(x, y);
  if (std::isinf(result) && std::isfinite(x) && std::isfinite(y)) {
    return out_of_range("the result of ** is too large for a float");
  }
  return Value::real(result, data_of(a, b));
}

constexpr uint32_t kMaxCompareDepth = 100;

// -1, 0, 1; 2 when unordered (NaN). Exact where a 64-bit integer meets a double.
int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.as_int() < b.as_int() ? -1 : (a.as_int() > b.as_int() ? 1 : 0);
  }
  const long double x = a.is_integral() ? static_cast<long double>(a.as_int()) : a.as_double();
  const long double y = b.is_integral() ? static_cast<long double>(b.as_int()) : b.as_double();
  if (std::isnan(x) || std::isnan(y)) return 2;
  return x < y ? -1 : (x > y ? 1 : 0);
}

Result<bool> equals_at(Runtime& rt, const Value& a, const Value& b, uint32_t depth);

Result<bool> equal_items(Runtime& rt, const std::vector<Value>& a, const std::vector<Value>& b,
                         uint32_t depth) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    SKEIN_ASSIGN(const bool same, equals_at(rt, a[i], b[i], depth + 1));
    if (!same) return false;
  }
  return true;
}

Result<bool> equal_dicts(Runtime& rt, const DictObject& a, const DictObject& b, uint32_t depth) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    if (key.is_string()) SKEIN_TRY(rt.spend(key.bytes().size() / 32));
    const Value* other = b.find(key);
    if (other == nullptr) return false;
    SKEIN_ASSIGN(const bool same, equals_at(rt, value, *other, depth + 1));
    if (!same) return false;
  }
  return true;
}

Result<bool> equals_at(Runtime& rt, const Value& a, const Value& b, uint32_t depth) {
  SKEIN_TRY(rt.spend(1));
  if (depth > kMaxCompareDepth) return invalid_argument("values are nested too deep to compare");
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  if (a.same_object(b)) return true;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      SKEIN_TRY(rt.spend(std::min(a.bytes().size(), b.bytes().size()) / 64));
      return a.bytes() == b.bytes();
    case Kind::kList:
    case Kind::kTuple:
      return equal_items(rt, a.items(), b.items(), depth);
    case Kind::kDict:
      return equal_dicts(rt, a.dict(), b.dict(), depth);
    case Kind::kRange: {
      const RangeObject& x = a.range();
      const RangeObject& y = b.range();
      if (x.count != y.count) return false;
      if (x.count == 0) return true;
      return x.start == y.start && (x.count == 1 || x.step == y.step);
    }
    default:
      return false;
  }
}

Status no_order(const Value& a, const Value& b, std::string_view op) {
  if (a.is_undefined()) return undefined_error(a);
  if (b.is_undefined()) return undefined_error(b);
  return invalid_argument("'{}' not supported between instances of '{}' and '{}'", op, type_name(a),
                          type_name(b));
}

Result<bool> less_at(Runtime& rt, const Value& a, const Value& b, std::string_view op,
                     uint32_t depth) {
  SKEIN_TRY(rt.spend(1));
  if (depth > kMaxCompareDepth) return invalid_argument("values are nested too deep to compare");
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == -1;
  if (a.is_string() && b.is_string()) {
    SKEIN_TRY(rt.spend(std::min(a.bytes().size(), b.bytes().size()) / 64));
    return a.bytes() < b.bytes();  // UTF-8 sorts as its code points do
  }
  const bool sequences = a.kind() == b.kind() && (a.is(Kind::kList) || a.is(Kind::kTuple));
  if (!sequences) return no_order(a, b, op);
  const std::vector<Value>& x = a.items();
  const std::vector<Value>& y = b.items();
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    SKEIN_ASSIGN(const bool same, equals_at(rt, x[i], y[i], depth + 1));
    if (!same) return less_at(rt, x[i], y[i], op, depth + 1);
  }
  return x.size() < y.size();
}

}  // namespace

Result<Value> apply(Runtime& rt, Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::kAdd:
      return add(rt, a, b);
    case Op::kSubtract:
      return subtract(a, b);
    case Op::kMultiply:
      return multiply(rt, a, b);
    case Op::kDivide:
      return divide(a, b);
    case Op::kFloorDivide:
      return floor_divide(a, b);
    case Op::kModulo:
      return modulo(rt, a, b);
    default:
      return power(a, b);
  }
}

Result<Value> negate(const Value& a) {
  if (a.is(Kind::kFloat)) return Value::real(-a.as_double(), a.is_data());
  if (a.is_integral()) {
    if (a.as_int() == INT64_MIN) return overflow("-");
    return Value::integer(-a.as_int(), a.is_data());
  }
  if (a.is_undefined()) return undefined_error(a);
  return invalid_argument("bad operand type for unary -: '{}'", type_name(a));
}

Result<Value> unary_plus(const Value& a) {
  if (a.is(Kind::kFloat)) return a;
  if (a.is_integral()) return Value::integer(a.as_int(), a.is_data());
  if (a.is_undefined()) return undefined_error(a);
  return invalid_argument("bad operand type for unary +: '{}'", type_name(a));
}

Result<bool> equals(Runtime& rt, const Value& a, const Value& b) {
  return equals_at(rt, a, b, 0);
}

Result<bool> less(Runtime& rt, const Value& a, const Value& b, std::string_view op) {
  return less_at(rt, a, b, op, 0);
}

Result<bool> contains(Runtime& rt, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      if (item.is_undefined()) return undefined_error(item);
      return invalid_argument("'in <string>' requires string as left operand, not {}",
                              type_name(item));
    }
    const std::string& text = container.bytes();
    SKEIN_TRY(rt.spend(1 + text.size() / 64));
    return find_first(text, item.bytes()) != std::string::npos;
  }
  if (container.is_dict()) {
    if (item.is_string()) SKEIN_TRY(rt.spend(1 + item.bytes().size() / 64));
    std::string key;
    if (!hash_key(item, key)) return invalid_argument("unhashable type: '{}'", type_name(item));
    return container.dict().find(item) != nullptr;
  }
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, container));
  for (const Value& candidate : items) {
    SKEIN_ASSIGN(const bool same, equals(rt, candidate, item));
    if (same) return true;
  }
  return false;
}

Result<bool> compare(Runtime& rt, Op op, const Value& a, const Value& b) {
  if (op == Op::kIn || op == Op::kNotIn) {
    SKEIN_ASSIGN(const bool found, contains(rt, b, a));
    return found == (op == Op::kIn);
  }
  if (op == Op::kEqual || op == Op::kNotEqual) {
    SKEIN_ASSIGN(const bool same, equals(rt, a, b));
    return same == (op == Op::kEqual);
  }
  const bool swap = op == Op::kGreater || op == Op::kGreaterEqual;
  SKEIN_ASSIGN(const bool below, swap ? less(rt, b, a, ">") : less(rt, a, b, "<"));
  if (below || op == Op::kLess || op == Op::kGreater) return below;
  return equals(rt, a, b);
}

Result<std::vector<size_t>> sorted_order(Runtime& rt, const std::vector<Value>& keys,
                                         bool reverse) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::vector<size_t> merged(order.size());
  // A merge sort of our own: a comparison may fail, and may contradict itself (NaN).
  for (size_t width = 1; width < order.size(); width *= 2) {
    for (size_t begin = 0; begin < order.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, order.size());
      const size_t end = std::min(begin + 2 * width, order.size());
      size_t left = begin;
      size_t right = middle;
      for (size_t out = begin; out < end; ++out) {
        bool take_right = left == middle;
        if (left < middle && right < end) {
          const Value& a = keys[order[left]];
          const Value& b = keys[order[right]];
          SKEIN_ASSIGN(take_right, reverse ? less(rt, a, b) : less(rt, b, a));
        }
        merged[out] = order[take_right ? right++ : left++];
      }
    }
    order.swap(merged);
  }
  return order;
}

// --- attributes, items, slices, iteration, and the paths of attributes that filters take ---

namespace {

bool is_dunder(std::string_view name) {
  return name.size() > 4 && name.substr(0, 2) == "__" && name.substr(name.size() - 2) == "__";
}

// The attribute of a value that is no dictionary key; null when there is none.
Result<bool> find_attribute(Runtime& rt, const Value& object, std::string_view name, Value& out) {
  if (is_dunder(name) || is_forbidden_method(object, name)) {
    out = rt.undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(object)));
    return true;
  }
  if (const Native* method = find_method(object, name); method != nullptr) {
    out = rt.function(*method, object);
    return true;
  }
  if (object.is(Kind::kNamespace)) {
    const auto& attributes = object.as<NamespaceObject>().attributes;
    const auto it = attributes.find(name);
    if (it == attributes.end()) return false;
    out = it->second;
    return true;
  }
  if (object.is(Kind::kTuple) && object.sequence().is_group) {
    if (name != "grouper" && name != "list") return false;
    out = object.items()[name == "grouper" ? 0 : 1];
    return true;
  }
  if (object.is(Kind::kCycler) && name == "current") {
    const CyclerObject& cycler = object.as<CyclerObject>();
    out = cycler.items[cycler.position];
    return true;
  }
  return false;
}

// The item at `index` (negative: from the end) of a list, tuple, range or string.
Result<bool> find_index(Runtime& rt, const Value& object, int64_t index, Value& out) {
  SKEIN_ASSIGN(const int64_t length, length_of(rt, object));
  if (index < 0) index += length;
  if (index < 0 || index >= length) return false;
  const auto i = static_cast<size_t>(index);
  if (object.is(Kind::kRange)) {
    out = Value::integer(object.range().at(index));
  } else if (object.is_string()) {
    const MarkedText& text = object.text();
    const bool ascii = static_cast<size_t>(length) == text.size();
    if (!ascii) SKEIN_TRY(rt.spend(text.size() / 32));
    const size_t begin = ascii ? i : offset_of(text.bytes(), i);
    const size_t size = code_point_at(text.bytes(), begin).length;
    out = rt.string(text.slice(begin, begin + size), object.string().markup);
  } else {
    out = object.items()[i];
  }
  return true;
}

bool is_indexable(const Value& value) {
  return value.is_string() || value.is(Kind::kList) || value.is(Kind::kTuple) ||
         value.is(Kind::kRange);
}

struct SliceIndices {
  int64_t start;
  int64_t stop;
  int64_t step;
  int64_t count;
};

// Python's slice.indices().
Result<SliceIndices> slice_indices(const Value& start, const Value& stop, const Value& step,
                                   int64_t length) {
  const auto part = [](const Value& value, int64_t none) -> Result<int64_t> {
    if (value.is_none()) return none;
    return expect_int(value, "a slice index");
  };
  SKEIN_ASSIGN(const int64_t by, part(step, 1));
  if (by == 0) return invalid_argument("slice step cannot be zero");
  const int64_t low = by < 0 ? -1 : 0;
  const int64_t high = by < 0 ? length - 1 : length;
  const auto place = [&](int64_t i) {
    if (i < 0) i = i < -length ? low : i + length;
    return std::clamp(i, low, high);
  };
  SliceIndices out{by < 0 ? high : low, by < 0 ? low : high, by, 0};
  if (!start.is_none()) {
    SKEIN_ASSIGN(const int64_t i, part(start, 0));
    out.start = place(i);
  }
  if (!stop.is_none()) {
    SKEIN_ASSIGN(const int64_t i, part(stop, 0));
    out.stop = place(i);
  }
  const int64_t span = by < 0 ? out.start - out.stop : out.stop - out.start;
  const uint64_t stride = by < 0 ? ~static_cast<uint64_t>(by) + 1 : static_cast<uint64_t>(by);
  if (span > 0) out.count = static_cast<int64_t>((static_cast<uint64_t>(span) - 1) / stride + 1);
  return out;
}

Result<Value> slice_string(Runtime& rt, const Value& object, const SliceIndices& s) {
  const MarkedText& text = object.text();
  SKEIN_TRY(rt.spend(text.size() / 32));
  const bool ascii = object.string().code_points() == text.size();
  const auto offset = [&](int64_t i) {
    return ascii ? static_cast<size_t>(i) : offset_of(text.bytes(), static_cast<size_t>(i));
  };
  MarkedText out;
  if (s.step == 1) {
    if (s.count > 0) out.append_range(text, offset(s.start), offset(s.start + s.count));
    return rt.string(std::move(out), object.string().markup);
  }
  SKEIN_TRY(rt.spend(static_cast<uint64_t>(s.count)));
  std::vector<size_t> starts;
  if (!ascii) {
    SKEIN_TRY(rt.expect_bytes(text.size() * sizeof(size_t)));
    for (size_t pos = 0; pos < text.size(); pos += code_point_at(text.bytes(), pos).length) {
      starts.push_back(pos);
    }
  }
  for (int64_t n = 0, i = s.start; n < s.count; ++n, i += n < s.count ? s.step : 0) {
    const size_t begin = ascii ? static_cast<size_t>(i) : starts[static_cast<size_t>(i)];
    out.append_range(text, begin, begin + code_point_at(text.bytes(), begin).length);
    if (n % 1024 == 0) SKEIN_TRY(rt.expect_bytes(out.held_bytes()));
  }
  return rt.string(std::move(out), object.string().markup);
}

Result<std::vector<Value>> characters(Runtime& rt, const Value& value) {
  const MarkedText& text = value.text();
  const size_t count = value.string().code_points();
  SKEIN_TRY(rt.expect_bytes(count * (sizeof(StringObject) + sizeof(Value))));
  SKEIN_TRY(rt.spend(count));
  std::vector<Value> items;
  items.reserve(count);
  for (size_t pos = 0; pos < text.size();) {
    const size_t size = code_point_at(text.bytes(), pos).length;
    items.push_back(rt.string(text.slice(pos, pos + size)));
    pos += size;
  }
  return items;
}

}  // namespace

Result<Value> get_attribute(Runtime& rt, const Value& object, std::string_view name) {
  if (object.is_undefined()) return undefined_error(object);
  Value out;
  SKEIN_ASSIGN(const bool found, find_attribute(rt, object, name, out));
  if (found) return out;
  if (object.is_dict()) {
    if (const Value* value = object.dict().find(name); value != nullptr) return *value;
  }
  return rt.missing(object, name);
}

Result<Value> get_item(Runtime& rt, const Value& object, const Value& key) {
  if (object.is_undefined()) return undefined_error(object);
  Value out;
  if (object.is_dict()) {
    if (key.is_string()) SKEIN_TRY(rt.spend(key.bytes().size() / 64));
    if (const Value* value = object.dict().find(key); value != nullptr) return *value;
  } else if (is_indexable(object) && key.is_integral()) {
    SKEIN_ASSIGN(const bool found, find_index(rt, object, key.as_int(), out));
    if (found) return out;
  }
  if (key.is_string()) {
    SKEIN_ASSIGN(const bool found, find_attribute(rt, object, key.bytes(), out));
    if (found) return out;
  }
  return rt.missing(object, key);
}

Result<Value> get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop,
                        const Value& step) {
  if (object.is_undefined()) return undefined_error(object);
  if (!is_indexable(object)) {
    return invalid_argument("'{}' object is not subscriptable with a slice", type_name(object));
  }
  SKEIN_ASSIGN(const int64_t length, length_of(rt, object));
  SKEIN_ASSIGN(const SliceIndices s, slice_indices(start, stop, step, length));
  if (object.is_string()) return slice_string(rt, object, s);
  if (object.is(Kind::kRange)) {
    const RangeObject& r = object.range();
    int64_t by = 0;
    if (__builtin_mul_overflow(r.step, s.step, &by)) by = 1;  // one item at most
    return rt.range(r.at(s.start), by, s.count);
  }
  SKEIN_TRY(rt.expect_bytes(static_cast<uint64_t>(s.count) * sizeof(Value)));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(s.count));
  for (int64_t n = 0, i = s.start; n < s.count; ++n, i += n < s.count ? s.step : 0) {
    items.push_back(object.items()[static_cast<size_t>(i)]);
  }
  return rt.list(std::move(items), object.kind());
}

Result<std::vector<Value>> iterate(Runtime& rt, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return std::vector<Value>();
    case Kind::kString:
      return characters(rt, value);
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      SKEIN_TRY(rt.spend(value.items().size() / 4));
      SKEIN_TRY(rt.expect_bytes(value.items().size() * sizeof(Value)));
      return value.items();
    case Kind::kIterator: {
      SequenceObject& sequence = value.sequence();
      std::vector<Value> rest(sequence.items.begin() + static_cast<ptrdiff_t>(sequence.next),
                              sequence.items.end());
      sequence.items.clear();
      sequence.next = 0;
      return rest;
    }
    case Kind::kRange: {
      const RangeObject& r = value.range();
      SKEIN_TRY(rt.spend(static_cast<uint64_t>(r.count)));
      std::vector<Value> items;
      items.reserve(static_cast<size_t>(r.count));
      for (int64_t i = 0; i < r.count; ++i) items.push_back(Value::integer(r.at(i)));
      return items;
    }
    case Kind::kDict: {
      SKEIN_TRY(rt.spend(value.dict().entries.size() / 4));
      std::vector<Value> keys;
      keys.reserve(value.dict().entries.size());
      for (const auto& [key, item] : value.dict().entries) keys.push_back(key);
      return keys;
    }
    default:
      return invalid_argument("'{}' object is not iterable", type_name(value));
  }
}

Result<int64_t> length_of(Runtime& rt, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      SKEIN_TRY(rt.spend(1));
      return static_cast<int64_t>(value.string().code_points());
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return static_cast<int64_t>(value.items().size());
    case Kind::kRange:
      return value.range().count;
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().entries.size());
    default:
      return invalid_argument("object of type '{}' has no len()", type_name(value));
  }
}

Result<Value> follow_path(Runtime& rt, Value value, std::string_view path) {
  while (!path.empty()) {
    SKEIN_TRY(rt.spend(1));
    if (path[0] == '.') {
      const size_t end = std::min(path.find_first_of(".[", 1), path.size());
      SKEIN_ASSIGN(value, get_attribute(rt, value, path.substr(1, end - 1)));
      path = path.substr(end);
    } else {
      const size_t close = path.find(']');
      if (path[0] != '[' || close == std::string_view::npos) {
        return invalid_argument("bad field name in a format string");
      }
      const std::string_view inside = path.substr(1, close - 1);
      int64_t index = 0;
      const Value key = parse_int(inside, 10, index) == ParseNumber::kOk
                            ? Value::integer(index)
                            : rt.string(std::string(inside), true);
      SKEIN_ASSIGN(value, get_item(rt, value, key));
      path = path.substr(close + 1);
    }
    if (value.is_undefined()) return undefined_error(value);
  }
  return value;
}

Result<AttributePath> AttributePath::parse(const Value& attribute) {
  AttributePath path;
  if (attribute.is_none()) return path;
  if (attribute.is_integral()) {
    path.parts_.push_back({"", attribute.as_int(), true});
    return path;
  }
  SKEIN_ASSIGN(const MarkedText* text, expect_string(attribute, "the attribute"));
  const std::string& bytes = text->bytes();
  for (size_t begin = 0; begin <= bytes.size();) {
    const size_t end = std::min(bytes.find('.', begin), bytes.size());
    Part part;
    part.name = bytes.substr(begin, end - begin);
    part.is_index = !part.name.empty() &&
                    part.name.find_first_not_of("0123456789") == std::string::npos &&
                    parse_int(part.name, 10, part.index) == ParseNumber::kOk;
    path.parts_.push_back(std::move(part));
    begin = end + 1;
  }
  return path;
}

Result<std::vector<AttributePath>> AttributePath::parse_list(Runtime& rt, const Value& attribute) {
  std::vector<AttributePath> paths;
  if (!attribute.is_string()) {
    SKEIN_ASSIGN(AttributePath path, parse(attribute));
    paths.push_back(std::move(path));
    return paths;
  }
  const MarkedText& text = attribute.text();
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.bytes().find(',', begin), text.size());
    SKEIN_ASSIGN(AttributePath path, parse(rt.string(text.slice(begin, end))));
    paths.push_back(std::move(path));
    begin = end + 1;
  }
  return paths;
}

Result<Value> AttributePath::get(Runtime& rt, const Value& item) const {
  Value value = item;
  for (const Part& part : parts_) {
    SKEIN_TRY(rt.spend(1));
    const Value key = part.is_index ? Value::integer(part.index) : rt.string(part.name, true);
    SKEIN_ASSIGN(value, get_item(rt, value, key));
    if (has_default_ && value.is_undefined()) value = default_;
  }
  return value;
}

Value ignore_case(Runtime& rt, const Value& value) {
  return value.is_string() ? rt.string(change_case(value.text(), false)) : value;
}

}  // namespace skein::jinja
