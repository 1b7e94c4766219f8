#include "grammar/schema_values.h"

#include <algorithm>

#include "grammar/json_schema.h"

namespace skein::grammar {

ValueSet ValueSet::everything() {
  ValueSet set;
  set.null = set.yes = set.no = true;
  set.strings = {StringSet{}};
  set.numbers = {NumberSet{}};
  set.arrays = {ArraySet{}};
  set.objects = {ObjectSet{}};
  return set;
}

FormTable::FormTable() {
  intern({Kind::kAny, kNoJson, {}});
  intern({Kind::kNone, kNoJson, {}});
}

FormId FormTable::intern(Form form) {
  std::string key(1, static_cast<char>(form.kind));
  key.append(reinterpret_cast<const char*>(&form.json), sizeof(form.json));
  if (!form.parts.empty()) {
    key.append(reinterpret_cast<const char*>(form.parts.data()),
               form.parts.size() * sizeof(FormId));
  }
  const auto [found, added] = ids_.try_emplace(key, size());
  if (added) forms_.push_back(std::move(form));
  return found->second;
}

FormId FormTable::both(FormId a, FormId b) {
  if (a == kAnyForm || a == b) return b;
  if (b == kAnyForm) return a;
  if (a == kNoForm || b == kNoForm) return kNoForm;
  std::vector<FormId> parts;
  for (const FormId one : {a, b}) {
    if (forms_[one].kind == Kind::kBoth) {
      parts.insert(parts.end(), forms_[one].parts.begin(), forms_[one].parts.end());
    } else {
      parts.push_back(one);
    }
  }
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  return intern({Kind::kBoth, kNoJson, std::move(parts)});
}

FormId FormTable::negation(FormId a) {
  if (a == kAnyForm) return kNoForm;
  if (a == kNoForm) return kAnyForm;
  if (forms_[a].kind == Kind::kNot) return forms_[a].parts[0];
  return intern({Kind::kNot, kNoJson, {a}});
}

ExprId ValueAlgebra::text_of(const StringSet& set) {
  const bool counted = set.lo > 0 || set.hi != kUnbounded;
  if (set.language == kAnything) return store_.repeat(json_free_char(store_), set.lo, set.hi);
  if (!counted) return set.language;
  return store_.both(set.language, store_.repeat(json_char(store_), set.lo, set.hi));
}

FormId ValueAlgebra::form_of_other(const ObjectSet& object, const std::string& name) {
  if (object.cells.size() == 1) return object.cells[0].form;  // it has all names
  const ExprId text = spelled_text(store_, name, Spelling::kJson);
  for (const ObjectSet::Cell& cell : object.cells) {
    if (cell.names == kAnything || store_.live(store_.both(cell.names, text)) == Answer::kYes) {
      return cell.form;
    }
  }
  return kAnyForm;
}

void ValueAlgebra::unite(ValueSet& into, const ValueSet& more) {
  into.null = into.null || more.null;
  into.yes = into.yes || more.yes;
  into.no = into.no || more.no;
  into.exact = into.exact && more.exact;
  for (const StringSet& set : more.strings) {
    auto& all = into.strings;
    const auto free_length = [](const StringSet& s) { return s.lo == 0 && s.hi == kUnbounded; };
    const auto same = std::find_if(all.begin(), all.end(), [&](const StringSet& other) {
      return free_length(other) && free_length(set);
    });
    if (std::find(all.begin(), all.end(), set) != all.end()) continue;
    if (same == all.end()) {
      all.push_back(set);
    } else if (same->language == kAnything || set.language == kAnything) {
      same->language = kAnything;
      same->most = kUnbounded;
    } else {
      same->language = store_.either(same->language, set.language);
      same->most =
          same->most == kUnbounded || set.most == kUnbounded ? kUnbounded : same->most + set.most;
    }
  }
  for (const NumberSet& set : more.numbers) {
    if (set.values && !into.numbers.empty() && into.numbers.back().values) {
      auto& values = *into.numbers.back().values;
      values.insert(values.end(), set.values->begin(), set.values->end());
    } else {
      into.numbers.push_back(set);
    }
  }
  const auto append = [](auto& all, const auto& some) {
    for (const auto& set : some) {
      if (std::find(all.begin(), all.end(), set) == all.end()) all.push_back(set);
    }
  };
  append(into.arrays, more.arrays);
  append(into.objects, more.objects);
  work_ += 1 + more.shapes();
  note_union(into.shapes());
}

ValueSet ValueAlgebra::both(const ValueSet& a, const ValueSet& b) {
  ValueSet result;
  result.null = a.null && b.null;
  result.yes = a.yes && b.yes;
  result.no = a.no && b.no;
  result.exact = a.exact && b.exact;
  for (const StringSet& x : a.strings) {
    for (const StringSet& y : b.strings) {
      StringSet set{std::max(x.lo, y.lo), std::min(x.hi, y.hi), store_.both(x.language, y.language),
                    std::min(x.most, y.most)};
      if (set.lo <= set.hi && set.language != kNothing) result.strings.push_back(set);
    }
  }
  for (const NumberSet& x : a.numbers) {
    for (const NumberSet& y : b.numbers) {
      NumberSet set = both_of(x, y);
      if (!is_empty(set)) result.numbers.push_back(std::move(set));
    }
  }
  for (const ArraySet& x : a.arrays) {
    for (const ArraySet& y : b.arrays) {
      if (auto set = both_arrays(x, y)) result.arrays.push_back(std::move(*set));
      note_union(result.shapes());
      if (overflow()) return result;
    }
  }
  for (const ObjectSet& x : a.objects) {
    for (const ObjectSet& y : b.objects) {
      if (auto set = both_objects(x, y)) result.objects.push_back(std::move(*set));
      note_union(result.shapes());
      if (overflow()) return result;
    }
  }
  work_ += 1 + result.shapes();
  note_union(result.shapes());
  return result;
}

std::optional<ArraySet> ValueAlgebra::both_arrays(const ArraySet& a, const ArraySet& b) {
  ArraySet result;
  const size_t n = std::max(a.prefix.size(), b.prefix.size());
  for (size_t i = 0; i < n; ++i) {
    result.prefix.push_back(forms_.both(i < a.prefix.size() ? a.prefix[i] : a.rest,
                                        i < b.prefix.size() ? b.prefix[i] : b.rest));
  }
  result.rest = forms_.both(a.rest, b.rest);
  result.lo = std::max(a.lo, b.lo);
  result.hi = std::min(a.hi, b.hi);
  result.unique = a.unique || b.unique;
  result.unique_at = a.unique ? a.unique_at : b.unique_at;
  work_ += n + 1;
  if (result.lo > result.hi) return std::nullopt;
  return result;
}

std::optional<ObjectSet> ValueAlgebra::both_objects(const ObjectSet& a, const ObjectSet& b) {
  if (a == ObjectSet{}) return b;
  if (b == ObjectSet{}) return a;
  ObjectSet result;
  result.lo = std::max(a.lo, b.lo);
  result.hi = std::min(a.hi, b.hi);
  result.listed = a.listed || b.listed;
  if (result.lo > result.hi) return std::nullopt;
  std::unordered_map<std::string, size_t> of_b;
  for (size_t i = 0; i < b.members.size(); ++i) of_b.emplace(b.members[i].name, i);
  std::vector<char> used(b.members.size(), 0);
  for (const ObjectSet::Member& member : a.members) {
    const auto found = of_b.find(member.name);
    const bool in_b = found != of_b.end();
    if (in_b) used[found->second] = 1;
    const FormId other = in_b ? b.members[found->second].form : form_of_other(b, member.name);
    result.members.push_back({member.name, forms_.both(member.form, other),
                              member.required || (in_b && b.members[found->second].required)});
  }
  for (size_t i = 0; i < b.members.size(); ++i) {
    if (used[i]) continue;
    const ObjectSet::Member& member = b.members[i];
    result.members.push_back(
        {member.name, forms_.both(member.form, form_of_other(a, member.name)), member.required});
  }
  for (const ObjectSet::Member& member : result.members) {
    if (member.required && member.form == kNoForm) return std::nullopt;
  }
  result.cells.clear();
  for (const ObjectSet::Cell& x : a.cells) {
    for (const ObjectSet::Cell& y : b.cells) {
      const ExprId names = store_.both(x.names, y.names);
      if (store_.live(names) == Answer::kNo) continue;
      result.cells.push_back({names, forms_.both(x.form, y.form), x.implicit && y.implicit});
    }
  }
  work_ += result.members.size() + result.cells.size();
  note_union(result.cells.size());
  return result;
}

std::optional<std::vector<ArraySet>> ValueAlgebra::complement_array(const ArraySet& set) {
  if (set.unique) return std::nullopt;
  std::vector<ArraySet> parts;
  if (set.lo > 0) {
    parts.emplace_back();
    parts.back().hi = set.lo - 1;
  }
  if (set.hi != kUnbounded) {
    parts.emplace_back();
    parts.back().lo = set.hi + 1;
  }
  for (size_t i = 0; i < set.prefix.size(); ++i) {
    if (set.prefix[i] == kAnyForm) continue;
    ArraySet part;
    part.prefix.assign(i + 1, kAnyForm);
    part.prefix[i] = forms_.negation(set.prefix[i]);
    part.lo = static_cast<uint32_t>(i + 1);
    parts.push_back(std::move(part));
  }
  if (set.rest == kNoForm) {
    parts.emplace_back();
    parts.back().lo = static_cast<uint32_t>(set.prefix.size() + 1);
  } else if (set.rest != kAnyForm) {
    return std::nullopt;  // some item, anywhere, that is not of the form
  }
  return parts;
}

std::optional<std::vector<ObjectSet>> ValueAlgebra::complement_object(const ObjectSet& set) {
  std::vector<ObjectSet> parts;
  for (const ObjectSet::Member& member : set.members) {
    if (member.required) {
      parts.emplace_back();
      parts.back().members = {{member.name, kNoForm, false}};
    }
    if (member.form != kAnyForm) {
      parts.emplace_back();
      parts.back().members = {{member.name, forms_.negation(member.form), true}};
    }
  }
  if (set.lo > 0) {
    parts.emplace_back();
    parts.back().hi = set.lo - 1;
  }
  if (set.hi != kUnbounded) {
    parts.emplace_back();
    parts.back().lo = set.hi + 1;
  }
  for (const ObjectSet::Cell& cell : set.cells) {
    if (cell.form != kAnyForm) return std::nullopt;  // some name that is not listed here
  }
  return parts;
}

std::optional<ValueSet> ValueAlgebra::complement(const ValueSet& set) {
  ValueSet result = ValueSet::everything();
  result.null = !set.null;
  result.yes = !set.yes;
  result.no = !set.no;
  if (!set.strings.empty()) {
    std::vector<ExprId> texts;
    for (const StringSet& one : set.strings) texts.push_back(text_of(one));
    const ExprId any = store_.repeat(json_char(store_), 0, kUnbounded);
    StringSet rest;
    rest.language = store_.both(any, store_.negation(store_.either(std::move(texts))));
    result.strings.clear();
    if (store_.live(rest.language) != Answer::kNo) result.strings.push_back(rest);
    const bool all = std::any_of(set.strings.begin(), set.strings.end(),
                                 [](const StringSet& s) { return s == StringSet{}; });
    if (all) result.strings.clear();
  }
  const auto keep = [&](ValueSet other) {
    other.null = other.yes = other.no = true;
    result = both(result, other);
  };
  for (const NumberSet& one : set.numbers) {
    ValueSet other = ValueSet::everything();
    other.numbers = complement_of(one);
    keep(std::move(other));
  }
  for (const ArraySet& one : set.arrays) {
    ValueSet other = ValueSet::everything();
    auto parts = complement_array(one);
    if (!parts) return std::nullopt;
    other.arrays = std::move(*parts);
    keep(std::move(other));
  }
  for (const ObjectSet& one : set.objects) {
    ValueSet other = ValueSet::everything();
    auto parts = complement_object(one);
    if (!parts) return std::nullopt;
    other.objects = std::move(*parts);
    keep(std::move(other));
  }
  return result;
}

}  // namespace skein::grammar
