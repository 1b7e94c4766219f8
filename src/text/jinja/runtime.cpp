#include "text/jinja/runtime.h"

#include <algorithm>

namespace skein::jinja {

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
