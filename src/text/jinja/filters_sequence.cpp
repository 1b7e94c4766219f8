// Filters over lists and dictionaries, and those that apply a filter or a test to every item.
#include <algorithm>
#include <set>

#include "text/jinja/operations.h"

namespace skein::jinja {
namespace {

Result<Value> call_by_name(Runtime& rt, const Native& native, const Value& item, const Args& args) {
  const Runtime::Nested nested(rt);
  SKEIN_TRY(nested.check());
  SKEIN_TRY(rt.spend(1 + args.positional.size() / 4));
  Args copy = args;
  return call_native(rt, native, item, copy);
}

// The filter or test that args.positional[at] names; the rest stay as its arguments.
Result<const Native*> take_function(Args& args, size_t at, bool is_test) {
  SKEIN_ASSIGN(const MarkedText* name, expect_string(args.positional[at], "the name"));
  const Native* native = is_test ? find_test(name->bytes()) : find_filter(name->bytes());
  if (native == nullptr) {
    return invalid_argument("no {} named '{}'", is_test ? "test" : "filter", name->bytes());
  }
  args.positional.erase(args.positional.begin(),
                        args.positional.begin() + static_cast<ptrdiff_t>(at) + 1);
  return native;
}

Result<Value> map_attribute(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(AttributePath path, AttributePath::parse(a[0]));
  if (a.has(1) && !a[1].is_none()) path.set_default(a[1]);
  SKEIN_ASSIGN(std::vector<Value> items, iterate(rt, self));
  for (Value& item : items) {
    SKEIN_ASSIGN(item, path.get(rt, item));
  }
  return rt.iterator(std::move(items), "generator");
}

constexpr Native kMapAttribute{"map", map_attribute, {"attribute", "default"}, 1};

Result<Value> map(Runtime& rt, const Value& self, const Bound& a) {
  Args& args = a.all();
  if (!truthy(self)) return rt.iterator({}, "generator");
  if (args.positional.empty()) {
    if (args.keywords.empty()) return invalid_argument("map requires a filter argument");
    return call_native(rt, kMapAttribute, self, args);
  }
  SKEIN_ASSIGN(const Native* filter, take_function(args, 0, false));
  SKEIN_ASSIGN(std::vector<Value> items, iterate(rt, self));
  for (Value& item : items) {
    SKEIN_ASSIGN(item, call_by_name(rt, *filter, item, args));
  }
  return rt.iterator(std::move(items), "generator");
}

// select, reject, selectattr, rejectattr
Result<Value> select(Runtime& rt, const Value& self, const Bound& a) {
  if (!truthy(self)) return rt.iterator({}, "generator");
  const bool keep = a.name().starts_with("select");
  const bool by_attribute = a.name().ends_with("attr");
  Args& args = a.all();
  AttributePath path;
  if (by_attribute) {
    if (args.positional.empty()) return invalid_argument("missing parameter for attribute name");
    SKEIN_ASSIGN(path, AttributePath::parse(args.positional[0]));
  }
  const Native* test = nullptr;
  if (args.positional.size() > (by_attribute ? 1 : 0)) {
    SKEIN_ASSIGN(test, take_function(args, by_attribute ? 1 : 0, true));
  }
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  std::vector<Value> out;
  for (const Value& item : items) {
    SKEIN_ASSIGN(Value value, path.get(rt, item));
    if (test != nullptr) {
      SKEIN_ASSIGN(value, call_by_name(rt, *test, value, args));
    }
    SKEIN_TRY(rt.spend(1));
    if (truthy(value) == keep) out.push_back(item);
  }
  return rt.iterator(std::move(out), "generator");
}

Result<Value> length(Runtime& rt, const Value& self, const Bound&) {
  SKEIN_ASSIGN(const int64_t n, length_of(rt, self));
  return Value::integer(n);
}

Result<Value> first(Runtime& rt, const Value& self, const Bound&) {
  if (self.is(Kind::kIterator)) {
    SequenceObject& sequence = self.sequence();
    if (sequence.next < sequence.items.size()) return sequence.items[sequence.next++];
  } else if (self.is_string() && !self.text().empty()) {
    return get_item(rt, self, Value::integer(0));
  } else {
    SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
    if (!items.empty()) return items.front();
  }
  return rt.undefined("No first item, sequence was empty.");
}

Result<Value> last(Runtime& rt, const Value& self, const Bound&) {
  if (self.is(Kind::kIterator)) return invalid_argument("'{}' is not reversible", type_name(self));
  if (self.is_string() && !self.text().empty()) return get_item(rt, self, Value::integer(-1));
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  if (!items.empty()) return items.back();
  return rt.undefined("No last item, sequence was empty.");
}

Result<Value> list(Runtime& rt, const Value& self, const Bound&) {
  SKEIN_ASSIGN(std::vector<Value> items, iterate(rt, self));
  return rt.list(std::move(items));
}

Result<Value> filter_join(Runtime& rt, const Value& self, const Bound& a) {
  MarkedText separator;
  if (a.has(0)) {
    SKEIN_ASSIGN(separator, to_text(rt, a[0]));
  }
  SKEIN_ASSIGN(std::vector<Value> items, iterate(rt, self));
  if (a.has(1) && !a[1].is_none()) {
    SKEIN_ASSIGN(const AttributePath path, AttributePath::parse(a[1]));
    for (Value& item : items) {
      SKEIN_ASSIGN(item, path.get(rt, item));
    }
  }
  return join_texts(rt, items, separator);
}

Result<Value> reverse(Runtime& rt, const Value& self, const Bound&) {
  if (self.is_string()) {
    return get_slice(rt, self, Value::none(), Value::none(), Value::integer(-1));
  }
  SKEIN_ASSIGN(std::vector<Value> items, iterate(rt, self));
  std::reverse(items.begin(), items.end());
  if (self.is(Kind::kIterator)) return rt.list(std::move(items));
  return rt.iterator(std::move(items), "list_reverseiterator");
}

Result<Value> unique(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const AttributePath path, AttributePath::parse(a.value_or(1, Value::none())));
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  std::set<std::string> seen;
  std::vector<Value> out;
  for (const Value& item : items) {
    SKEIN_ASSIGN(Value key, path.get(rt, item));
    if (!a.is_true(0)) key = ignore_case(rt, key);
    std::string text;
    if (!hash_key(key, text)) return invalid_argument("unhashable type: '{}'", type_name(key));
    SKEIN_TRY(rt.spend(1 + text.size() / 8));
    if (seen.insert(std::move(text)).second) out.push_back(item);
  }
  return rt.iterator(std::move(out), "generator");
}

Result<Value> dictsort(Runtime& rt, const Value& self, const Bound& a) {
  if (self.is_undefined()) return undefined_error(self);
  if (!self.is_dict()) return invalid_argument("dictsort: '{}' has no items()", type_name(self));
  const std::string by = a.has(1) && a[1].is_string() ? a[1].bytes() : "key";
  if (by != "key" && by != "value") {
    return invalid_argument("dictsort: you can only sort by either \"key\" or \"value\"");
  }
  std::vector<Value> keys;
  for (const auto& [key, value] : self.dict().entries) {
    const Value& wanted = by == "key" ? key : value;
    keys.push_back(a.is_true(0) ? wanted : ignore_case(rt, wanted));
    SKEIN_TRY(rt.spend(1));
  }
  SKEIN_ASSIGN(const std::vector<size_t> order, sorted_order(rt, keys, a.is_true(2)));
  SKEIN_ASSIGN(const std::vector<Value> pairs, item_pairs(rt, self));
  std::vector<Value> out;
  out.reserve(order.size());
  for (const size_t i : order) out.push_back(pairs[i]);
  return rt.list(std::move(out));
}

Result<Value> sort(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  SKEIN_ASSIGN(const std::vector<AttributePath> paths,
               AttributePath::parse_list(rt, a.value_or(2, Value::none())));
  const bool case_sensitive = a.is_true(1);
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) {
      SKEIN_ASSIGN(Value part, path.get(rt, item));
      key.push_back(case_sensitive ? part : ignore_case(rt, part));
    }
    keys.push_back(rt.list(std::move(key)));
    SKEIN_TRY(rt.spend(1));
  }
  SKEIN_ASSIGN(const std::vector<size_t> order, sorted_order(rt, keys, a.is_true(0)));
  std::vector<Value> out;
  out.reserve(order.size());
  for (const size_t i : order) out.push_back(items[i]);
  return rt.list(std::move(out));
}

