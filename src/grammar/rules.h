// A context-free grammar whose terminals are regular expressions: what every kind of form is
// compiled to.
//
// Items carry two things that a rule in last place may inherit: a count, which productions guard
// and raise (the items of a list, the members of an object), and the set of texts that terminals
// marked `distinct` have had in this list.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "grammar/form_error.h"
#include "grammar/regex.h"

namespace skein::grammar {

inline constexpr uint32_t kMaxSymbols = 500'000;

struct Symbol {
  enum class Kind : uint8_t { kTerminal, kRule };
  Kind kind;
  bool inherit = false;  // hands count and texts on; only for a rule in last place
  uint32_t index;

  static Symbol terminal(uint32_t index) { return {Kind::kTerminal, false, index}; }
  static Symbol rule(uint32_t index) { return {Kind::kRule, false, index}; }
  static Symbol inheriting(uint32_t index) { return {Kind::kRule, true, index}; }
};

struct Production {
  std::vector<Symbol> symbols;
  uint32_t least = 0, most = kUnbounded;  // the inherited counts for which it is there
  uint32_t raise_to = 0;                  // it adds one to the count, up to this
};

struct Terminal {
  ExprId expression;
  bool distinct = false;  // a JSON scalar that may not come twice in its list, by value
  // A control token, which no text can stand for; its expression is kNothing.
  TokenId token = kNoToken;
};

// The id of a control token by its text, or kNoToken: what a grammar that names one is read with.
using ControlTokens = std::function<TokenId(std::string_view)>;

struct Rules {
  std::shared_ptr<RegexStore> regex = std::make_shared<RegexStore>();
  std::vector<Terminal> terminals;
  std::vector<std::vector<Production>> rules;
  uint32_t start = 0;

  uint32_t add_terminal(ExprId expression, bool distinct = false) {
    terminals.push_back({expression, distinct});
    return static_cast<uint32_t>(terminals.size() - 1);
  }
  uint32_t add_token(TokenId token) {
    terminals.push_back({kNothing, false, token});
    return static_cast<uint32_t>(terminals.size() - 1);
  }
  uint32_t add_rule() {
    rules.emplace_back();
    return static_cast<uint32_t>(rules.size() - 1);
  }
  void add(uint32_t rule, std::vector<Symbol> symbols) {
    rules[rule].push_back({.symbols = std::move(symbols)});
  }
};

// `item`, from `lo` to `hi` times, as a rule that counts.
Symbol counted_list(Rules& rules, const Symbol& item, uint32_t lo, uint32_t hi);

// Reads `<|name|>` or `<[id]>` at `at`, which moves behind it; kNoToken with the reason where that
// is not a control token.
TokenId read_control_token(std::string_view text, size_t& at, const ControlTokens& controls,
                           std::string& why);

// Text that does not contain any of `markers`: what stands in front of the first of them, or all
// of an answer. Without markers, any text.
Symbol free_text(Rules& rules, std::span<const std::string> markers);

// Which rules have a production whose symbols all hold: terminals as `terminals` says, rules where
// the same is true of them.
std::vector<uint8_t> rules_made_of(const Rules& rules, std::span<const uint8_t> terminals);

// Takes out what can never be finished (terminals without a text, rules without an end) and checks
// the limits. Nothing left is unsatisfiable.
FormResult<Rules> finished_rules(Rules rules);

}  // namespace skein::grammar
