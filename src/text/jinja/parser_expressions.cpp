#include <algorithm>

#include "text/jinja/parser_state.h"
#include "text/jinja/runtime.h"

namespace skein::jinja {

ExprPtr Parser::make(ExprKind kind, int line) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = line;
  return node;
}

Result<ExprPtr> Parser::finish(ExprPtr node) const {
  uint16_t height = 0;
  const auto count = [&height](const ExprPtr& child) {
    if (child != nullptr) height = std::max(height, child->height);
  };
  for (const ExprPtr& child : node->children) count(child);
  if (node->call != nullptr) {
    for (const ExprPtr& child : node->call->positional) count(child);
    for (const auto& [name, child] : node->call->keywords) count(child);
    count(node->call->star);
    count(node->call->double_star);
  }
  node->height = static_cast<uint16_t>(height + 1);
  if (node->height > Program::kMaxNesting) {
    return error(node->line, "an expression is more than {} levels deep", Program::kMaxNesting);
  }
  return node;
}

Symbol Parser::intern(const std::string& name) {
  const auto [it, added] =
      program_.symbols.try_emplace(name, static_cast<Symbol>(program_.names.size()));
  if (added) program_.names.push_back(name);
  return it->second;
}

void Parser::note_unknown(int line, std::string_view what, std::string_view name) {
  if (!conditional_) unknown_.push_back(error(line, "no {} named '{}'", what, name));
}

bool Parser::is_tuple_end(Words end_words) const {
  const Token& token = current();
  if (token.type == TokenType::kPrintEnd || token.type == TokenType::kBlockEnd) return true;
  if (token.is_operator(")")) return true;
  return token.type == TokenType::kName &&
         std::find(end_words.begin(), end_words.end(), token.text) != end_words.end();
}

Result<ExprPtr> Parser::parse_tuple(TupleRules rules, Words end_words) {
  const int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) SKEIN_TRY(expect_operator(","));
    if (is_tuple_end(end_words)) break;
    SKEIN_ASSIGN(ExprPtr item,
                 rules.names_only ? parse_primary() : parse_expression(rules.with_condition));
    items.push_back(std::move(item));
    if (!current().is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items.front());
    if (!rules.in_parentheses) return unexpected("an expression");
  }
  ExprPtr tuple = make(ExprKind::kTuple, line);
  tuple->children = std::move(items);
  return finish(std::move(tuple));
}

Result<ExprPtr> Parser::parse_expression(bool with_condition) {
  const Nested nested(*this);
  SKEIN_TRY(nested.check());
  return with_condition ? parse_condition() : parse_or();
}

Result<ExprPtr> Parser::parse_condition() {
  const int line = current().line;
  const size_t known_unknown = unknown_.size();
  SKEIN_ASSIGN(ExprPtr node, parse_or());
  const bool outer_conditional = conditional_;
  while (take_name("if")) {
    unknown_.resize(std::min(unknown_.size(), known_unknown));
    conditional_ = true;
    SKEIN_ASSIGN(ExprPtr test, parse_or());
    ExprPtr otherwise;
    if (take_name("else")) {
      const Nested nested(*this);
      SKEIN_TRY(nested.check());
      SKEIN_ASSIGN(otherwise, parse_condition());
    }
    SKEIN_ASSIGN(node, make(ExprKind::kCondition, line, std::move(test), std::move(node),
                            std::move(otherwise)));
  }
  conditional_ = outer_conditional;
  return node;
}

