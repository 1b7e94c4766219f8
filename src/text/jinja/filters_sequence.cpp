// Filters over lists and dictionaries.
#include <algorithm>
#include <set>

#include "text/jinja/attribute_path.h"
#include "text/jinja/natives.h"

namespace skein::jinja {
namespace {

Result<Value> length(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "length", {}, 0));
  SKEIN_ASSIGN(const int64_t n, length_of(rt, self));
  return Value::integer(n);
}

Result<Value> first(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "first", {}, 0));
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

Result<Value> last(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "last", {}, 0));
  if (self.is(Kind::kIterator)) return invalid_argument("'{}' is not reversible", type_name(self));
  if (self.is_string() && !self.text().empty()) return get_item(rt, self, Value::integer(-1));
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  if (!items.empty()) return items.back();
  return rt.undefined("No last item, sequence was empty.");
}

Result<Value> list(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "list", {}, 0));
  SKEIN_ASSIGN(std::vector<Value> items, iterate(rt, self));
  return rt.list(std::move(items));
}

Result<Value> join(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "join", {"d", "attribute"}, 0));
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

Result<Value> reverse(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "reverse", {}, 0));
  if (self.is_string()) {
    return get_slice(rt, self, Value::none(), Value::none(), Value::integer(-1));
  }
  SKEIN_ASSIGN(std::vector<Value> items, iterate(rt, self));
  std::reverse(items.begin(), items.end());
  if (self.is(Kind::kIterator)) return rt.list(std::move(items));
  return rt.iterator(std::move(items), "list_reverseiterator");
}

Result<Value> unique(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "unique", {"case_sensitive", "attribute"}, 0));
  SKEIN_ASSIGN(const AttributePath path, AttributePath::parse(a.has(1) ? a[1] : Value::none()));
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  std::set<std::string> seen;
  std::vector<Value> out;
  for (const Value& item : items) {
    SKEIN_ASSIGN(Value key, path.get(rt, item));
    if (!(a.has(0) && truthy(a[0]))) key = ignore_case(rt, key);
    std::string text;
    if (!hash_key(key, text)) return invalid_argument("unhashable type: '{}'", type_name(key));
    SKEIN_TRY(rt.spend(1 + text.size() / 8));
    if (seen.insert(std::move(text)).second) out.push_back(item);
  }
  return rt.iterator(std::move(out), "generator");
}

Result<Value> dictsort(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "dictsort", {"case_sensitive", "by", "reverse"}, 0));
  if (self.is_undefined()) return undefined_error(self);
  if (!self.is_dict()) return invalid_argument("dictsort: '{}' has no items()", type_name(self));
  const std::string by = a.has(1) && a[1].is_string() ? a[1].bytes() : "key";
  if (by != "key" && by != "value") {
    return invalid_argument("dictsort: you can only sort by either \"key\" or \"value\"");
  }
  std::vector<Value> keys;
  for (const auto& [key, value] : self.dict().entries) {
    const Value& wanted = by == "key" ? key : value;
    keys.push_back(a.has(0) && truthy(a[0]) ? wanted : ignore_case(rt, wanted));
    SKEIN_TRY(rt.spend(1));
  }
  SKEIN_ASSIGN(const std::vector<size_t> order, sorted_order(rt, keys, a.has(2) && truthy(a[2])));
  SKEIN_ASSIGN(const std::vector<Value> pairs, item_pairs(rt, self));
  std::vector<Value> out;
  out.reserve(order.size());
  for (const size_t i : order) out.push_back(pairs[i]);
  return rt.list(std::move(out));
}

Result<Value> sort(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "sort", {"reverse", "case_sensitive", "attribute"}, 0));
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  SKEIN_ASSIGN(const std::vector<AttributePath> paths,
               AttributePath::parse_list(rt, a.has(2) ? a[2] : Value::none()));
  const bool case_sensitive = a.has(1) && truthy(a[1]);
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
  SKEIN_ASSIGN(const std::vector<size_t> order, sorted_order(rt, keys, a.has(0) && truthy(a[0])));
  std::vector<Value> out;
  out.reserve(order.size());
  for (const size_t i : order) out.push_back(items[i]);
  return rt.list(std::move(out));
}

