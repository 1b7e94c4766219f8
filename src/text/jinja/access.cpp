// Attributes, items, slices and iteration.
#include <algorithm>

#include "text/jinja/chars.h"
#include "text/jinja/runtime.h"

namespace skein::jinja {
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
  if (const NativeFn method = find_method(object, name); method != nullptr) {
    out = rt.function(name, method, object);
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

namespace {

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

}  // namespace skein::jinja
