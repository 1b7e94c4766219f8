// Attributes, items, slices, iteration, and the paths of attributes that filters take.
#include <algorithm>

#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"

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
