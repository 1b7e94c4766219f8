// Filters that apply other filters and tests, filters over numbers, and the filter table.
#include <cmath>
#include <cstdlib>

#include "text/jinja/attribute_path.h"
#include "text/jinja/literals.h"
#include "text/jinja/natives.h"

namespace skein::jinja {
namespace {

Result<Value> call_by_name(Runtime& rt, NativeFn fn, const Value& item, const Args& args) {
  const Runtime::Nested nested(rt);
  SKEIN_TRY(nested.check());
  SKEIN_TRY(rt.spend(1 + args.positional.size() / 4));
  Args copy = args;
  return fn(rt, item, copy);
}

// The filter or test that args.positional[at] names; the rest stay as its arguments.
Result<NativeFn> take_function(Args& args, size_t at, bool is_test) {
  SKEIN_ASSIGN(const MarkedText* name, expect_string(args.positional[at], "the name"));
  const NativeFn fn = is_test ? find_test(name->bytes()) : find_filter(name->bytes());
  if (fn == nullptr) {
    return invalid_argument("no {} named '{}'", is_test ? "test" : "filter", name->bytes());
  }
  args.positional.erase(args.positional.begin(),
                        args.positional.begin() + static_cast<ptrdiff_t>(at) + 1);
  return fn;
}

Result<Value> map_attribute(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "map", {"attribute", "default"}, 1));
  SKEIN_ASSIGN(AttributePath path, AttributePath::parse(a[0]));
  if (a.has(1) && !a[1].is_none()) path.set_default(a[1]);
  SKEIN_ASSIGN(std::vector<Value> items, iterate(rt, self));
  for (Value& item : items) {
    SKEIN_ASSIGN(item, path.get(rt, item));
  }
  return rt.iterator(std::move(items), "generator");
}

Result<Value> map(Runtime& rt, const Value& self, Args& args) {
  if (!truthy(self)) return rt.iterator({}, "generator");
  if (args.positional.empty()) {
    if (args.keywords.empty()) return invalid_argument("map requires a filter argument");
    return map_attribute(rt, self, args);
  }
  SKEIN_ASSIGN(const NativeFn fn, take_function(args, 0, false));
  SKEIN_ASSIGN(std::vector<Value> items, iterate(rt, self));
  for (Value& item : items) {
    SKEIN_ASSIGN(item, call_by_name(rt, fn, item, args));
  }
  return rt.iterator(std::move(items), "generator");
}

template <bool kReject, bool kAttribute>
Result<Value> select(Runtime& rt, const Value& self, Args& args) {
  if (!truthy(self)) return rt.iterator({}, "generator");
  AttributePath path;
  if (kAttribute) {
    if (args.positional.empty()) return invalid_argument("missing parameter for attribute name");
    SKEIN_ASSIGN(path, AttributePath::parse(args.positional[0]));
  }
  NativeFn test = nullptr;
  if (args.positional.size() > (kAttribute ? 1 : 0)) {
    SKEIN_ASSIGN(test, take_function(args, kAttribute ? 1 : 0, true));
  }
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  std::vector<Value> out;
  for (const Value& item : items) {
    SKEIN_ASSIGN(Value value, path.get(rt, item));
    if (test != nullptr) {
      SKEIN_ASSIGN(value, call_by_name(rt, test, value, args));
    }
    SKEIN_TRY(rt.spend(1));
    if (truthy(value) != kReject) out.push_back(item);
  }
  return rt.iterator(std::move(out), "generator");
}

Result<Value> truncated(double value, const Value& fallback, bool data) {
  if (std::isnan(value)) return fallback;
  if (std::isinf(value)) return out_of_range("cannot convert float infinity to integer");
  if (!(std::fabs(value) < 9.223372036854775e18)) {
    return out_of_range("int: {} does not fit 64 bits", value);
  }
  return Value::integer(static_cast<int64_t>(value), data);
}

