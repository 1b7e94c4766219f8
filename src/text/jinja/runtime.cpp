#include "text/jinja/runtime.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "text/jinja/python_text.h"

namespace skein::jinja {

Heap::~Heap() {
  std::vector<Ref<Object>> alive;
  for (Object* object = live_; object != nullptr; object = object->next_) {
    alive.emplace_back(object);
  }
  for (const Ref<Object>& object : alive) object->clear();
}

void Heap::adopt(Object* object, uint64_t bytes) {
  object->heap_ = this;
  object->bytes_ = bytes;
  object->next_ = live_;
  if (live_ != nullptr) live_->previous_ = object;
  live_ = object;
  live_bytes_ += bytes;
}

// The destructor of one object may release many others; they queue up here instead of nesting.
void Heap::bury(Object* object) {
  if (object->previous_ != nullptr) object->previous_->next_ = object->next_;
  if (object->next_ != nullptr) object->next_->previous_ = object->previous_;
  if (live_ == object) live_ = object->next_;
  live_bytes_ -= object->bytes_;
  object->next_ = dead_;
  dead_ = object;
  if (burying_) return;
  burying_ = true;
  while (dead_ != nullptr) {
    Object* next = dead_;
    dead_ = next->next_;
    delete next;
  }
  burying_ = false;
}

size_t StringObject::code_points() {
  if (code_points_ == SIZE_MAX) code_points_ = count_code_points(text.bytes());
  return code_points_;
}

StringObject& Value::string() const {
  return as<StringObject>();
}
const MarkedText& Value::text() const {
  return as<StringObject>().text;
}
SequenceObject& Value::sequence() const {
  return as<SequenceObject>();
}
std::vector<Value>& Value::items() const {
  return as<SequenceObject>().items;
}
DictObject& Value::dict() const {
  return as<DictObject>();
}
RangeObject& Value::range() const {
  return as<RangeObject>();
}

namespace {

void append_number_key(const Value& value, std::string& key) {
  const double d = value.as_double();
  const bool whole = value.is_integral() || (std::floor(d) == d && std::fabs(d) < 9.2e18);
  const int64_t i = value.is_integral() ? value.as_int() : (whole ? static_cast<int64_t>(d) : 0);
  key += whole ? 'i' : 'f';
  char raw[8];
  std::memcpy(raw, whole ? static_cast<const void*>(&i) : &d, 8);
  key.append(raw, 8);
}

// Tuples can share their parts, so a small one may spell out to a huge key; such are refused.
bool append_key(const Value& value, std::string& key, int depth) {
  constexpr size_t kMaxTupleKey = 4096;
  if (depth > 0 && (depth > 50 || key.size() > kMaxTupleKey)) return false;
  switch (value.kind()) {
    case Kind::kUndefined:
      key += 'u';
      return true;
    case Kind::kNone:
      key += 'n';
      return true;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      append_number_key(value, key);
      return true;
    case Kind::kString:
      key += 's';
      key += std::to_string(value.bytes().size());
      key += ':';
      key += value.bytes();
      return true;
    case Kind::kTuple:
      key += '(';
      for (const Value& item : value.items()) {
        if (!append_key(item, key, depth + 1)) return false;
      }
      key += ')';
      return true;
    default:
      return false;
  }
}

}  // namespace

bool hash_key(const Value& value, std::string& key) {
  key.clear();
  return append_key(value, key, 0);
}

const Value* DictObject::find(const Value& key) const {
  if (key.is_string()) return find(std::string_view(key.bytes()));
  std::string text;
  if (!hash_key(key, text)) return nullptr;
  const auto it = index.find(text);
  return it == index.end() ? nullptr : &entries[it->second].second;
}

const Value* DictObject::find(std::string_view key) const {
  constexpr size_t kFewKeys = 8;
  if (entries.size() <= kFewKeys) {
    for (const auto& [k, v] : entries) {
      if (k.is_string() && k.bytes() == key) return &v;
    }
    return nullptr;
  }
  const auto it = index.find(fmt::format("s{}:{}", key.size(), key));
  return it == index.end() ? nullptr : &entries[it->second].second;
}

bool DictObject::set(const Value& key, Value value) {
  std::string text;
  if (!hash_key(key, text)) return false;
  const auto [it, added] = index.try_emplace(std::move(text), entries.size());
  if (added) {
    entries.emplace_back(key, std::move(value));
  } else {
    entries[it->second].second = std::move(value);
  }
  return true;
}

std::string_view type_name(const Value& value) {
  if (value.is(Kind::kView) || value.is(Kind::kIterator)) return value.sequence().label;
  if (value.is_string() && value.string().markup) return "Markup";
  static constexpr std::string_view kNames[] = {
      "Undefined", "NoneType", "bool",  "int",  "float",     "str",      "list",  "tuple",
      "",          "",         "range", "dict", "Namespace", "function", "Macro", "LoopContext",
      "Cycler",    "Joiner"};
  static_assert(std::size(kNames) == static_cast<size_t>(Kind::kJoiner) + 1);
  return kNames[static_cast<size_t>(value.kind())];
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.as_bool();
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_double() != 0.0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return !value.items().empty();
    case Kind::kRange:
      return value.range().count != 0;
    case Kind::kDict:
      return !value.dict().entries.empty();
    default:
      return true;
  }
}

