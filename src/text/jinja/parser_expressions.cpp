// Expressions, from the loosest operator to the operands.
#include <algorithm>

#include "text/jinja/parser.h"
#include "text/jinja/runtime.h"

namespace skein::jinja {

bool Parser::is_tuple_end(Words end_words) const {
  const Token& token = current();
  if (token.type == TokenType::kPrintEnd || token.type == TokenType::kBlockEnd) return true;
  return token.is_operator(")") || token.is_one_of(end_words);
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

Result<ExprPtr> Parser::parse_binary(std::span<const BinaryOperator> operators, Rule operand) {
  SKEIN_ASSIGN(ExprPtr left, (this->*operand)());
  while (true) {
    const Token& token = current();
    const auto found = std::find_if(operators.begin(), operators.end(), [&token](const auto& o) {
      return token.is_operator(o.text) || token.is_name(o.text);
    });
    if (found == operators.end()) return left;
    const int line = token.line;
    next();
    SKEIN_ASSIGN(ExprPtr right, (this->*operand)());
    SKEIN_ASSIGN(left, make(found->kind, line, std::move(left), std::move(right)));
    left->op = found->op;
  }
}

Result<ExprPtr> Parser::parse_or() {
  static constexpr BinaryOperator kOperators[] = {{"or", ExprKind::kOr, {}}};
  return parse_binary(kOperators, &Parser::parse_and);
}

Result<ExprPtr> Parser::parse_and() {
  static constexpr BinaryOperator kOperators[] = {{"and", ExprKind::kAnd, {}}};
  return parse_binary(kOperators, &Parser::parse_not);
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
  static constexpr BinaryOperator kOperators[] = {{"+", ExprKind::kBinary, Op::kAdd},
                                                  {"-", ExprKind::kBinary, Op::kSubtract}};
  return parse_binary(kOperators, &Parser::parse_concat);
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
  static constexpr BinaryOperator kOperators[] = {{"*", ExprKind::kBinary, Op::kMultiply},
                                                  {"/", ExprKind::kBinary, Op::kDivide},
                                                  {"//", ExprKind::kBinary, Op::kFloorDivide},
                                                  {"%", ExprKind::kBinary, Op::kModulo}};
  return parse_binary(kOperators, &Parser::parse_power);
}

Result<ExprPtr> Parser::parse_power() {
  static constexpr BinaryOperator kOperators[] = {{"**", ExprKind::kBinary, Op::kPower}};
  return parse_binary(kOperators, &Parser::parse_unary);
}

Result<ExprPtr> Parser::parse_unary() {
  SKEIN_ASSIGN(ExprPtr node, parse_signed());
  return parse_filters_and_tests(std::move(node));
}

Result<ExprPtr> Parser::parse_signed() {
  const int line = current().line;
  ExprPtr node;
  if (current().is_operator("-") || current().is_operator("+")) {
    const ExprKind kind = current().text == "-" ? ExprKind::kNegate : ExprKind::kPlus;
    const Nested nested(*this);
    SKEIN_TRY(nested.check());
    next();
    SKEIN_ASSIGN(ExprPtr operand, parse_signed());
    SKEIN_ASSIGN(node, make(kind, line, std::move(operand)));
  } else {
    SKEIN_ASSIGN(node, parse_primary());
  }
  return parse_postfix(std::move(node));
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
  if (token.is_operator("[") || token.is_operator("{")) return parse_display();
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

// [a, b] and {a: b, c: d}
Result<ExprPtr> Parser::parse_display() {
  const bool is_dict = current().is_operator("{");
  const std::string_view close = is_dict ? "}" : "]";
  ExprPtr node = make(is_dict ? ExprKind::kDict : ExprKind::kList, current().line);
  next();
  while (!current().is_operator(close)) {
    if (!node->children.empty()) SKEIN_TRY(expect_operator(","));
    if (current().is_operator(close)) break;
    SKEIN_ASSIGN(ExprPtr item, parse_expression());
    node->children.push_back(std::move(item));
    if (!is_dict) continue;
    SKEIN_TRY(expect_operator(":"));
    SKEIN_ASSIGN(ExprPtr value, parse_expression());
    node->children.push_back(std::move(value));
  }
  next();
  return finish(std::move(node));
}

Result<ExprPtr> Parser::parse_postfix(ExprPtr node) {
  while (true) {
    if (current().is_operator(".") || current().is_operator("[")) {
      SKEIN_ASSIGN(node, parse_subscript(std::move(node)));
    } else if (current().is_operator("(")) {
      SKEIN_ASSIGN(node, parse_call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExprPtr> Parser::parse_filters_and_tests(ExprPtr node) {
  while (true) {
    if (current().is_operator("|")) {
      SKEIN_ASSIGN(node, parse_filter(std::move(node), false));
    } else if (current().is_name("is")) {
      SKEIN_ASSIGN(node, parse_test(std::move(node)));
    } else if (current().is_operator("(")) {
      SKEIN_ASSIGN(node, parse_call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExprPtr> Parser::parse_subscript(ExprPtr object) {
  const int line = current().line;
  if (take_operator(".")) {
    const Token token = current();
    next();
    if (token.type == TokenType::kName) {
      SKEIN_ASSIGN(ExprPtr node, make(ExprKind::kAttribute, line, std::move(object)));
      node->text = token.text;
      return node;
    }
    if (token.type != TokenType::kInteger) return error(token.line, "expected name or number");
    ExprPtr index = make(ExprKind::kLiteral, token.line);
    index->literal = token.integer;
    return make(ExprKind::kItem, line, std::move(object), std::move(index));
  }
  next();  // [
  ExprPtr part[3];
  const auto ends = [this] { return current().is_operator("]") || current().is_operator(":"); };
  if (!ends()) {
    SKEIN_ASSIGN(part[0], parse_expression());
  } else if (current().is_operator("]")) {
    return unexpected("an expression");
  }
  const bool is_slice = current().is_operator(":");
  for (int i = 1; i <= 2 && take_operator(":"); ++i) {
    if (!ends()) {
      SKEIN_ASSIGN(part[i], parse_expression());
    }
  }
  if (is_slice) {
    SKEIN_TRY(expect_operator("]"));
    return make(ExprKind::kSlice, line, std::move(object), std::move(part[0]), std::move(part[1]),
                std::move(part[2]));
  }
  if (current().is_operator(",")) {  // x[1, 2]: the key is a tuple
    ExprPtr key = make(ExprKind::kTuple, line);
    key->children.push_back(std::move(part[0]));
    while (take_operator(",")) {
      SKEIN_ASSIGN(ExprPtr item, parse_expression());
      key->children.push_back(std::move(item));
    }
    SKEIN_ASSIGN(part[0], finish(std::move(key)));
  }
  SKEIN_TRY(expect_operator("]"));
  return make(ExprKind::kItem, line, std::move(object), std::move(part[0]));
}

Result<std::string> Parser::parse_dotted_name() {
  std::string name = current().text;
  SKEIN_TRY(expect(TokenType::kName));
  while (take_operator(".")) {
    name += '.';
    name += current().text;
    SKEIN_TRY(expect(TokenType::kName));
  }
  return name;
}

Result<ExprPtr> Parser::parse_filter(ExprPtr node, bool inline_first) {
  while (inline_first || current().is_operator("|")) {
    if (!inline_first) next();
    inline_first = false;
    ExprPtr filter = make(ExprKind::kFilter, current().line);
    SKEIN_ASSIGN(filter->text, parse_dotted_name());
    filter->native = find_filter(filter->text);
    if (filter->native == nullptr) note_unknown(filter->line, "filter", filter->text);
    filter->children.push_back(std::move(node));
    filter->call = std::make_unique<CallSyntax>();
    if (current().is_operator("(")) {
      SKEIN_ASSIGN(filter->call, parse_call_arguments());
    }
    SKEIN_ASSIGN(node, finish(std::move(filter)));
  }
  return node;
}

Result<ExprPtr> Parser::parse_test(ExprPtr node) {
  const int line = current().line;
  next();  // is
  const bool negated = take_name("not");
  ExprPtr test = make(ExprKind::kTest, line);
  SKEIN_ASSIGN(test->text, parse_dotted_name());
  test->native = find_test(test->text);
  if (test->native == nullptr) note_unknown(line, "test", test->text);
  test->children.push_back(std::move(node));
  test->call = std::make_unique<CallSyntax>();
  const Token& token = current();
  const bool starts_operand =
      (token.type == TokenType::kName && !token.is_one_of({"else", "or", "and"})) ||
      token.type == TokenType::kString || token.type == TokenType::kInteger ||
      token.type == TokenType::kFloat || token.is_operator("[") || token.is_operator("{");
  if (token.is_operator("(")) {
    SKEIN_ASSIGN(test->call, parse_call_arguments());
  } else if (starts_operand) {
    if (token.is_name("is")) return error(token.line, "tests can not be chained with is");
    SKEIN_ASSIGN(ExprPtr operand, parse_primary());
    SKEIN_ASSIGN(operand, parse_postfix(std::move(operand)));
    test->call->positional.push_back(std::move(operand));
  }
  SKEIN_ASSIGN(node, finish(std::move(test)));
  if (!negated) return node;
  return make(ExprKind::kNot, line, std::move(node));
}

}  // namespace skein::jinja