Result<Value> extreme(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const AttributePath path, AttributePath::parse(a.value_or(1, Value::none())));
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  if (items.empty()) return rt.undefined("No aggregated item, sequence was empty.");
  const bool case_sensitive = a.is_true(0);
  size_t best = 0;
  Value best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    SKEIN_ASSIGN(Value key, path.get(rt, items[i]));
    if (!case_sensitive) key = ignore_case(rt, key);
    bool better = i == 0;
    if (i > 0) {
      SKEIN_ASSIGN(better,
                   a.name() == "max" ? less(rt, best_key, key, ">") : less(rt, key, best_key));
    }
    if (better) {
      best = i;
      best_key = std::move(key);
    }
  }
  return items[best];
}

Result<Value> sum(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const AttributePath path, AttributePath::parse(a.value_or(0, Value::none())));
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  Value total = a.value_or(1, Value::integer(0));
  if (total.is_string()) return invalid_argument("sum: can't sum strings; use join instead");
  for (const Value& item : items) {
    SKEIN_ASSIGN(const Value part, path.get(rt, item));
    SKEIN_ASSIGN(total, apply(rt, Op::kAdd, total, part));
    SKEIN_TRY(rt.spend(1));
  }
  return total;
}

Result<Value> batch(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const int64_t size, expect_int(a[0], "batch: the line count"));
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  std::vector<Value> out;
  std::vector<Value> line;
  for (const Value& item : items) {
    if (static_cast<int64_t>(line.size()) == size) {
      out.push_back(rt.list(std::exchange(line, {})));
    }
    line.push_back(item);
  }
  if (!line.empty()) {
    const auto have = static_cast<int64_t>(line.size());
    if (a.has(1) && !a[1].is_none() && have < size) {
      const auto missing = static_cast<uint64_t>(size - have);
      if (missing > rt.limits().memory_bytes / sizeof(Value)) {
        return resource_exhausted("batch: a line of {} items is too long", size);
      }
      SKEIN_TRY(rt.expect_bytes(missing * sizeof(Value)));
      line.insert(line.end(), missing, a[1]);
    }
    out.push_back(rt.list(std::move(line)));
  }
  return rt.iterator(std::move(out), "generator");
}

