// How JSON is written: the expressions for strings, white space and numbers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/char_set.h"
#include "grammar/decimal.h"
#include "grammar/regex.h"

namespace skein::grammar {

inline constexpr uint32_t kMaxDigits = 16;  // on either side of the point, unless bounds need more

// None, one space, or a new line and at most 20 spaces or tabs: more makes models run on.
ExprId json_white_space(RegexStore& store);
// One character inside a string: escapes only where they must be.
ExprId json_char(RegexStore& store);
// Likewise; a character beyond the first plane may also be a pair of escapes.
ExprId json_free_char(RegexStore& store);
ExprId json_number(RegexStore& store);
ExprId json_integer(RegexStore& store);

// The scalar that `text` ends with, which has just been completed.
std::string_view last_scalar(std::string_view text);
// Likewise of `text` and what stands behind it, without reading what is in front of the scalar.
std::string last_scalar_of(std::string_view text, std::string_view more);
// Every way to write the value of a scalar that these expressions allow.
ExprId scalar_spellings(RegexStore& store, std::string_view scalar);
ExprId number_spellings(RegexStore& store, const Decimal& value);

// A set of numbers: what a schema says about them, kept apart so that `and` is exact.
struct NumberSet {
  std::optional<Decimal> lo, hi;
  bool lo_open = false, hi_open = false;  // the bound itself is not in it
  bool integers = false, fractions = false;
  std::vector<Decimal> multiples, no_multiples;
  std::optional<std::vector<Decimal>> values;  // only these
  std::vector<Decimal> excluded;
  bool no_exponent = false;  // only how it is written
};

bool has_value(const NumberSet& set, const Decimal& value);
NumberSet both_of(const NumberSet& a, const NumberSet& b);
bool is_empty(const NumberSet& set);
// The union of these is everything that is not in `set`.
std::vector<NumberSet> complement_of(const NumberSet& set);
// Nothing where it cannot be said: a multipleOf, or the least common multiple of several, with more
// than nine digits.
std::optional<ExprId> number_expression(RegexStore& store, NumberSet set);

}  // namespace skein::grammar
