// Methods of dictionaries, lists, tuples and cyclers, and which methods the sandbox hides.
#include <algorithm>
#include <utility>

#include "text/jinja/natives.h"
#include "text/jinja/runtime.h"

namespace skein::jinja {
namespace {

Result<Value> dict_get(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "get", {"key", "default"}, 1));
  std::string key;
  if (!hash_key(a[0], key)) return invalid_argument("unhashable type: '{}'", type_name(a[0]));
  SKEIN_TRY(rt.spend(1 + key.size() / 64));
  if (const Value* value = self.dict().find(a[0]); value != nullptr) return *value;
  return a.has(1) ? a[1] : Value::none();
}

Result<Value> dict_keys(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "keys", {}, 0));
  SKEIN_ASSIGN(std::vector<Value> keys, iterate(rt, self));
  return rt.list(std::move(keys), Kind::kView, "dict_keys");
}

Result<Value> dict_values(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "values", {}, 0));
  SKEIN_TRY(rt.spend(self.dict().entries.size() / 4));
  std::vector<Value> values;
  values.reserve(self.dict().entries.size());
  for (const auto& [key, value] : self.dict().entries) values.push_back(value);
  return rt.list(std::move(values), Kind::kView, "dict_values");
}

Result<Value> dict_items(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "items", {}, 0));
  SKEIN_ASSIGN(std::vector<Value> pairs, item_pairs(rt, self));
  return rt.list(std::move(pairs), Kind::kView, "dict_items");
}

Result<Value> dict_copy(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "copy", {}, 0));
  return make_dict(rt, self.dict().entries);
}

Result<Value> list_index(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "index", {"value"}, 1));
  for (size_t i = 0; i < self.items().size(); ++i) {
    SKEIN_ASSIGN(const bool same, equals(rt, self.items()[i], a[0]));
    if (same) return Value::integer(static_cast<int64_t>(i));
  }
  return invalid_argument("index(): the value is not in the {}", type_name(self));
}

Result<Value> list_count(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "count", {"value"}, 1));
  int64_t count = 0;
  for (const Value& item : self.items()) {
    SKEIN_ASSIGN(const bool same, equals(rt, item, a[0]));
    if (same) ++count;
  }
  return Value::integer(count);
}

Result<Value> list_copy(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "copy", {}, 0));
  return rt.list(self.items());
}

// Jinja2's sandbox lets lists shrink, though not grow.
Result<Value> list_pop(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "pop", {"index"}, 0));
  std::vector<Value>& items = self.items();
  int64_t index = -1;
  if (a.has(0)) {
    SKEIN_ASSIGN(index, expect_int(a[0], "pop(): the index"));
  }
  const auto size = static_cast<int64_t>(items.size());
  if (index < 0) index += size;
  if (index < 0 || index >= size) return invalid_argument("pop index out of range");
  SKEIN_TRY(rt.spend(static_cast<uint64_t>(size - index) / 4));
  Value out = std::move(items[static_cast<size_t>(index)]);
  items.erase(items.begin() + index);
  return out;
}

Result<Value> list_clear(Runtime&, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "clear", {}, 0));
  self.items().clear();
  return Value::none();
}

Result<Value> cycler_next(Runtime&, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "next", {}, 0));
  auto& cycler = self.as<CyclerObject>();
  Value out = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return out;
}

Result<Value> cycler_reset(Runtime&, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "reset", {}, 0));
  self.as<CyclerObject>().position = 0;
  return Value::none();
}

constexpr NativeEntry kDictMethods[] = {{"get", dict_get},
                                        {"items", dict_items},
                                        {"keys", dict_keys},
                                        {"values", dict_values},
                                        {"copy", dict_copy}};
constexpr NativeEntry kListMethods[] = {{"index", list_index},
                                        {"count", list_count},
                                        {"copy", list_copy},
                                        {"pop", list_pop},
                                        {"clear", list_clear}};
constexpr NativeEntry kTupleMethods[] = {{"index", list_index}, {"count", list_count}};
constexpr NativeEntry kCyclerMethods[] = {{"next", cycler_next}, {"reset", cycler_reset}};

constexpr std::string_view kForbiddenOfList[] = {"append", "reverse", "insert",
                                                 "sort",   "extend",  "remove"};
constexpr std::string_view kForbiddenOfDict[] = {"clear", "pop", "popitem", "setdefault", "update"};

}  // namespace

NativeFn find_method(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kString:
      return find_string_method(name);
    case Kind::kDict:
      return find_native(kDictMethods, name);
    case Kind::kList:
      return find_native(kListMethods, name);
    case Kind::kTuple:
      return find_native(kTupleMethods, name);
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

}  // namespace skein::jinja
