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

Value Runtime::function(std::string_view name, NativeFn fn, Value self) {
  return Value::object(Kind::kFunction,
                       heap_.make<FunctionObject>(name.size(), name, fn, std::move(self)));
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

Result<Bound> bind(const Args& args, std::string_view function,
                   std::initializer_list<std::string_view> parameters, size_t required) {
  Bound bound;
  bound.values_.resize(parameters.size());
  bound.given_.resize(parameters.size());
  if (args.positional.size() > parameters.size()) {
    return invalid_argument("{}() takes at most {} arguments, {} given", function,
                            parameters.size(), args.positional.size());
  }
  for (size_t i = 0; i < args.positional.size(); ++i) {
    bound.values_[i] = args.positional[i];
    bound.given_[i] = true;
  }
  for (const auto& [name, value] : args.keywords) {
    const auto* it = std::find(parameters.begin(), parameters.end(), name.bytes());
    if (it == parameters.end()) {
      return invalid_argument("{}() got an unexpected keyword argument '{}'", function,
                              name.bytes());
    }
    const auto i = static_cast<size_t>(it - parameters.begin());
    if (bound.given_[i]) {
      return invalid_argument("{}() got multiple values for argument '{}'", function, name.bytes());
    }
    bound.values_[i] = value;
    bound.given_[i] = true;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!bound.given_[i]) {
      return invalid_argument("{}() misses its argument '{}'", function, parameters.begin()[i]);
    }
  }
  return bound;
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

Status undefined_error(const Value& value) {
  if (value.holds_object()) return invalid_argument("{}", value.bytes());
  return invalid_argument("an undefined value is used");
}

}  // namespace skein::jinja
