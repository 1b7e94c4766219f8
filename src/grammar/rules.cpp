#include "grammar/rules.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <utility>

#include "grammar/flat_table.h"

namespace skein::grammar {
namespace {

// Equal terminals become one, so that what has begun is the same wherever it has.
void merge_terminals(Rules& rules) {
  FlatMap<uint32_t> first_of;
  std::vector<uint32_t> same(rules.terminals.size());
  for (uint32_t i = 0; i < rules.terminals.size(); ++i) {
    const Terminal& terminal = rules.terminals[i];
    same[i] = i;
    if (terminal.token != kNoToken) continue;
    const uint64_t key = (uint64_t{terminal.expression} + 1) * 2 + (terminal.distinct ? 1 : 0);
    if (const uint32_t* first = first_of.find(key)) {
      same[i] = *first;
    } else {
      first_of.add(key, i);
    }
  }
  for (auto& rule : rules.rules) {
    for (Production& production : rule) {
      for (Symbol& symbol : production.symbols) {
        if (symbol.kind == Symbol::Kind::kTerminal) symbol.index = same[symbol.index];
      }
    }
  }
}

// Rules that have a text beside the empty one, where terminals do as `terminals` says.
std::vector<uint8_t> rules_with_text(const Rules& rules, std::span<const uint8_t> terminals) {
  std::vector<std::vector<uint32_t>> users(rules.rules.size());
  std::vector<uint8_t> has_text(rules.rules.size(), 0);
  std::vector<uint32_t> found;
  const auto add = [&](uint32_t rule) {
    if (!std::exchange(has_text[rule], 1)) found.push_back(rule);
  };
  for (uint32_t rule = 0; rule < rules.rules.size(); ++rule) {
    for (const Production& production : rules.rules[rule]) {
      for (const Symbol& symbol : production.symbols) {
        if (symbol.kind == Symbol::Kind::kRule) {
          users[symbol.index].push_back(rule);
        } else if (terminals[symbol.index] != 0) {
          add(rule);
        }
      }
    }
  }
  while (!found.empty()) {
    const uint32_t rule = found.back();
    found.pop_back();
    for (const uint32_t user : users[rule]) add(user);
  }
  return has_text;
}

// Takes out symbols that stand for nothing but the empty text: repetitions of them say the same in
// many ways.
void drop_empty_symbols(Rules& rules, std::span<const uint8_t> with_end) {
  std::vector<uint8_t> terminals(with_end.begin(), with_end.end());
  for (size_t i = 0; i < terminals.size(); ++i) {
    if (rules.terminals[i].expression == kEmptyText) terminals[i] = 0;
  }
  const std::vector<uint8_t> has_text = rules_with_text(rules, terminals);
  for (auto& rule : rules.rules) {
    for (Production& production : rule) {
      std::erase_if(production.symbols, [&](const Symbol& symbol) {
        return symbol.kind == Symbol::Kind::kRule ? has_text[symbol.index] == 0
                                                  : terminals[symbol.index] == 0;
      });
      if (production.symbols.empty()) production.least = 0;
    }
  }
}

}  // namespace

std::vector<uint8_t> rules_made_of(const Rules& rules, std::span<const uint8_t> terminals) {
  struct Open {
    uint32_t rule, missing;  // symbols that do not hold yet
  };
  std::vector<Open> productions;
  std::vector<std::vector<uint32_t>> users(rules.rules.size());  // productions, once a use
  std::vector<uint8_t> holds(rules.rules.size(), 0);
  std::vector<uint32_t> found;
  const auto check = [&](const Open& production) {
    if (production.missing > 0 || holds[production.rule]) return;
    holds[production.rule] = 1;
    found.push_back(production.rule);
  };
  for (uint32_t rule = 0; rule < rules.rules.size(); ++rule) {
    for (const Production& production : rules.rules[rule]) {
      Open open{rule, 0};
      for (const Symbol& symbol : production.symbols) {
        const bool is_rule = symbol.kind == Symbol::Kind::kRule;
        if (!is_rule && terminals[symbol.index]) continue;
        ++open.missing;
        if (is_rule) users[symbol.index].push_back(static_cast<uint32_t>(productions.size()));
      }
      productions.push_back(open);
      check(open);
    }
  }
  while (!found.empty()) {
    const uint32_t rule = found.back();
    found.pop_back();
    for (const uint32_t user : users[rule]) {
      --productions[user].missing;
      check(productions[user]);
    }
  }
  return holds;
}

TokenId read_control_token(std::string_view text, size_t& at, const ControlTokens& controls,
                           std::string& why) {
  const size_t end = std::min(text.find('>', at), text.find('\n', at));
  if (end == std::string_view::npos || text[end] != '>') {
    why = "a control token without its >";
    return kNoToken;
  }
  const std::string_view name = text.substr(at, end + 1 - at);
  TokenId token = kNoToken;
  if (name.starts_with("<[") && name.ends_with("]>")) {
    const char* last = name.data() + name.size() - 2;
    const auto read = std::from_chars(name.data() + 2, last, token);
    if (read.ec != std::errc() || read.ptr != last || token < 0) token = kNoToken;
  } else if (controls) {
    token = controls(name);
  }
  if (token == kNoToken) {
    why = fmt::format("'{}' is not a control token of this model", name);
  } else {
    at = end + 1;
  }
  return token;
}

Symbol free_text(Rules& rules, std::span<const std::string> markers) {
  RegexStore& regex = *rules.regex;
  ExprId text = kAnything;
  if (!markers.empty()) {
    const ExprId marker = regex.literals({markers.begin(), markers.end()});
    text = regex.negation(regex.concat(kAnything, regex.concat(marker, kAnything)));
  }
  return Symbol::terminal(rules.add_terminal(text));
}

// Nothing empty is guarded: whether a rule may be empty must not depend on a count.
Symbol counted_list(Rules& rules, const Symbol& item, uint32_t lo, uint32_t hi) {
  const uint32_t list = rules.add_rule();
  const uint32_t limit = hi == kUnbounded ? lo : hi;
  if (lo == 0) rules.rules[list].push_back({.symbols = {}});
  if (lo > 0) rules.rules[list].push_back({.symbols = {item}, .least = lo - 1});
  const uint32_t more = lo == 0 ? 1 : 2;  // items that another round makes at least
  if (hi >= more) {
    rules.rules[list].push_back({.symbols = {item, Symbol::inheriting(list)},
                                 .most = hi == kUnbounded ? kUnbounded : hi - more,
                                 .raise_to = limit});
  }
  return Symbol::rule(list);
}

FormResult<Rules> finished_rules(Rules rules) {
  RegexStore& regex = *rules.regex;
  uint64_t symbols = 0;
  for (const auto& rule : rules.rules) {
    for (const Production& production : rule) symbols += production.symbols.size() + 1;
  }
  if (symbols > kMaxSymbols) {
    return FormError{FormCode::kTooComplex,
                     fmt::format("{} grammar symbols, at most {}", symbols, kMaxSymbols), ""};
  }
  for (Terminal& terminal : rules.terminals) {
    terminal.expression = regex.without_dead_ends(terminal.expression);
    if (regex.live(terminal.expression) == Answer::kNo) terminal.expression = kNothing;
  }
  if (regex.full()) {
    return FormError{FormCode::kTooComplex,
                     fmt::format("more than {} expressions", kMaxExpressions), ""};
  }
  if (regex.question_failed()) {
    return FormError{FormCode::kTooComplex,
                     fmt::format("more than {} steps to find out what can match", kSearchSteps),
                     ""};
  }
  std::vector<uint8_t> terminals;
  for (const Terminal& terminal : rules.terminals) {
    terminals.push_back(terminal.expression != kNothing || terminal.token != kNoToken ? 1 : 0);
  }
  const std::vector<uint8_t> rules_with_end = rules_made_of(rules, terminals);
  const auto has_end = [&](const Symbol& symbol) {
    return symbol.kind == Symbol::Kind::kTerminal ? terminals[symbol.index] != 0
                                                  : rules_with_end[symbol.index] != 0;
  };
  for (auto& rule : rules.rules) {
    std::erase_if(rule, [&](const Production& p) {
      return !std::all_of(p.symbols.begin(), p.symbols.end(), has_end);
    });
  }
  if (!rules_with_end[rules.start]) {
    return FormError{FormCode::kUnsatisfiableSchema, "no text can match", ""};
  }
  drop_empty_symbols(rules, terminals);
  merge_terminals(rules);
  return rules;
}

}  // namespace skein::grammar
