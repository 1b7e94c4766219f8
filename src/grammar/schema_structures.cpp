// Arrays, objects and combinations of schemas.
#include <algorithm>
#include <fmt/format.h>

#include "grammar/schema_reader.h"

namespace skein::grammar {

bool SchemaReader::has_applicator(JsonId schema) const {
  constexpr std::string_view kApplicators[] = {
      "$ref",        "allOf",   "anyOf", "oneOf", "if", "not", "dependentSchemas",
      "$dynamicRef", "contains"};
  return std::any_of(std::begin(kApplicators), std::end(kApplicators),
                     [&](std::string_view name) { return get(schema, name) != kNoJson; });
}

void SchemaReader::read_items(JsonId schema, ArraySet& array) {
  const auto read_prefix = [&](JsonId list) {
    for (const JsonId item : node(list).items) array.prefix.push_back(form(item));
  };
  const JsonId prefix = get(schema, "prefixItems");
  if (prefix != kNoJson) read_prefix(prefix);
  const JsonId items = get(schema, "items");
  JsonId rest = items;
  if (items != kNoJson && node(items).type == Type::kArray) {  // as drafts before 2020-12 write it
    read_prefix(items);
    rest = get(schema, "additionalItems");
  }
  if (rest == kNoJson && !has_applicator(schema)) {
    rest = get(schema, "unevaluatedItems");
  }
  if (rest != kNoJson) array.rest = form(rest);
}

void SchemaReader::read_arrays(JsonId schema, ValueSet& set) {
  ArraySet array;
  read_count(schema, "minItems", array.lo);
  read_count(schema, "maxItems", array.hi);
  read_items(schema, array);
  if (const JsonId keyword = get(schema, "uniqueItems"); keyword != kNoJson) {
    array.unique = node(keyword).type == Type::kTrue;
    array.unique_at = array.unique ? keyword : kNoJson;
  }
  if (const JsonId keyword = get(schema, "contains"); keyword != kNoJson) {
    uint32_t least = 1, most = kUnbounded;
    read_count(schema, "minContains", least);
    const bool bounded = read_count(schema, "maxContains", most);
    if (least > 0 || bounded) relax(keyword, "contains cannot be enforced");
  }
  if (array == ArraySet{}) return;
  ValueSet other = ValueSet::everything();
  other.arrays.clear();
  if (array.lo <= array.hi) other.arrays.push_back(std::move(array));
  restrict(set, other);
}

void SchemaReader::read_members(JsonId schema, ObjectSet& object) {
  if (const JsonId keyword = get(schema, "properties"); keyword != kNoJson) {
    if (node(keyword).type != Type::kObject) {
      fail(FormCode::kInvalidSchema, "properties is not an object", keyword);
      return;
    }
    properties_ += static_cast<uint32_t>(node(keyword).members.size());
    if (properties_ > kMaxProperties) {
      fail(FormCode::kTooComplex,
           fmt::format("{} properties, at most {}", properties_, kMaxProperties), keyword);
      return;
    }
    for (const auto& [name, value] : node(keyword).members) {
      object.members.push_back({name, form(value), false});
    }
    object.listed = !object.members.empty();
  }
  const JsonId keyword = get(schema, "required");
  if (keyword == kNoJson || node(keyword).type == Type::kTrue ||
      node(keyword).type == Type::kFalse) {
    return;  // draft 3 has a boolean, which means nothing any more
  }
  if (node(keyword).type != Type::kArray) {
    fail(FormCode::kInvalidSchema, "required is not an array", keyword);
    return;
  }
  std::unordered_map<std::string, size_t> places;
  for (size_t i = 0; i < object.members.size(); ++i) places.emplace(object.members[i].name, i);
  for (const JsonId item : node(keyword).items) {
    const auto [found, added] = places.try_emplace(node(item).text, object.members.size());
    if (added) object.members.push_back({node(item).text, kAnyForm, true});
    object.members[found->second].required = true;
  }
}

// The names beside `properties`, cut into those that match the same patterns.
void SchemaReader::read_cells(JsonId schema, ObjectSet& object) {
  const JsonId patterns = get(schema, "patternProperties");
  JsonId additional = get(schema, "additionalProperties");
  if (additional == kNoJson && !has_applicator(schema)) {
    additional = get(schema, "unevaluatedProperties");
  }
  FormId others = kAnyForm;
  if (additional != kNoJson) others = form(additional);
  object.cells = {{kAnything, kAnyForm, true}};
  std::vector<std::pair<ExprId, FormId>> parts;
  if (patterns != kNoJson) {
    for (const auto& [text, value] : node(patterns).members) {
      const auto names = pattern(value, text);
      if (!names) {  // any other name may be one of these
        others = kAnyForm;
        continue;
      }
      const FormId what = form(value);
      parts.emplace_back(*names, what);
      std::vector<ObjectSet::Cell> cut;
      for (const ObjectSet::Cell& cell : object.cells) {
        const ExprId inside = store_.both(cell.names, *names);
        const ExprId outside = store_.both(cell.names, store_.negation(*names));
        if (store_.live(inside) != Answer::kNo) {
          cut.push_back({inside, forms_.both(cell.form, what), false});
        }
        if (store_.live(outside) != Answer::kNo) cut.push_back({outside, cell.form, cell.implicit});
      }
      object.cells = std::move(cut);
      if (!charge(object.cells.size()) || object.cells.size() > kMaxUnion) {
        fail(FormCode::kTooComplex,
             fmt::format("patterns that cut names into {} parts, at most {}", object.cells.size(),
                         kMaxUnion),
             patterns);
        return;
      }
    }
  }
  for (ObjectSet::Cell& cell : object.cells) {
    if (!cell.implicit || additional == kNoJson) continue;
    cell.form = others;
    cell.implicit = false;
  }
  const JsonId properties = get(schema, "properties");
  const size_t listed = properties == kNoJson ? 0 : node(properties).members.size();
  for (size_t i = 0; i < object.members.size(); ++i) {  // those that are listed come first
    ObjectSet::Member& member = object.members[i];
    const ExprId text = spelled_text(store_, member.name, Spelling::kJson);
    bool matched = false;
    for (const auto& [names, what] : parts) {
      if (store_.live(store_.both(names, text)) != Answer::kYes) continue;
      member.form = forms_.both(member.form, what);
      matched = true;
    }
    if (i >= listed && !matched) member.form = forms_.both(member.form, others);
  }
}

void SchemaReader::read_names(JsonId schema, ObjectSet& object) {
  const JsonId keyword = get(schema, "propertyNames");
  if (keyword == kNoJson) return;
  const ValueSet& names = values(form(keyword));
  if (!names.exact) {
    relax(keyword, "propertyNames has keywords that cannot be enforced");
    return;
  }
  std::vector<ExprId> texts;
  for (const StringSet& one : names.strings) {
    if (one == StringSet{}) return;
    texts.push_back(algebra_.text_of(one));
  }
  const ExprId allowed = store_.either(std::move(texts));
  ObjectSet rule;
  rule.cells = {{allowed, kAnyForm, true}, {store_.negation(allowed), kNoForm, false}};
  ValueSet left, right;
  left.objects = {object};
  right.objects = {rule};
  const ValueSet result = algebra_.both(left, right);
  if (!result.objects.empty()) {
    object = result.objects[0];
  } else {
    object.hi = 0;
    object.lo = 1;
  }
}

void SchemaReader::read_objects(JsonId schema, ValueSet& set) {
  ObjectSet object;
  read_count(schema, "minProperties", object.lo);
  read_count(schema, "maxProperties", object.hi);
  read_members(schema, object);
  read_cells(schema, object);
  if (error_) return;
  read_names(schema, object);
  if (object == ObjectSet{}) return;
  ValueSet other = ValueSet::everything();
  other.objects.clear();
  if (object.lo <= object.hi) other.objects.push_back(std::move(object));
  restrict(set, other);
}

void SchemaReader::read_dependencies(JsonId schema, ValueSet& set) {
  for (const char* name : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const JsonId keyword = get(schema, name);
    if (keyword == kNoJson) continue;
    for (const auto& [key, value] : node(keyword).members) {
      ValueSet absent = ValueSet::everything(), present;
      absent.objects[0].members = {{key, kNoForm, false}};
      present.objects = {ObjectSet{}};
      present.objects[0].members = {{key, kAnyForm, true}};
      if (node(value).type == Type::kArray) {
        for (const JsonId item : node(value).items) {
          if (node(item).text == key) continue;
          present.objects[0].members.push_back({node(item).text, kAnyForm, true});
        }
      } else if (node(value).type == Type::kString) {  // draft 3
        present.objects[0].members.push_back({node(value).text, kAnyForm, true});
      } else {
        present = algebra_.both(present, values(form(value)));
      }
      if (present.exact) {
        algebra_.unite(absent, present);
        restrict(set, absent);
      } else {
        relax(value, "it has keywords that cannot be enforced");
      }
      if (!charge(1)) return;
    }
  }
}

void SchemaReader::read_combinations(JsonId schema, ValueSet& set) {
  for (const char* name : {"allOf", "anyOf", "oneOf"}) {
    const JsonId keyword = get(schema, name);
    if (keyword == kNoJson) continue;
    if (node(keyword).type != Type::kArray || node(keyword).items.empty()) {
      fail(FormCode::kInvalidSchema, fmt::format("{} is not a list of schemas", name), keyword);
      return;
    }
    if (name[0] == 'o') {
      read_one_of(keyword, set);
      continue;
    }
    ValueSet any;
    for (const JsonId item : node(keyword).items) {
      if (!charge(1)) return;
      const FormId part = form(item);
      if (name[1] == 'l') {
        restrict(set, values(part));
      } else {
        algebra_.unite(any, algebra_.both(set, values(part)));
      }
    }
    if (name[1] == 'n') set = std::move(any);
  }
  const JsonId keyword = get(schema, "not");
  if (keyword == kNoJson) return;
  const ValueSet inner = values(form(keyword));
  const auto rest = inner.exact ? algebra_.complement(inner) : std::nullopt;
  if (rest) {
    restrict(set, *rest);
  } else {
    relax(keyword, "this not cannot be enforced");
  }
}

// Where branches exclude each other, oneOf is anyOf; elsewhere a branch is taken without those that
// it overlaps.
void SchemaReader::read_one_of(JsonId keyword, ValueSet& set) {
  const std::vector<JsonId>& items = node(keyword).items;
  std::vector<ValueSet> branches;
  bool exact = items.size() <= 128;
  for (const JsonId item : items) {
    branches.push_back(algebra_.both(set, values(form(item))));
    exact = exact && branches.back().exact;
    if (!charge(1)) return;
  }
  std::vector<ValueSet> alone = branches;
  for (size_t i = 0; i < branches.size() && exact; ++i) {
    for (size_t j = 0; j < branches.size() && exact; ++j) {
      if (i == j) continue;
      if (!charge(1)) return;
      if (empty_values(algebra_.both(alone[i], branches[j]))) continue;
      const auto others = algebra_.complement(values(form(items[j])));
      exact = others.has_value();
      if (exact) alone[i] = algebra_.both(alone[i], *others);
    }
  }
  if (!exact) relax(keyword, "branches overlap in a way that cannot be enforced");
  ValueSet any;
  for (const ValueSet& branch : exact ? alone : branches) algebra_.unite(any, branch);
  set = std::move(any);
}

void SchemaReader::read_condition(JsonId schema, ValueSet& set) {
  const JsonId condition = get(schema, "if");
  const JsonId then = get(schema, "then"), otherwise = get(schema, "else");
  if (condition == kNoJson || (then == kNoJson && otherwise == kNoJson)) return;
  const ValueSet holds = values(form(condition));
  auto fails = holds.exact ? algebra_.complement(holds) : std::nullopt;
  if (!fails) {
    relax(condition, "this condition cannot be enforced");
    return;
  }
  ValueSet either = algebra_.both(set, holds);
  if (then != kNoJson) either = algebra_.both(either, values(form(then)));
  ValueSet second = algebra_.both(set, *fails);
  if (otherwise != kNoJson) second = algebra_.both(second, values(form(otherwise)));
  algebra_.unite(either, second);
  set = std::move(either);
}

void SchemaReader::refuse_others(JsonId schema) {
  for (const char* name : {"$dynamicRef", "$recursiveRef"}) {
    if (const JsonId keyword = get(schema, name); keyword != kNoJson) {
      relax(keyword, fmt::format("{} is not supported", name));
    }
  }
  for (const char* name : {"unevaluatedProperties", "unevaluatedItems"}) {
    const JsonId keyword = get(schema, name);
    if (keyword == kNoJson || node(keyword).type == Type::kTrue) continue;
    if (has_applicator(schema)) {
      relax(keyword, fmt::format("{} beside other schemas is not supported", name));
    }
  }
}

}  // namespace skein::grammar
