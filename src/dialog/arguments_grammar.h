// The arguments of calls as rules: bound to a tool's JSON Schema in the syntax of a format.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dialog/chat_format.h"
#include "dialog/rules_writer.h"
#include "grammar/json_schema.h"

namespace skein::dialog {

class ArgumentsGrammar : private RulesWriter {
 public:
  ArgumentsGrammar(grammar::Rules& rules, const grammar::ControlTokens& tokens,
                   const CallFormat& calls)
      : RulesWriter(rules, tokens), calls_(calls) {}

  // Appends the arguments of a tool, whose number stands in what is relaxed or refused.
  void write(const Tool& tool, size_t number, Symbols& out);
  // After all of them: a tool that no arguments can match is an error.
  void refuse_empty();

  const std::optional<grammar::FormError>& error() const { return error_; }
  std::vector<std::string> take_relaxed() { return std::move(relaxed_); }

 private:
  struct Pair {
    std::string key;
    const OrderedJson* schema;
    std::string where;  // it stands in the parameters, as a JSON pointer
  };

  std::string pointer(std::string_view rest) const;
  void fail(grammar::FormError error);
  void relax(const std::string& where, const Tool& tool);
  void relax_any(const Tool& tool, const std::string& where, const OrderedJson& schema,
                 std::span<const std::string_view> keywords);
  void check(const Tool& tool);
  void push_rule(uint32_t rule, Symbols& out);
  uint32_t schema(const OrderedJson& schema, grammar::SchemaOptions options,
                  const std::string& where);
  grammar::FormResult<uint32_t> pattern(std::string_view text, bool in_json_string);
  void write_text(const Tool& tool, Symbols& out);
  uint32_t write_pairs(const Tool& tool, bool any);
  bool tagged() const { return calls_.shape == CallShape::kTagged; }
  bool pairs() const { return tagged() || calls_.shape == CallShape::kLoose; }
  void write_key(const std::string& key, bool behind, Symbols& out);
  uint32_t write_value(const Tool& tool, const Pair& pair);
  void write_raw(const Tool& tool, const std::string& where, const OrderedJson& property,
                 Symbols& out);
  uint32_t any_value();
  uint32_t free_pairs();

  const CallFormat& calls_;
  size_t tool_ = 0;     // that is being written
  uint64_t units_ = 0;  // that all schemas so far have taken; together they may take what one may
  std::vector<std::pair<size_t, uint32_t>> written_;  // the arguments of tools, as rules
  std::vector<std::string> relaxed_;
  std::optional<grammar::FormError> error_;
};

}  // namespace skein::dialog