Result<Value> to_int(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "int", {"default", "base"}, 0));
  const Value fallback = a.has(0) ? a[0] : Value::integer(0);
  if (self.is_undefined()) return undefined_error(self);
  if (self.is_integral()) return Value::integer(self.as_int(), self.is_data());
  if (self.is(Kind::kFloat)) return truncated(self.as_double(), fallback, self.is_data());
  if (!self.is_string()) return fallback;
  SKEIN_TRY(rt.spend(self.bytes().size() / 8));
  int64_t base = 10;
  if (a.has(1)) base = a[1].is_integral() ? a[1].as_int() : -1;  // a bad base reads no integer
  const bool data = !self.text().from_template();
  int64_t value = 0;
  switch (parse_int(self.bytes(), base < 0 || base > 36 ? 1 : static_cast<int>(base), value)) {
    case ParseNumber::kOk:
      return Value::integer(value, data);
    case ParseNumber::kTooLarge:
      return out_of_range("int: the number does not fit 64 bits");
    case ParseNumber::kBad:
      break;
  }
  double real = 0;
  if (!parse_float(self.bytes(), real)) return fallback;
  return truncated(real, fallback, data);
}

Result<Value> to_float(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "float", {"default"}, 0));
  if (self.is_undefined()) return undefined_error(self);
  if (self.is_number()) return Value::real(self.as_double(), self.is_data());
  double value = 0;
  if (self.is_string()) SKEIN_TRY(rt.spend(self.bytes().size() / 8));
  if (self.is_string() && parse_float(self.bytes(), value)) {
    return Value::real(value, !self.text().from_template());
  }
  return a.has(0) ? a[0] : Value::real(0);
}

Result<Value> absolute(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "abs", {}, 0));
  if (self.is_undefined()) return undefined_error(self);
  if (!self.is_number())
    return invalid_argument("bad operand type for abs(): '{}'", type_name(self));
  if (self.is(Kind::kFloat)) return Value::real(std::fabs(self.as_double()), self.is_data());
  return self.as_int() < 0 ? negate(rt, self) : unary_plus(rt, self);
}

// Half to even on the decimal that the double stands for, as Python rounds.
double round_to(double value, int64_t digits) {
  if (!std::isfinite(value)) return value;
  if (digits >= 0) {
    if (digits > 320) return value;
    return std::strtod(fmt::format("{:.{}f}", value, digits).c_str(), nullptr);
  }
  if (digits < -320) return std::copysign(0.0, value);
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / scale) * scale;
}

Result<Value> round(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "round", {"precision", "method"}, 0));
  if (self.is_undefined()) return undefined_error(self);
  if (!self.is_number())
    return invalid_argument("round: a number is needed, not {}", type_name(self));
  int64_t precision = 0;
  if (a.has(0)) {
    SKEIN_ASSIGN(precision, expect_int(a[0], "round: the precision"));
  }
  const std::string method = a.has(1) && a[1].is_string() ? a[1].bytes() : "common";
  if (method == "common") {
    if (self.is_integral() && precision >= 0) return unary_plus(rt, self);
    const double rounded = round_to(self.as_double(), precision);
    if (self.is_integral()) return truncated(rounded, self, self.is_data());
    return Value::real(rounded, self.is_data());
  }
  if (method != "ceil" && method != "floor") {
    return invalid_argument("round: method must be common, ceil or floor");
  }
  if (precision < -300 || precision > 300) {
    return out_of_range("round: a precision of {} is out of range", precision);
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = self.as_double() * scale;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale,
                     self.is_data());
}

Result<Value> not_provided(Runtime&, const Value&, Args&) {
  return unimplemented("this filter of Jinja2 is not provided");
}

constexpr NativeEntry kFilters[] = {
    {"map", map},
    {"select", select<false, false>},
    {"reject", select<true, false>},
    {"selectattr", select<false, true>},
    {"rejectattr", select<true, true>},
    {"int", to_int},
    {"float", to_float},
    {"abs", absolute},
    {"round", round},
    // Jinja2 knows these, so a template may name them; no chat template has a use for them.
    {"random", not_provided},
    {"filesizeformat", not_provided},
    {"striptags", not_provided},
    {"urlize", not_provided},
    {"wordwrap", not_provided},
    {"xmlattr", not_provided},
};

}  // namespace

NativeFn find_filter(std::string_view name) {
  if (const NativeFn fn = find_native(kFilters, name); fn != nullptr) return fn;
  if (const NativeFn fn = find_text_filter(name); fn != nullptr) return fn;
  return find_sequence_filter(name);
}

}  // namespace skein::jinja
