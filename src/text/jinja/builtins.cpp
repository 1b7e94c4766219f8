// The functions and tests that every template has, and the methods of dictionaries, lists, tuples
// and cyclers.
#include <algorithm>

#include "text/jinja/python_text.h"
#include "text/jinja/runtime.h"

namespace skein::jinja {
namespace {

Result<Value> range(Runtime& rt, const Value&, const Bound& a) {
  int64_t part[3] = {0, 0, 1};
  for (size_t i = 0; i < 3 && a.has(i); ++i) {
    SKEIN_ASSIGN(part[i], expect_int(a[i], "range(): an argument"));
  }
  if (!a.has(1)) std::swap(part[0], part[1]);
  const auto [start, stop, step] = part;
  if (step == 0) return invalid_argument("range() arg 3 must not be zero");
  const bool up = step > 0;
  const uint64_t span = up ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                           : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = up ? static_cast<uint64_t>(step) : ~static_cast<uint64_t>(step) + 1;
  const bool empty = up ? stop <= start : start <= stop;
  const uint64_t count = empty ? 0 : (span - 1) / stride + 1;
  constexpr uint64_t kMaxRange = 100'000;  // as Jinja2's sandbox has it
  if (count > kMaxRange) {
    return out_of_range("range too big: {} items, at most {} are allowed", count, kMaxRange);
  }
  return rt.range(start, step, static_cast<int64_t>(count));
}

Result<std::vector<std::pair<Value, Value>>> dict_entries(Runtime& rt, std::string_view function,
                                                          const Args& args) {
  std::vector<std::pair<Value, Value>> entries;
  if (args.positional.size() > 1) {
    return invalid_argument("{}() takes at most one positional argument", function);
  }
  for (const Value& source : args.positional) {
    if (source.is_dict()) {
      SKEIN_TRY(rt.spend(source.dict().entries.size() / 4));
      entries = source.dict().entries;
      continue;
    }
    SKEIN_ASSIGN(const std::vector<Value> pairs, iterate(rt, source));
    for (const Value& pair : pairs) {
      SKEIN_ASSIGN(const std::vector<Value> parts, iterate(rt, pair));
      if (parts.size() != 2) {
        return invalid_argument("{}(): a pair was expected, {} items found", function,
                                parts.size());
      }
      entries.emplace_back(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : args.keywords) {
    entries.emplace_back(rt.string(name), value);
  }
  return entries;
}

Result<Value> dict(Runtime& rt, const Value&, const Bound& a) {
  SKEIN_ASSIGN(const auto entries, dict_entries(rt, a.name(), a.all()));
  return make_dict(rt, entries);
}

Result<Value> make_namespace(Runtime& rt, const Value&, const Bound& a) {
  SKEIN_ASSIGN(const auto entries, dict_entries(rt, a.name(), a.all()));
  const Ref<NamespaceObject> object = rt.heap().make<NamespaceObject>(0);
  for (const auto& [key, value] : entries) {
    if (!key.is_string()) return invalid_argument("namespace(): names must be strings");
    rt.heap().grow(*object, kDictEntryBytes + key.bytes().size());
    SKEIN_TRY(rt.spend(1));
    object->attributes[key.bytes()] = value;
  }
  return Value::object(Kind::kNamespace, object);
}

Result<Value> raise_exception(Runtime& rt, const Value&, const Bound& a) {
  SKEIN_ASSIGN(const MarkedText message, to_text(rt, a[0]));
  constexpr size_t kShown = 2000;
  return invalid_argument("{}", std::string_view(message.bytes()).substr(0, kShown));
}

Result<Value> strftime_now(Runtime& rt, const Value&, const Bound& a) {
  SKEIN_ASSIGN(const MarkedText* format, expect_string(a[0], "strftime_now: the format"));
  if (format->empty()) return a[0];
  SKEIN_TRY(rt.spend(format->size() / 8));
  char buffer[1024];
  const size_t size =
      std::strftime(buffer, sizeof buffer, format->bytes().c_str(), &rt.now().value());
  if (size == 0) {
    return invalid_argument("strftime_now: the result is empty or over {} bytes", sizeof buffer);
  }
  return rt.string(std::string(buffer, size), format->from_template());
}

Result<Value> cycler(Runtime& rt, const Value&, const Bound& a) {
  const std::vector<Value>& items = a.all().positional;
  if (items.empty()) return invalid_argument("at least one item has to be provided");
  const uint64_t bytes = items.size() * sizeof(Value);
  return Value::object(Kind::kCycler, rt.heap().make<CyclerObject>(bytes, items));
}

Result<Value> joiner(Runtime& rt, const Value&, const Bound& a) {
  return Value::object(Kind::kJoiner,
                       rt.heap().make<JoinerObject>(0, a.has(0) ? a[0] : rt.string(", ", true)));
}

Result<Value> lipsum(Runtime&, const Value&, const Bound&) {
  return unimplemented("lipsum() is not provided");
}

constexpr Native kGlobals[] = {
    {"range", range, {"start", "stop", "step"}, 1},
    {"dict", dict, {}, Native::kAnyArguments},
    {"namespace", make_namespace, {}, Native::kAnyArguments},
    {"raise_exception", raise_exception, {"message"}, 1},
    {"strftime_now", strftime_now, {"format"}, 1},
    {"cycler", cycler, {}, Native::kAnyArguments},
    {"joiner", joiner, {"sep"}},
    {"lipsum", lipsum, {}, Native::kAnyArguments},
};

// --- methods of dictionaries, lists, tuples and cyclers ---

Result<Value> dict_get(Runtime& rt, const Value& self, const Bound& a) {
  std::string key;
  if (!hash_key(a[0], key)) return invalid_argument("unhashable type: '{}'", type_name(a[0]));
  SKEIN_TRY(rt.spend(1 + key.size() / 64));
  if (const Value* value = self.dict().find(a[0]); value != nullptr) return *value;
  return a.value_or(1, Value::none());
}

Result<Value> dict_keys(Runtime& rt, const Value& self, const Bound&) {
  SKEIN_ASSIGN(std::vector<Value> keys, iterate(rt, self));
  return rt.list(std::move(keys), Kind::kView, "dict_keys");
}

Result<Value> dict_values(Runtime& rt, const Value& self, const Bound&) {
  SKEIN_TRY(rt.spend(self.dict().entries.size() / 4));
  std::vector<Value> values;
  values.reserve(self.dict().entries.size());
  for (const auto& [key, value] : self.dict().entries) values.push_back(value);
  return rt.list(std::move(values), Kind::kView, "dict_values");
}

Result<Value> dict_items(Runtime& rt, const Value& self, const Bound&) {
  SKEIN_ASSIGN(std::vector<Value> pairs, item_pairs(rt, self));
  return rt.list(std::move(pairs), Kind::kView, "dict_items");
}

Result<Value> dict_copy(Runtime& rt, const Value& self, const Bound&) {
  return make_dict(rt, self.dict().entries);
}

Result<Value> list_index(Runtime& rt, const Value& self, const Bound& a) {
  for (size_t i = 0; i < self.items().size(); ++i) {
    SKEIN_ASSIGN(const bool same, equals(rt, self.items()[i], a[0]));
    if (same) return Value::integer(static_cast<int64_t>(i));
  }
  return invalid_argument("index(): the value is not in the {}", type_name(self));
}

Result<Value> list_count(Runtime& rt, const Value& self, const Bound& a) {
  int64_t count = 0;
  for (const Value& item : self.items()) {
    SKEIN_ASSIGN(const bool same, equals(rt, item, a[0]));
    if (same) ++count;
  }
  return Value::integer(count);
}

Result<Value> list_copy(Runtime& rt, const Value& self, const Bound&) {
  return rt.list(self.items());
}

// Jinja2's sandbox lets lists shrink, though not grow.
Result<Value> list_pop(Runtime& rt, const Value& self, const Bound& a) {
  std::vector<Value>& items = self.items();
  SKEIN_ASSIGN(int64_t index, a.int_or(0, -1, "pop(): the index"));
  const auto size = static_cast<int64_t>(items.size());
  if (index < 0) index += size;
  if (index < 0 || index >= size) return invalid_argument("pop index out of range");
  SKEIN_TRY(rt.spend(static_cast<uint64_t>(size - index) / 4));
  Value out = std::move(items[static_cast<size_t>(index)]);
  items.erase(items.begin() + index);
  return out;
}

Result<Value> list_clear(Runtime&, const Value& self, const Bound&) {
  self.items().clear();
  return Value::none();
}

Result<Value> cycler_next(Runtime&, const Value& self, const Bound&) {
  auto& cycler = self.as<CyclerObject>();
  Value out = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return out;
}

Result<Value> cycler_reset(Runtime&, const Value& self, const Bound&) {
  self.as<CyclerObject>().position = 0;
  return Value::none();
}

constexpr Native kDictMethods[] = {{"get", dict_get, {"key", "default"}, 1},
                                   {"items", dict_items},
                                   {"keys", dict_keys},
                                   {"values", dict_values},
                                   {"copy", dict_copy}};
constexpr Native kListMethods[] = {{"index", list_index, {"value"}, 1},
                                   {"count", list_count, {"value"}, 1},
                                   {"copy", list_copy},
                                   {"pop", list_pop, {"index"}},
                                   {"clear", list_clear}};
constexpr size_t kTupleMethods = 2;  // index and count: a tuple has those alone
constexpr Native kCyclerMethods[] = {{"next", cycler_next}, {"reset", cycler_reset}};

constexpr std::string_view kForbiddenOfList[] = {"append", "reverse", "insert",
                                                 "sort",   "extend",  "remove"};
constexpr std::string_view kForbiddenOfDict[] = {"clear", "pop", "popitem", "setdefault", "update"};

// --- tests: what may stand after `is` ---

bool is_sequence(const Value& v) {
  return v.is_string() || v.is(Kind::kList) || v.is(Kind::kTuple) || v.is(Kind::kRange) ||
         v.is_dict() || v.is_undefined();
}

// A test that looks at nothing but the kind of the value.
Result<Value> is_kind(Runtime&, const Value& v, const Bound& a) {
  const auto holds = [&v](std::string_view test) {
    if (test == "defined") return !v.is_undefined();
    if (test == "undefined") return v.is_undefined();
    if (test == "none") return v.is_none();
    if (test == "string") return v.is_string();
    if (test == "mapping") return v.is_dict();
    if (test == "sequence") return is_sequence(v);
    if (test == "iterable") {
      return is_sequence(v) || v.is(Kind::kView) || v.is(Kind::kIterator) || v.is(Kind::kLoop);
    }
    if (test == "boolean") return v.is(Kind::kBool);
    if (test == "true") return v.is(Kind::kBool) && v.as_bool();
    if (test == "false") return v.is(Kind::kBool) && !v.as_bool();
    if (test == "integer") return v.is(Kind::kInt);
    if (test == "float") return v.is(Kind::kFloat);
    if (test == "number") return v.is_number();
    if (test == "escaped") return v.is_string() && v.string().markup;
    return v.is(Kind::kFunction) || v.is(Kind::kMacro) || v.is(Kind::kJoiner) ||
           v.is(Kind::kLoop) || v.is_undefined();  // callable
  };
  return Value::boolean(holds(a.name()));
}

Result<Value> is_in_case(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const MarkedText text, to_text(rt, self));
  SKEIN_TRY(rt.spend(text.size() / 8));
  return Value::boolean(has_only_case(text.bytes(), a.name() == "upper"));
}

// odd, even, divisibleby(n)
Result<Value> has_remainder(Runtime& rt, const Value& self, const Bound& a) {
  if (self.is_string()) return invalid_argument("a number is needed, not str");
  SKEIN_ASSIGN(const Value rest, apply(rt, Op::kModulo, self, a.value_or(0, Value::integer(2))));
  SKEIN_ASSIGN(const bool same, equals(rt, rest, Value::integer(a.name() == "odd" ? 1 : 0)));
  return Value::boolean(same);
}

Result<Value> is_same(Runtime&, const Value& self, const Bound& a) {
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

Result<Value> is_in(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const bool found, contains(rt, a[0], self));
  return Value::boolean(found);
}

// 'upper' is filter, 'odd' is test
Result<Value> is_known(Runtime&, const Value& self, const Bound& a) {
  if (!self.is_string()) return Value::boolean(false);
  const auto find = a.name() == "test" ? find_test : find_filter;
  return Value::boolean(find(self.bytes()) != nullptr);
}

Result<Value> is_compared(Runtime& rt, const Value& self, const Bound& a) {
  const auto op_of = [](std::string_view test) {
    if (test == "==" || test == "eq" || test == "equalto") return Op::kEqual;
    if (test == "!=" || test == "ne") return Op::kNotEqual;
    if (test == "<" || test == "lt" || test == "lessthan") return Op::kLess;
    if (test == "<=" || test == "le") return Op::kLessEqual;
    if (test == ">" || test == "gt" || test == "greaterthan") return Op::kGreater;
    return Op::kGreaterEqual;
  };
  SKEIN_ASSIGN(const bool holds, compare(rt, op_of(a.name()), self, a[0]));
  return Value::boolean(holds);
}

constexpr Native kTests[] = {
    {"defined", is_kind, {}, 0, "test"},
    {"undefined", is_kind, {}, 0, "test"},
    {"none", is_kind, {}, 0, "test"},
    {"boolean", is_kind, {}, 0, "test"},
    {"true", is_kind, {}, 0, "test"},
    {"false", is_kind, {}, 0, "test"},
    {"integer", is_kind, {}, 0, "test"},
    {"float", is_kind, {}, 0, "test"},
    {"number", is_kind, {}, 0, "test"},
    {"string", is_kind, {}, 0, "test"},
    {"mapping", is_kind, {}, 0, "test"},
    {"sequence", is_kind, {}, 0, "test"},
    {"iterable", is_kind, {}, 0, "test"},
    {"callable", is_kind, {}, 0, "test"},
    {"escaped", is_kind, {}, 0, "test"},
    {"lower", is_in_case, {}, 0, "test"},
    {"upper", is_in_case, {}, 0, "test"},
    {"odd", has_remainder},
    {"even", has_remainder},
    {"divisibleby", has_remainder, {"num"}, 1},
    {"sameas", is_same, {"other"}, 1},
    {"in", is_in, {"seq"}, 1},
    {"filter", is_known},
    {"test", is_known},
    {"==", is_compared, {"other"}, 1, "eq"},
    {"eq", is_compared, {"other"}, 1, "eq"},
    {"equalto", is_compared, {"other"}, 1, "eq"},
    {"!=", is_compared, {"other"}, 1, "eq"},
    {"ne", is_compared, {"other"}, 1, "eq"},
    {"<", is_compared, {"other"}, 1, "comparison"},
    {"lt", is_compared, {"other"}, 1, "comparison"},
    {"lessthan", is_compared, {"other"}, 1, "comparison"},
    {"<=", is_compared, {"other"}, 1, "comparison"},
    {"le", is_compared, {"other"}, 1, "comparison"},
    {">", is_compared, {"other"}, 1, "comparison"},
    {"gt", is_compared, {"other"}, 1, "comparison"},
    {"greaterthan", is_compared, {"other"}, 1, "comparison"},
    {">=", is_compared, {"other"}, 1, "comparison"},
    {"ge", is_compared, {"other"}, 1, "comparison"},
};

}  // namespace

const Native* find_global(std::string_view name) {
  return find_native(kGlobals, name);
}

const Native* find_test(std::string_view name) {
  return find_native(kTests, name);
}

const Native* find_method(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kString:
      return find_string_method(name);
    case Kind::kDict:
      return find_native(kDictMethods, name);
    case Kind::kList:
      return find_native(kListMethods, name);
    case Kind::kTuple:
      return find_native(std::span(kListMethods).first(kTupleMethods), name);
    case Kind::kCycler:
      return find_native(kCyclerMethods, name);
    default:
      return nullptr;
  }
}

bool is_forbidden_method(const Value& object, std::string_view name) {
  const auto is_one_of = [name](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (object.is_dict()) return is_one_of(kForbiddenOfDict);
  return object.is(Kind::kList) && is_one_of(kForbiddenOfList);
}

}  // namespace skein::jinja