Status Runtime::check_budget() {
  constexpr uint64_t kCheckEvery = 1024;
  next_check_ = steps_ + kCheckEvery;
  if (steps_ > limits_.steps) {
    return resource_exhausted("the template needs more than {} steps", limits_.steps);
  }
  if (heap_.live_bytes() > limits_.memory_bytes + exempt_bytes_) {
    return resource_exhausted("the template holds more than {} bytes", limits_.memory_bytes);
  }
  next_check_ = std::min(next_check_, limits_.steps + 1);
  if (limits_.expired && limits_.expired()) {
    return deadline_exceeded("the template takes too long");
  }
  return {};
}

Status Runtime::expect_bytes(uint64_t bytes) const {
  const uint64_t limit = limits_.memory_bytes + exempt_bytes_;
  if (bytes <= limit && heap_.live_bytes() <= limit - bytes) return {};
  return resource_exhausted("the template would hold more than {} bytes", limits_.memory_bytes);
}

Value Runtime::string(MarkedText text, bool markup) {
  const uint64_t bytes = text.held_bytes();
  steps_ += bytes / 32;  // long strings take time to make; the next spend sees it
  return Value::object(Kind::kString, heap_.make<StringObject>(bytes, std::move(text), markup));
}

Value Runtime::list(std::vector<Value> items, Kind kind, const char* label) {
  const uint64_t bytes = items.size() * sizeof(Value);
  steps_ += items.size() / 4;
  const Ref<SequenceObject> object = heap_.make<SequenceObject>(bytes, std::move(items));
  object->label = label;
  return Value::object(kind, object);
}

Value Runtime::range(int64_t start, int64_t step, int64_t count) {
  return Value::object(Kind::kRange, heap_.make<RangeObject>(0, start, step, count));
}

Value Runtime::function(const Native& native, Value self) {
  const uint64_t bytes = sizeof(std::string) + native.name.size();  // budgets count its name
  return Value::object(Kind::kFunction, heap_.make<FunctionObject>(bytes, native, std::move(self)));
}

Value Runtime::undefined(std::string hint) {
  const uint64_t bytes = hint.size();
  return Value::object(Kind::kUndefined,
                       heap_.make<StringObject>(bytes, MarkedText(std::move(hint), true), false));
}

Value Runtime::missing(const Value& object, const Value& key) {
  if (key.is_string()) return missing(object, std::string_view(key.bytes()));
  const std::string text =
      key.is_integral() ? std::to_string(key.as_int()) : fmt::format("of type {}", type_name(key));
  return undefined(fmt::format("{} object has no element {}", type_name(object), text));
}