Result<ExprPtr> Parser::parse_or() {
  SKEIN_ASSIGN(ExprPtr left, parse_and());
  while (current().is_name("or")) {
    const int line = current().line;
    next();
    SKEIN_ASSIGN(ExprPtr right, parse_and());
    SKEIN_ASSIGN(left, make(ExprKind::kOr, line, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> Parser::parse_and() {
  SKEIN_ASSIGN(ExprPtr left, parse_not());
  while (current().is_name("and")) {
    const int line = current().line;
    next();
    SKEIN_ASSIGN(ExprPtr right, parse_not());
    SKEIN_ASSIGN(left, make(ExprKind::kAnd, line, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> Parser::parse_not() {
  if (!current().is_name("not")) return parse_compare();
  const Nested nested(*this);
  SKEIN_TRY(nested.check());
  const int line = current().line;
  next();
  SKEIN_ASSIGN(ExprPtr operand, parse_not());
  return make(ExprKind::kNot, line, std::move(operand));
}

bool Parser::take_compare_operator(Op& op) {
  static constexpr std::pair<std::string_view, Op> kOps[] = {
      {"==", Op::kEqual},     {"!=", Op::kNotEqual}, {"<", Op::kLess},
      {"<=", Op::kLessEqual}, {">", Op::kGreater},   {">=", Op::kGreaterEqual}};
  for (const auto& [text, value] : kOps) {
    if (!current().is_operator(text)) continue;
    op = value;
    next();
    return true;
  }
  if (take_name("in")) {
    op = Op::kIn;
    return true;
  }
  if (current().is_name("not") && ahead().is_name("in")) {
    next();
    next();
    op = Op::kNotIn;
    return true;
  }
  return false;
}

Result<ExprPtr> Parser::parse_compare() {
  const int line = current().line;
  SKEIN_ASSIGN(ExprPtr first, parse_sum());
  Op op{};
  if (!take_compare_operator(op)) return first;
  ExprPtr node = make(ExprKind::kCompare, line);
  node->children.push_back(std::move(first));
  do {
    SKEIN_ASSIGN(ExprPtr operand, parse_sum());
    node->ops.push_back(op);
    node->children.push_back(std::move(operand));
  } while (take_compare_operator(op));
  return finish(std::move(node));
}

Result<ExprPtr> Parser::parse_sum() {
  SKEIN_ASSIGN(ExprPtr left, parse_concat());
  while (current().is_operator("+") || current().is_operator("-")) {
    const Op op = current().text == "+" ? Op::kAdd : Op::kSubtract;
    const int line = current().line;
    next();
    SKEIN_ASSIGN(ExprPtr right, parse_concat());
    SKEIN_ASSIGN(left, make(ExprKind::kBinary, line, std::move(left), std::move(right)));
    left->op = op;
  }
  return left;
}

Result<ExprPtr> Parser::parse_concat() {
  const int line = current().line;
  SKEIN_ASSIGN(ExprPtr first, parse_product());
  if (!current().is_operator("~")) return first;
  ExprPtr node = make(ExprKind::kConcat, line);
  node->children.push_back(std::move(first));
  while (take_operator("~")) {
    SKEIN_ASSIGN(ExprPtr part, parse_product());
    node->children.push_back(std::move(part));
  }
  return finish(std::move(node));
}

Result<ExprPtr> Parser::parse_product() {
  static constexpr std::pair<std::string_view, Op> kOps[] = {
      {"*", Op::kMultiply}, {"/", Op::kDivide}, {"//", Op::kFloorDivide}, {"%", Op::kModulo}};
  SKEIN_ASSIGN(ExprPtr left, parse_power());
  while (true) {
    const auto* op = std::find_if(std::begin(kOps), std::end(kOps),
                                  [&](const auto& o) { return current().is_operator(o.first); });
    if (op == std::end(kOps)) return left;
    const int line = current().line;
    next();
    SKEIN_ASSIGN(ExprPtr right, parse_power());
    SKEIN_ASSIGN(left, make(ExprKind::kBinary, line, std::move(left), std::move(right)));
    left->op = op->second;
  }
}

Result<ExprPtr> Parser::parse_power() {
  SKEIN_ASSIGN(ExprPtr left, parse_unary());
  while (current().is_operator("**")) {
    const int line = current().line;
    next();
    SKEIN_ASSIGN(ExprPtr right, parse_unary());
    SKEIN_ASSIGN(left, make(ExprKind::kBinary, line, std::move(left), std::move(right)));
    left->op = Op::kPower;
  }
  return left;
}

Result<ExprPtr> Parser::parse_unary(bool with_filter) {
  const int line = current().line;
  ExprPtr node;
  if (current().is_operator("-") || current().is_operator("+")) {
    const ExprKind kind = current().text == "-" ? ExprKind::kNegate : ExprKind::kPlus;
    const Nested nested(*this);
    SKEIN_TRY(nested.check());
    next();
    SKEIN_ASSIGN(ExprPtr operand, parse_unary(false));
    SKEIN_ASSIGN(node, make(kind, line, std::move(operand)));
  } else {
    SKEIN_ASSIGN(node, parse_primary());
  }
  SKEIN_ASSIGN(node, parse_postfix(std::move(node)));
  if (!with_filter) return node;
  return parse_filters_and_tests(std::move(node));
}

Result<ExprPtr> Parser::parse_primary() {
  const Token& token = current();
  if (token.type == TokenType::kName) return parse_name();
  if (token.type == TokenType::kString) return parse_string();
  if (token.type == TokenType::kInteger || token.type == TokenType::kFloat) {
    ExprPtr node = make(ExprKind::kLiteral, token.line);
    if (token.type == TokenType::kInteger) {
      node->literal = token.integer;
    } else {
      node->literal = token.real;
    }
    next();
    return node;
  }
  const Nested nested(*this);
  SKEIN_TRY(nested.check());
  if (take_operator("(")) {
    SKEIN_ASSIGN(ExprPtr node, parse_tuple({.in_parentheses = true}));
    SKEIN_TRY(expect_operator(")"));
    return node;
  }
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  return unexpected("an expression");
}

Result<ExprPtr> Parser::parse_name() {
  const Token& token = current();
  const std::string& name = token.text;
  ExprPtr node = make(ExprKind::kLiteral, token.line);
  if (name == "true" || name == "True") {
    node->literal = true;
  } else if (name == "false" || name == "False") {
    node->literal = false;
  } else if (name != "none" && name != "None") {
    node->kind = ExprKind::kName;
    node->symbol = intern(name);
    for (MacroSyntax* macro : macros_) {
      macro->uses_caller |= name == "caller";
      macro->uses_kwargs |= name == "kwargs";
      macro->uses_varargs |= name == "varargs";
    }
  }
  next();
  return node;
}

Result<ExprPtr> Parser::parse_string() {
  ExprPtr node = make(ExprKind::kLiteral, current().line);
  std::string text;
  while (current().type == TokenType::kString) {
    text += current().text;
    next();
  }
  node->literal = std::move(text);
  node->string_index = program_.strings++;
  return node;
}

Result<ExprPtr> Parser::parse_list() {
  ExprPtr node = make(ExprKind::kList, current().line);
  next();
  while (!current().is_operator("]")) {
    if (!node->children.empty()) SKEIN_TRY(expect_operator(","));
    if (current().is_operator("]")) break;
    SKEIN_ASSIGN(ExprPtr item, parse_expression());
    node->children.push_back(std::move(item));
  }
  next();
  return finish(std::move(node));
}

Result<ExprPtr> Parser::parse_dict() {
  ExprPtr node = make(ExprKind::kDict, current().line);
  next();
  while (!current().is_operator("}")) {
    if (!node->children.empty()) SKEIN_TRY(expect_operator(","));
    if (current().is_operator("}")) break;
    SKEIN_ASSIGN(ExprPtr key, parse_expression());
    SKEIN_TRY(expect_operator(":"));
    SKEIN_ASSIGN(ExprPtr value, parse_expression());
    node->children.push_back(std::move(key));
    node->children.push_back(std::move(value));
  }
  next();
  return finish(std::move(node));
}

}  // namespace skein::jinja
