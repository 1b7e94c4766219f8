// Sets of JSON values, as a schema describes them: per type a union of shapes, closed under union
// and intersection, and under complement where that can be said.
//
// What is inside arrays and objects is a form: a schema, or a combination of some, whose own set is
// looked at only when it is needed. So recursive schemas are finite.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/json_schema.h"
#include "grammar/json_text.h"
#include "grammar/json_value.h"
#include "grammar/regex.h"

namespace skein::grammar {

using FormId = uint32_t;
inline constexpr FormId kAnyForm = 0;
inline constexpr FormId kNoForm = 1;

struct StringSet {
  uint32_t lo = 0, hi = kUnbounded;  // characters
  ExprId language = kAnything;       // of what is between the quotes
  uint32_t most = kUnbounded;        // at most this many different ones
  friend bool operator==(const StringSet&, const StringSet&) = default;
};

struct ArraySet {
  std::vector<FormId> prefix;
  FormId rest = kAnyForm;
  uint32_t lo = 0, hi = kUnbounded;
  bool unique = false;
  JsonId unique_at = kNoJson;  // the keyword
  friend bool operator==(const ArraySet&, const ArraySet&) = default;
};

struct ObjectSet {
  struct Member {
    std::string name;
    FormId form;
    bool required;
    friend bool operator==(const Member&, const Member&) = default;
  };
  struct Cell {  // names that are no member's; the cells are disjoint and have all of them
    ExprId names;
    FormId form;
    bool implicit;  // the schema says nothing about them
    friend bool operator==(const Cell&, const Cell&) = default;
  };
  std::vector<Member> members;
  std::vector<Cell> cells{{kAnything, kAnyForm, true}};
  uint32_t lo = 0, hi = kUnbounded;
  bool listed = false;  // `properties` has named some
  friend bool operator==(const ObjectSet&, const ObjectSet&) = default;
};

struct ValueSet {
  bool null = false, yes = false, no = false;  // null, true, false
  std::vector<StringSet> strings;
  std::vector<NumberSet> numbers;
  std::vector<ArraySet> arrays;
  std::vector<ObjectSet> objects;
  bool exact = true;  // no keyword was relaxed on the way

  static ValueSet nothing() { return {}; }
  static ValueSet everything();
  size_t shapes() const { return strings.size() + numbers.size() + arrays.size() + objects.size(); }
};

// Forms by what they are made of; equal ones have one id.
class FormTable {
 public:
  enum class Kind : uint8_t { kAny, kNone, kObjects, kSchema, kConstant, kBoth, kNot };
  struct Form {
    Kind kind;
    JsonId json = kNoJson;
    std::vector<FormId> parts;
  };

  FormTable();
  FormId objects() { return intern({Kind::kObjects, kNoJson, {}}); }  // any of them
  FormId schema(JsonId json) { return intern({Kind::kSchema, json, {}}); }
  FormId constant(JsonId json) { return intern({Kind::kConstant, json, {}}); }
  FormId both(FormId a, FormId b);
  FormId negation(FormId a);
  const Form& at(FormId id) const { return forms_[id]; }
  uint32_t size() const { return static_cast<uint32_t>(forms_.size()); }

 private:
  FormId intern(Form form);
  std::vector<Form> forms_;
  std::unordered_map<std::string, FormId> ids_;
};

class ValueAlgebra {
 public:
  ValueAlgebra(RegexStore& store, FormTable& forms) : store_(store), forms_(forms) {}

  void unite(ValueSet& into, const ValueSet& more);
  ValueSet both(const ValueSet& a, const ValueSet& b);
  std::optional<ValueSet> complement(const ValueSet& set);
  // What `object` says about a name that none of its members has.
  FormId form_of_other(const ObjectSet& object, const std::string& name);
  // The texts of a string set, between the quotes.
  ExprId text_of(const StringSet& set);

  bool overflow() const { return largest_ > kMaxUnion; }
  size_t largest() const { return largest_; }  // shapes of a union so far
  uint64_t work() const { return work_; }

 private:
  void note_union(size_t shapes) { largest_ = std::max(largest_, shapes); }
  std::optional<ArraySet> both_arrays(const ArraySet& a, const ArraySet& b);
  std::optional<ObjectSet> both_objects(const ObjectSet& a, const ObjectSet& b);
  std::optional<std::vector<ArraySet>> complement_array(const ArraySet& set);
  std::optional<std::vector<ObjectSet>> complement_object(const ObjectSet& set);

  RegexStore& store_;
  FormTable& forms_;
  size_t largest_ = 0;
  uint64_t work_ = 0;
};

}  // namespace skein::grammar