Value Runtime::missing(const Value& object, std::string_view attribute) {
  constexpr size_t kShown = 200;
  return undefined(fmt::format("'{} object' has no attribute '{}'", type_name(object),
                               attribute.substr(0, kShown)));
}

Result<int64_t> expect_int(const Value& value, std::string_view what) {
  if (value.is_integral()) return value.as_int();
  if (value.is_undefined()) return undefined_error(value);
  return invalid_argument("{} must be an integer, not {}", what, type_name(value));
}

Result<const MarkedText*> expect_string(const Value& value, std::string_view what) {
  if (value.is_string()) return &value.text();
  if (value.is_undefined()) return undefined_error(value);
  return invalid_argument("{} must be a string, not {}", what, type_name(value));
}

Result<std::vector<Value>> item_pairs(Runtime& rt, const Value& dict) {
  SKEIN_TRY(rt.spend(dict.dict().entries.size()));
  std::vector<Value> pairs;
  pairs.reserve(dict.dict().entries.size());
  for (const auto& [key, value] : dict.dict().entries) {
    pairs.push_back(rt.list({key, value}, Kind::kTuple));
  }
  return pairs;
}

Result<Value> make_dict(Runtime& rt, const std::vector<std::pair<Value, Value>>& entries) {
  const Ref<DictObject> dict = rt.heap().make<DictObject>(0);
  for (const auto& [key, value] : entries) {
    const uint64_t bytes = kDictEntryBytes + (key.is_string() ? key.bytes().size() : 0);
    SKEIN_TRY(rt.spend(1 + bytes / 64));
    rt.heap().grow(*dict, bytes);
    if (!dict->set(key, value)) {
      return invalid_argument("unhashable type: '{}'", type_name(key));
    }
  }
  return Value::object(Kind::kDict, dict);
}

Status undefined_error(const Value& value) {
  if (value.holds_object()) return invalid_argument("{}", value.bytes());
  return invalid_argument("an undefined value is used");
}

const Native* find_native(std::span<const Native> table, std::string_view name) {
  const auto it = std::find_if(table.begin(), table.end(),
                               [name](const Native& native) { return native.name == name; });
  return it == table.end() ? nullptr : &*it;
}

Result<Bound> bind(const Native& native, Args& args) {
  Bound bound;
  bound.name_ = native.name;
  bound.all_ = &args;
  if (native.required == Native::kAnyArguments) return bound;
  const std::string_view function = native.shown.empty() ? native.name : native.shown;
  const auto* const first = std::begin(native.parameters);
  const auto* const last = std::find(first, std::end(native.parameters), "");
  const auto count = static_cast<size_t>(last - first);
  if (args.positional.size() > count) {
    return invalid_argument("{}() takes at most {} arguments, {} given", function, count,
                            args.positional.size());
  }
  std::copy(args.positional.begin(), args.positional.end(), bound.values_.begin());
  std::fill_n(bound.given_.begin(), args.positional.size(), true);
  for (const auto& [name, value] : args.keywords) {
    const auto* it = std::find(first, last, name.bytes());
    if (it == last) {
      return invalid_argument("{}() got an unexpected keyword argument '{}'", function,
                              name.bytes());
    }
    const auto i = static_cast<size_t>(it - first);
    if (bound.given_[i]) {
      return invalid_argument("{}() got multiple values for argument '{}'", function, name.bytes());
    }
    bound.values_[i] = value;
    bound.given_[i] = true;
  }
  for (size_t i = 0; i < native.required; ++i) {
    if (!bound.given_[i]) {
      return invalid_argument("{}() misses its argument '{}'", function, native.parameters[i]);
    }
  }
  return bound;
}

Result<Value> call_native(Runtime& rt, const Native& native, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound bound, bind(native, args));
  return native.fn(rt, self, bound);
}

}  // namespace skein::jinja
