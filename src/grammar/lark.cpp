#include "grammar/lark.h"

#include <algorithm>
#include <fmt/format.h>

#include "grammar/lark_tree.h"

namespace skein::grammar {
namespace {

constexpr size_t kMaxTerminalDepth = 32;  // terminals inside terminals

class LarkWriter {
 public:
  LarkWriter(std::string_view text, Rules rules, LarkGrammar grammar)
      : text_(text), rules_(std::move(rules)), grammar_(std::move(grammar)) {}

  FormResult<Rules> rules() {
    write();
    if (error_) return *error_;
    return std::move(rules_);
  }

 private:
  void fail(std::string_view why) {
    if (!error_) error_ = lark_error(text_, at_, why, FormCode::kInvalidGrammar);
  }

  // A terminal as one expression.
  ExprId terminal_expression(const LarkNode& node) {
    using Kind = LarkNode::Kind;
    RegexStore& store = *rules_.regex;
    if (node.kind == Kind::kExpression) return node.expression;
    if (node.kind == Kind::kName) return named_terminal(node);
    if (node.kind == Kind::kToken) {
      at_ = node.at;
      return fail("a control token inside a terminal"), kNothing;
    }
    std::vector<ExprId> parts;
    for (const LarkPtr& part : node.parts) parts.push_back(terminal_expression(*part));
    if (node.kind == Kind::kOr) return store.either(std::move(parts));
    if (node.kind == Kind::kRepeat) return store.repeat(parts[0], node.lo, node.hi);
    return store.concat(parts);
  }

  ExprId named_terminal(const LarkNode& node) {
    at_ = node.at;
    if (const auto known = terminals_.find(node.name); known != terminals_.end())
      return known->second;
    const auto found = grammar_.definitions.find(node.name);
    if (found == grammar_.definitions.end())
      return fail(fmt::format("'{}' is not defined", node.name)), kNothing;
    if (!is_terminal_name(node.name)) {
      return fail(fmt::format("rule '{}' inside a terminal", node.name)), kNothing;
    }
    if (std::find(open_.begin(), open_.end(), node.name) != open_.end() ||
        open_.size() >= kMaxTerminalDepth) {
      return fail(fmt::format("terminal '{}' is made of itself", node.name)), kNothing;
    }
    open_.push_back(node.name);
    const ExprId e = terminal_expression(*found->second);
    open_.pop_back();
    return terminals_[node.name] = e;
  }

  void push_terminal(uint32_t terminal, std::vector<Symbol>& out) const {
    if (ignore_ != kNoIgnore) out.push_back(Symbol::terminal(ignore_));
    out.push_back(Symbol::terminal(terminal));
  }

  void push_symbols(const LarkNode& node, std::vector<Symbol>& out) {
    using Kind = LarkNode::Kind;
    if (error_) return;
    switch (node.kind) {
      case Kind::kExpression:
        return push_terminal(rules_.add_terminal(node.expression), out);
      case Kind::kToken:
        return push_terminal(rules_.add_token(node.token), out);
      case Kind::kName:
        if (is_terminal_name(node.name)) {
          return push_terminal(rules_.add_terminal(named_terminal(node)), out);
        }
        at_ = node.at;
        if (grammar_.definitions.find(node.name) == grammar_.definitions.end()) {
          return fail(fmt::format("'{}' is not defined", node.name));
        }
        return out.push_back(Symbol::rule(rule_named(node.name)));
      case Kind::kConcat:
        for (const LarkPtr& part : node.parts) push_symbols(*part, out);
        return;
      case Kind::kOr:
      case Kind::kRepeat:
        break;
    }
    const uint32_t inner = rules_.add_rule();
    if (node.kind == Kind::kOr) {
      write_alternatives(node, inner);
      return out.push_back(Symbol::rule(inner));
    }
    std::vector<Symbol> symbols;
    push_symbols(*node.parts[0], symbols);
    rules_.add(inner, std::move(symbols));
    out.push_back(counted_list(rules_, Symbol::rule(inner), node.lo, node.hi));
  }

  void write_alternatives(const LarkNode& node, uint32_t rule) {
    for (const LarkPtr& part : node.parts) {
      std::vector<Symbol> symbols;
      push_symbols(*part, symbols);
      rules_.add(rule, std::move(symbols));
    }
  }

  uint32_t rule_named(const std::string& name) {
    const auto [found, added] = rule_ids_.try_emplace(name, 0);
    if (added) {
      found->second = rules_.add_rule();
      waiting_.push_back(name);
    }
    return found->second;
  }

  void write() {
    if (!grammar_.ignored.empty()) {
      std::vector<ExprId> parts;
      for (const LarkPtr& one : grammar_.ignored) parts.push_back(terminal_expression(*one));
      const ExprId any = rules_.regex->either(std::move(parts));
      ignore_ = rules_.add_terminal(rules_.regex->repeat(any, 0, kUnbounded));
    }
    const uint32_t whole = rules_.add_rule();
    std::vector<Symbol> symbols = {Symbol::rule(rule_named("start"))};
    if (ignore_ != kNoIgnore) symbols.push_back(Symbol::terminal(ignore_));
    rules_.add(whole, std::move(symbols));
    rules_.start = whole;
    while (!waiting_.empty() && !error_) {
      const std::string name = waiting_.back();
      waiting_.pop_back();
      write_alternatives(*grammar_.definitions.at(name), rule_ids_.at(name));
    }
  }

  static constexpr uint32_t kNoIgnore = UINT32_MAX;
  std::string_view text_;
  size_t at_ = 0;
  Rules rules_;
  LarkGrammar grammar_;
  std::map<std::string, ExprId> terminals_;
  std::map<std::string, uint32_t> rule_ids_;
  std::vector<std::string> waiting_, open_;
  uint32_t ignore_ = kNoIgnore;
  std::optional<FormError> error_;
};

}  // namespace

FormResult<uint32_t> append_lark(Rules& rules, std::string_view text, bool in_json_string) {
  const size_t first = rules.terminals.size();
  FormResult<LarkGrammar> grammar = parse_lark(text, *rules.regex, {});
  if (!grammar.ok()) return grammar.error();
  auto added = LarkWriter(text, std::move(rules), std::move(grammar).value()).rules();
  if (!added.ok()) return added.error();
  rules = std::move(added).value();
  for (size_t i = first; in_json_string && i < rules.terminals.size(); ++i) {
    Terminal& terminal = rules.terminals[i];
    terminal.expression = rules.regex->json_escaped(terminal.expression);
  }
  return rules.start;
}

FormResult<Rules> lark_rules(std::string_view text, const ControlTokens& controls) {
  Rules rules;
  FormResult<LarkGrammar> grammar = parse_lark(text, *rules.regex, controls);
  if (!grammar.ok()) return grammar.error();
  return LarkWriter(text, std::move(rules), std::move(grammar).value()).rules();
}

}  // namespace skein::grammar
