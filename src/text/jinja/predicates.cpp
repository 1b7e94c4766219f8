// Tests: what may stand after `is`.
#include "text/jinja/chars.h"
#include "text/jinja/natives.h"

namespace skein::jinja {
namespace {

// A test without arguments.
template <bool (*kTest)(const Value&)>
Result<Value> simple(Runtime&, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "test", {}, 0));
  return Value::boolean(kTest(self));
}

bool is_defined(const Value& v) {
  return !v.is_undefined();
}
bool is_undefined(const Value& v) {
  return v.is_undefined();
}
bool is_none(const Value& v) {
  return v.is_none();
}
bool is_boolean(const Value& v) {
  return v.is(Kind::kBool);
}
bool is_true(const Value& v) {
  return v.is(Kind::kBool) && v.as_bool();
}
bool is_false(const Value& v) {
  return v.is(Kind::kBool) && !v.as_bool();
}
bool is_integer(const Value& v) {
  return v.is(Kind::kInt);
}
bool is_float(const Value& v) {
  return v.is(Kind::kFloat);
}
bool is_number(const Value& v) {
  return v.is_number();
}
bool is_string(const Value& v) {
  return v.is_string();
}
bool is_mapping(const Value& v) {
  return v.is_dict();
}
bool is_sequence(const Value& v) {
  return v.is_string() || v.is(Kind::kList) || v.is(Kind::kTuple) || v.is(Kind::kRange) ||
         v.is_dict() || v.is_undefined();
}
bool is_iterable(const Value& v) {
  return is_sequence(v) || v.is(Kind::kView) || v.is(Kind::kIterator) || v.is(Kind::kLoop);
}
bool is_callable(const Value& v) {
  return v.is(Kind::kFunction) || v.is(Kind::kMacro) || v.is(Kind::kJoiner) || v.is(Kind::kLoop) ||
         v.is_undefined();
}
bool is_escaped(const Value& v) {
  return v.is_string() && v.string().markup;
}

template <bool kUpper>
Result<Value> is_in_case(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "test", {}, 0));
  SKEIN_ASSIGN(const MarkedText text, to_text(rt, self));
  SKEIN_TRY(rt.spend(text.size() / 8));
  return Value::boolean(has_only_case(text.bytes(), kUpper));
}

Result<Value> remainder_is(Runtime& rt, const Value& self, const Value& divisor,
                           int64_t remainder) {
  if (self.is_string()) return invalid_argument("a number is needed, not str");
  SKEIN_ASSIGN(const Value rest, modulo(rt, self, divisor));
  SKEIN_ASSIGN(const bool same, equals(rt, rest, Value::integer(remainder)));
  return Value::boolean(same);
}

Result<Value> is_odd(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "odd", {}, 0));
  return remainder_is(rt, self, Value::integer(2), 1);
}
Result<Value> is_even(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "even", {}, 0));
  return remainder_is(rt, self, Value::integer(2), 0);
}
Result<Value> is_divisible(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "divisibleby", {"num"}, 1));
  return remainder_is(rt, self, a[0], 0);
}

Result<Value> is_same(Runtime&, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "sameas", {"other"}, 1));
  const Value& other = a[0];
  if (self.kind() != other.kind()) return Value::boolean(false);
  switch (self.kind()) {
    case Kind::kNone:
      return Value::boolean(true);
    case Kind::kBool:
    case Kind::kInt:
      return Value::boolean(self.as_int() == other.as_int());
    default:
      return Value::boolean(self.same_object(other));
  }
}

Result<Value> is_in(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "in", {"seq"}, 1));
  SKEIN_ASSIGN(const bool found, contains(rt, a[0], self));
  return Value::boolean(found);
}

template <bool kTest>
Result<Value> is_known(Runtime&, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, kTest ? "test" : "filter", {}, 0));
  if (!self.is_string()) return Value::boolean(false);
  const NativeFn fn = kTest ? find_test(self.bytes()) : find_filter(self.bytes());
  return Value::boolean(fn != nullptr);
}

template <bool kNegate>
Result<Value> is_equal(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "eq", {"other"}, 1));
  SKEIN_ASSIGN(const bool same, equals(rt, self, a[0]));
  return Value::boolean(same != kNegate);
}

enum class Order { kLess, kLessEqual, kGreater, kGreaterEqual };

template <Order kOrder>
Result<Value> is_ordered(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "comparison", {"other"}, 1));
  constexpr bool kSwap = kOrder == Order::kGreater || kOrder == Order::kGreaterEqual;
  SKEIN_ASSIGN(const bool result, kSwap ? less(rt, a[0], self, ">") : less(rt, self, a[0], "<"));
  if (result || kOrder == Order::kLess || kOrder == Order::kGreater) return Value::boolean(result);
  SKEIN_ASSIGN(const bool same, equals(rt, self, a[0]));
  return Value::boolean(same);
}

constexpr NativeEntry kTests[] = {
    {"defined", simple<is_defined>},
    {"undefined", simple<is_undefined>},
    {"none", simple<is_none>},
    {"boolean", simple<is_boolean>},
    {"true", simple<is_true>},
    {"false", simple<is_false>},
    {"integer", simple<is_integer>},
    {"float", simple<is_float>},
    {"number", simple<is_number>},
    {"string", simple<is_string>},
    {"mapping", simple<is_mapping>},
    {"sequence", simple<is_sequence>},
    {"iterable", simple<is_iterable>},
    {"callable", simple<is_callable>},
    {"escaped", simple<is_escaped>},
    {"lower", is_in_case<false>},
    {"upper", is_in_case<true>},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible},
    {"sameas", is_same},
    {"in", is_in},
    {"filter", is_known<false>},
    {"test", is_known<true>},
    {"==", is_equal<false>},
    {"eq", is_equal<false>},
    {"equalto", is_equal<false>},
    {"!=", is_equal<true>},
    {"ne", is_equal<true>},
    {"<", is_ordered<Order::kLess>},
    {"lt", is_ordered<Order::kLess>},
    {"lessthan", is_ordered<Order::kLess>},
    {"<=", is_ordered<Order::kLessEqual>},
    {"le", is_ordered<Order::kLessEqual>},
    {">", is_ordered<Order::kGreater>},
    {"gt", is_ordered<Order::kGreater>},
    {"greaterthan", is_ordered<Order::kGreater>},
    {">=", is_ordered<Order::kGreaterEqual>},
    {"ge", is_ordered<Order::kGreaterEqual>},
};

}  // namespace

NativeFn find_test(std::string_view name) {
  return find_native(kTests, name);
}

}  // namespace skein::jinja