template <bool kMax>
Result<Value> extreme(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, kMax ? "max" : "min", {"case_sensitive", "attribute"}, 0));
  SKEIN_ASSIGN(const AttributePath path, AttributePath::parse(a.has(1) ? a[1] : Value::none()));
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  if (items.empty()) return rt.undefined("No aggregated item, sequence was empty.");
  const bool case_sensitive = a.has(0) && truthy(a[0]);
  size_t best = 0;
  Value best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    SKEIN_ASSIGN(Value key, path.get(rt, items[i]));
    if (!case_sensitive) key = ignore_case(rt, key);
    bool better = i == 0;
    if (i > 0) {
      SKEIN_ASSIGN(better, kMax ? less(rt, best_key, key, ">") : less(rt, key, best_key));
    }
    if (better) {
      best = i;
      best_key = std::move(key);
    }
  }
  return items[best];
}

Result<Value> sum(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "sum", {"attribute", "start"}, 0));
  SKEIN_ASSIGN(const AttributePath path, AttributePath::parse(a.has(0) ? a[0] : Value::none()));
  SKEIN_ASSIGN(const std::vector<Value> items, iterate(rt, self));
  Value total = a.has(1) ? a[1] : Value::integer(0);
  if (total.is_string()) return invalid_argument("sum: can't sum strings; use join instead");
  for (const Value& item : items) {
    SKEIN_ASSIGN(const Value part, path.get(rt, item));
    SKEIN_ASSIGN(total, add(rt, total, part));
    SKEIN_TRY(rt.spend(1));
  }
  return total;
}

Result<Value> batch(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "batch", {"linecount", "fill_with"}, 1));
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

Result<Value> slice(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "slice", {"slices", "fill_with"}, 1));
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

Result<Value> groupby(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "groupby", {"attribute", "default", "case_sensitive"}, 1));
  SKEIN_ASSIGN(AttributePath path, AttributePath::parse(a[0]));
  if (a.has(1) && !a[1].is_none()) path.set_default(a[1]);
  const bool case_sensitive = a.has(2) && truthy(a[2]);
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

Result<Value> items(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "items", {}, 0));
  if (self.is_undefined()) return rt.iterator({}, "generator");
  if (!self.is_dict()) return invalid_argument("items: can only get item pairs from a mapping");
  SKEIN_ASSIGN(std::vector<Value> pairs, item_pairs(rt, self));
  return rt.iterator(std::move(pairs), "generator");
}

Result<Value> default_value(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "default", {"default_value", "boolean"}, 0));
  const bool use_default = self.is_undefined() || (a.has(1) && truthy(a[1]) && !truthy(self));
  if (!use_default) return self;
  return a.has(0) ? a[0] : rt.string("", true);
}

Result<Value> attribute(Runtime& rt, const Value& self, Args& args) {
  SKEIN_ASSIGN(const Bound a, bind(args, "attr", {"name"}, 1));
  SKEIN_ASSIGN(const MarkedText* name, expect_string(a[0], "attr: the name"));
  if (self.is_dict() && find_method(self, name->bytes()) == nullptr) return rt.missing(self, a[0]);
  return get_attribute(rt, self, name->bytes());
}

constexpr NativeEntry kSequenceFilters[] = {
    {"length", length},   {"count", length},      {"first", first},
    {"last", last},       {"list", list},         {"join", join},
    {"reverse", reverse}, {"unique", unique},     {"dictsort", dictsort},
    {"sort", sort},       {"max", extreme<true>}, {"min", extreme<false>},
    {"sum", sum},         {"batch", batch},       {"slice", slice},
    {"groupby", groupby}, {"items", items},       {"default", default_value},
    {"d", default_value}, {"attr", attribute},
};

}  // namespace

NativeFn find_sequence_filter(std::string_view name) {
  return find_native(kSequenceFilters, name);
}

}  // namespace skein::jinja