Result<Value> slice(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const int64_t slices, expect_int(a[0], "slice: the number of slices"));
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  if (slices == 0) return invalid_argument("integer division or modulo by zero");
  std::vector<Value> out;
  const auto size = static_cast<int64_t>(items.size());
  const int64_t per_slice = slices < 0 ? 0 : size / slices;
  const int64_t with_extra = slices < 0 ? 0 : size % slices;
  int64_t begin = 0;
  for (int64_t i = 0; i < slices; ++i) {
    SKEIN_TRY(rt.spend(1));
    const int64_t end = begin + per_slice + (i < with_extra ? 1 : 0);
    std::vector<Value> part(items.begin() + begin, items.begin() + end);
    if (a.has(1) && !a[1].is_none() && i >= with_extra) part.push_back(a[1]);
    out.push_back(rt.list(std::move(part)));
    begin = end;
  }
  return rt.iterator(std::move(out), "generator");
}

Result<Value> groupby(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(AttributePath path, AttributePath::parse(a[0]));
  if (a.has(1) && !a[1].is_none()) path.set_default(a[1]);
  const bool case_sensitive = a.is_true(2);
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  std::vector<Value> keys;
  for (const Value& item : items) {
    SKEIN_ASSIGN(const Value key, path.get(rt, item));
    keys.push_back(case_sensitive ? key : ignore_case(rt, key));
  }
  SKEIN_ASSIGN(const std::vector<size_t> order, sorted_order(rt, keys, false));
  std::vector<Value> out;
  for (size_t i = 0; i < order.size();) {
    std::vector<Value> group;
    const size_t head = order[i];
    for (; i < order.size(); ++i) {
      SKEIN_ASSIGN(const bool same, equals(rt, keys[order[i]], keys[head]));
      if (!same) break;
      group.push_back(items[order[i]]);
    }
    SKEIN_ASSIGN(const Value key, path.get(rt, items[head]));
    const Value pair = rt.list({key, rt.list(std::move(group))}, Kind::kTuple);
    pair.sequence().is_group = true;
    out.push_back(pair);
  }
  return rt.list(std::move(out));
}

Result<Value> items(Runtime& rt, const Value& self, const Bound&) {
  if (self.is_undefined()) return rt.iterator({}, "generator");
  if (!self.is_dict()) return invalid_argument("items: can only get item pairs from a mapping");
  SKEIN_ASSIGN(std::vector<Value> pairs, item_pairs(rt, self));
  return rt.iterator(std::move(pairs), "generator");
}

Result<Value> default_value(Runtime& rt, const Value& self, const Bound& a) {
  const bool use_default = self.is_undefined() || (a.is_true(1) && !truthy(self));
  if (!use_default) return self;
  return a.has(0) ? a[0] : rt.string("", true);
}

Result<Value> attribute(Runtime& rt, const Value& self, const Bound& a) {
  SKEIN_ASSIGN(const MarkedText* name, expect_string(a[0], "attr: the name"));
  if (self.is_dict() && find_method(self, name->bytes()) == nullptr) return rt.missing(self, a[0]);
  return get_attribute(rt, self, name->bytes());
}

constexpr Native kSequenceFilters[] = {
    {"map", map, {}, Native::kAnyArguments},
    {"select", select, {}, Native::kAnyArguments},
    {"reject", select, {}, Native::kAnyArguments},
    {"selectattr", select, {}, Native::kAnyArguments},
    {"rejectattr", select, {}, Native::kAnyArguments},
    {"length", length},
    {"count", length, {}, 0, "length"},
    {"first", first},
    {"last", last},
    {"list", list},
    {"join", filter_join, {"d", "attribute"}},
    {"reverse", reverse},
    {"unique", unique, {"case_sensitive", "attribute"}},
    {"dictsort", dictsort, {"case_sensitive", "by", "reverse"}},
    {"sort", sort, {"reverse", "case_sensitive", "attribute"}},
    {"max", extreme, {"case_sensitive", "attribute"}},
    {"min", extreme, {"case_sensitive", "attribute"}},
    {"sum", sum, {"attribute", "start"}},
    {"batch", batch, {"linecount", "fill_with"}, 1},
    {"slice", slice, {"slices", "fill_with"}, 1},
    {"groupby", groupby, {"attribute", "default", "case_sensitive"}, 1},
    {"items", items},
    {"default", default_value, {"default_value", "boolean"}},
    {"d", default_value, {"default_value", "boolean"}, 0, "default"},
    {"attr", attribute, {"name"}, 1},
};

}  // namespace

const Native* find_sequence_filter(std::string_view name) {
  return find_native(kSequenceFilters, name);
}

}  // namespace skein::jinja
