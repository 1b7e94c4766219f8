// From the keywords of a schema to the set of values that they allow.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/json_schema.h"
#include "grammar/json_value.h"
#include "grammar/schema_refs.h"
#include "grammar/schema_values.h"

namespace skein::grammar {

class SchemaReader {
 public:
  SchemaReader(const JsonDocument& document, RegexStore& store, const SchemaOptions& options);

  FormTable& forms() { return forms_; }
  ValueAlgebra& algebra() { return algebra_; }
  FormId form(JsonId schema);
  // The values of a form. A form that needs itself to be known has none.
  const ValueSet& values(FormId form);
  // Whether a form is known to have no value; false while it is being found out.
  bool is_empty(FormId form);
  // Counts `units` and what the expressions have taken; false where it was too much.
  bool charge(uint64_t units);
  // Why the schema is refused; the first reason counts.
  void fail(FormCode code, std::string message, JsonId at);
  // A keyword that is not enforced: an error if strict, else it is named.
  void relax(JsonId keyword, std::string_view why);

  const std::optional<FormError>& error() const { return error_; }
  uint64_t units() const { return units_ + algebra_.work() + store_.work() - store_work_at_first_; }
  // Their pointers; too many of them are an error.
  std::vector<std::string> relaxed();

 private:
  using Type = JsonDocument::Type;

  const JsonDocument::Node& node(JsonId id) const { return document_.at(id); }
  JsonId get(JsonId schema, std::string_view name) const { return document_.member(schema, name); }

  ValueSet read_form(FormId form);
  ValueSet read_schema(JsonId schema);
  void check_keywords(JsonId schema);
  bool are_strings(JsonId list) const;
  ValueSet read_constant(JsonId value);
  void read_reference(JsonId schema, ValueSet& set);
  void read_types(JsonId schema, ValueSet& set);
  void read_enum(JsonId schema, ValueSet& set);
  void read_numbers(JsonId schema, ValueSet& set);
  void read_strings(JsonId schema, ValueSet& set);
  void read_arrays(JsonId schema, ValueSet& set);
  void read_items(JsonId schema, ArraySet& array);
  void read_objects(JsonId schema, ValueSet& set);
  void read_members(JsonId schema, ObjectSet& object);
  void read_cells(JsonId schema, ObjectSet& object);
  void read_names(JsonId schema, ObjectSet& object);
  void read_dependencies(JsonId schema, ValueSet& set);
  void read_combinations(JsonId schema, ValueSet& set);
  void read_one_of(JsonId keyword, ValueSet& set);
  void read_condition(JsonId schema, ValueSet& set);
  void refuse_others(JsonId schema);
  bool has_applicator(JsonId schema) const;

  bool read_count(JsonId schema, std::string_view name, uint32_t& value);
  std::optional<Decimal> read_number(JsonId schema, std::string_view name);
  std::optional<ExprId> pattern(JsonId keyword, std::string_view text);
  void restrict(ValueSet& set, const ValueSet& other);
  bool empty_values(const ValueSet& set);

  const JsonDocument& document_;
  RegexStore& store_;
  SchemaOptions options_;
  SchemaRefs refs_;
  FormTable forms_;
  ValueAlgebra algebra_;
  bool dialect_known_ = false;
  bool old_draft_ = false;  // where keywords beside `$ref` are ignored
  std::unordered_map<FormId, ValueSet> values_;
  std::unordered_map<FormId, bool> empty_;
  std::set<FormId> open_;  // being read
  std::set<FormId> asked_;
  uint32_t depth_ = 0;
  uint64_t units_ = 0;
  uint64_t store_work_at_first_;
  uint32_t properties_ = 0, enum_values_ = 0, references_ = 0;
  std::optional<FormError> error_;
  std::set<JsonId> relaxed_;
  ValueSet nothing_;
};

}  // namespace skein::grammar
