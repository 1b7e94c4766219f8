// Equality, order and membership.
#include <algorithm>
#include <cmath>

#include "text/jinja/natives.h"

namespace skein::jinja {
namespace {

constexpr uint32_t kMaxDepth = 100;

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
  if (depth > kMaxDepth) return invalid_argument("values are nested too deep to compare");
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
  if (depth > kMaxDepth) return invalid_argument("values are nested too deep to compare");
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

}  // namespace skein::jinja
