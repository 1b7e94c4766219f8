#include "grammar/schema_reader.h"

#include <algorithm>
#include <fmt/format.h>

namespace skein::grammar {

SchemaReader::SchemaReader(const JsonDocument& document, RegexStore& store,
                           const SchemaOptions& options)
    : document_(document),
      store_(store),
      options_(options),
      refs_(document),
      algebra_(store, forms_),
      store_work_at_first_(store.work()) {
  const JsonId dialect = document.member(document.root(), "$schema");
  if (dialect != kNoJson) {
    const std::string& uri = node(dialect).text;
    dialect_known_ = true;
    for (const char* old : {"draft-03", "draft-04", "draft-05", "draft-06", "draft-07"}) {
      old_draft_ = old_draft_ || uri.find(old) != std::string::npos;
    }
  }
}

void SchemaReader::fail(FormCode code, std::string message, JsonId at) {
  if (error_) return;
  error_ = FormError{code, std::move(message), at == kNoJson ? "" : document_.pointer(at)};
}

void SchemaReader::relax(JsonId keyword, std::string_view why) {
  if (options_.strict) {
    fail(FormCode::kUnsupportedSchema, std::string(why), keyword);
  }
  relaxed_.insert(keyword);
}

std::vector<std::string> SchemaReader::relaxed() {
  std::vector<std::string> pointers;
  size_t bytes = 0;
  for (const JsonId keyword : relaxed_) {
    pointers.push_back(document_.pointer(keyword));
    bytes += pointers.back().size();
    if (bytes <= kMaxRelaxedBytes) continue;
    fail(FormCode::kTooComplex,
         fmt::format("more than {} bytes of pointers to keywords that cannot be enforced",
                     kMaxRelaxedBytes),
         kNoJson);
    break;
  }
  return pointers;
}

bool SchemaReader::charge(uint64_t units) {
  units_ += units;
  if (const uint64_t spent = options_.spent_units + this->units(); spent > kMaxCompileUnits) {
    fail(FormCode::kTooComplex,
         fmt::format("{} units to compile so far, at most {}", spent, kMaxCompileUnits), kNoJson);
  }
  if (algebra_.overflow()) {
    fail(FormCode::kTooComplex,
         fmt::format("a union of {} shapes, at most {}", algebra_.largest(), kMaxUnion), kNoJson);
  }
  if (store_.full()) {
    fail(FormCode::kTooComplex, fmt::format("more than {} expressions", kMaxExpressions), kNoJson);
  }
  return !error_;
}

FormId SchemaReader::form(JsonId schema) {
  if (node(schema).type == Type::kTrue) return kAnyForm;
  if (node(schema).type == Type::kFalse) return kNoForm;
  if (node(schema).type != Type::kObject) {
    fail(FormCode::kInvalidSchema, "a schema is an object or a boolean", schema);
    return kAnyForm;
  }
  return node(schema).members.empty() ? kAnyForm : forms_.schema(schema);
}

const ValueSet& SchemaReader::values(FormId form) {
  if (const auto found = values_.find(form); found != values_.end()) return found->second;
  if (!charge(1) || open_.count(form) > 0) return nothing_;
  if (depth_ > kMaxSchemaDepth * 2) {
    fail(FormCode::kTooComplex, fmt::format("schemas combined deeper than {}", kMaxSchemaDepth * 2),
         kNoJson);
    return nothing_;
  }
  ++depth_;
  open_.insert(form);
  ValueSet set = read_form(form);
  open_.erase(form);
  --depth_;
  charge(1);
  return values_[form] = std::move(set);
}

ValueSet SchemaReader::read_form(FormId id) {
  const FormTable::Form what = forms_.at(id);
  switch (what.kind) {
    case FormTable::Kind::kAny:
      return ValueSet::everything();
    case FormTable::Kind::kNone:
      return ValueSet::nothing();
    case FormTable::Kind::kObjects: {
      ValueSet set;
      set.objects = ValueSet::everything().objects;
      return set;
    }
    case FormTable::Kind::kSchema:
      return read_schema(what.json);
    case FormTable::Kind::kConstant:
      charge(16);  // about as much as so many expressions take
      return read_constant(what.json);
    case FormTable::Kind::kBoth: {
      ValueSet set = values(what.parts[0]);
      for (size_t i = 1; i < what.parts.size(); ++i)
        set = algebra_.both(set, values(what.parts[i]));
      return set;
    }
    case FormTable::Kind::kNot:
      break;
  }
  const ValueSet& inner = values(what.parts[0]);
  auto rest = inner.exact ? algebra_.complement(inner) : std::nullopt;
  if (rest) return std::move(*rest);
  ValueSet set = ValueSet::everything();
  set.exact = false;
  const JsonId source = forms_.at(what.parts[0]).json;
  relax(source == kNoJson ? document_.root() : source, "its complement cannot be enforced");
  return set;
}

bool SchemaReader::is_empty(FormId form) {
  if (form == kAnyForm || form == kNoForm) return form == kNoForm;
  if (const auto found = empty_.find(form); found != empty_.end()) return found->second;
  if (open_.count(form) > 0 || !asked_.insert(form).second || depth_ > kMaxSchemaDepth)
    return false;
  ++depth_;
  const ValueSet set = values(form);
  const bool empty = empty_values(set);
  --depth_;
  asked_.erase(form);
  if (asked_.empty() && open_.empty()) empty_[form] = empty;
  return empty && !error_;
}

bool SchemaReader::empty_values(const ValueSet& set) {
  if (set.null || set.yes || set.no || !set.numbers.empty()) return false;
  charge(1 + set.shapes());
  for (const StringSet& string : set.strings) {
    if (store_.live(algebra_.text_of(string)) != Answer::kNo) return false;
  }
  for (const ArraySet& array : set.arrays) {
    bool empty = false;
    for (uint32_t i = 0; i < array.lo && i <= array.prefix.size(); ++i) {
      empty = empty || is_empty(i < array.prefix.size() ? array.prefix[i] : array.rest);
    }
    if (!empty) return false;
  }
  return std::all_of(set.objects.begin(), set.objects.end(), [&](const ObjectSet& object) {
    return std::any_of(object.members.begin(), object.members.end(), [&](const auto& member) {
      return member.required && is_empty(member.form);
    });
  });
}

void SchemaReader::restrict(ValueSet& set, const ValueSet& other) {
  set = algebra_.both(set, other);
}

ValueSet SchemaReader::read_schema(JsonId schema) {
  const size_t relaxed_before = relaxed_.size();
  ValueSet set = ValueSet::everything();
  if (get(schema, "$ref") != kNoJson) {
    read_reference(schema, set);
    set.exact = set.exact && relaxed_.size() == relaxed_before;
    if (old_draft_) return set;
  }
  check_keywords(schema);
  read_types(schema, set);
  read_enum(schema, set);
  read_numbers(schema, set);
  read_strings(schema, set);
  read_arrays(schema, set);
  read_objects(schema, set);
  read_dependencies(schema, set);
  read_combinations(schema, set);
  read_condition(schema, set);
  refuse_others(schema);
  set.exact = set.exact && relaxed_.size() == relaxed_before;
  return set;
}

void SchemaReader::read_reference(JsonId schema, ValueSet& set) {
  const JsonId keyword = get(schema, "$ref");
  if (node(keyword).type != Type::kString) {
    fail(FormCode::kInvalidSchema, "$ref is not a string", keyword);
    return;
  }
  if (++references_ > kMaxReferences) {
    fail(FormCode::kTooComplex,
         fmt::format("{} references, at most {}", references_, kMaxReferences), keyword);
    return;
  }
  if (!dialect_known_ && get(schema, "$id") != kNoJson) {
    relax(keyword, "$ref beside $id means different things in different drafts; say $schema");
    return;
  }
  const JsonId target = refs_.find(schema, node(keyword).text);
  if (target == kNoJson) {
    const std::string& name = node(keyword).text;
    if (!name.empty() && name[0] == '#') {
      fail(FormCode::kInvalidSchema, fmt::format("'{}' is not in the document", name), keyword);
    } else {
      relax(keyword, fmt::format("'{}' is outside the document; nothing is fetched", name));
    }
    return;
  }
  restrict(set, values(form(target)));
}

}  // namespace skein::grammar
