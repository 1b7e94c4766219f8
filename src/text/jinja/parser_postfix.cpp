#include "text/jinja/parser_state.h"
#include "text/jinja/runtime.h"

namespace skein::jinja {

Result<ExprPtr> Parser::parse_postfix(ExprPtr node) {
  while (true) {
    if (current().is_operator(".") || current().is_operator("[")) {
      SKEIN_ASSIGN(node, parse_subscript(std::move(node)));
    } else if (current().is_operator("(")) {
      ExprPtr call = make(ExprKind::kCall, current().line);
      call->children.push_back(std::move(node));
      SKEIN_ASSIGN(call->call, parse_call_arguments());
      SKEIN_ASSIGN(node, finish(std::move(call)));
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
      ExprPtr call = make(ExprKind::kCall, current().line);
      call->children.push_back(std::move(node));
      SKEIN_ASSIGN(call->call, parse_call_arguments());
      SKEIN_ASSIGN(node, finish(std::move(call)));
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
  bool is_slice = false;
  const auto ends = [this] { return current().is_operator("]") || current().is_operator(":"); };
  if (!ends()) {
    SKEIN_ASSIGN(part[0], parse_expression());
  } else if (current().is_operator("]")) {
    return unexpected("an expression");
  }
  for (int i = 1; i <= 2 && take_operator(":"); ++i) {
    is_slice = true;
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

Result<std::unique_ptr<CallSyntax>> Parser::parse_call_arguments() {
  const int line = current().line;
  auto call = std::make_unique<CallSyntax>();
  SKEIN_TRY(expect_operator("("));
  const Status bad = error(line, "invalid syntax for function call expression");
  for (bool first = true; !current().is_operator(")"); first = false) {
    if (!first) {
      SKEIN_TRY(expect_operator(","));
      if (current().is_operator(")")) break;
    }
    if (take_operator("*")) {
      if (call->star != nullptr || call->double_star != nullptr) return bad;
      SKEIN_ASSIGN(call->star, parse_expression());
    } else if (take_operator("**")) {
      if (call->double_star != nullptr) return bad;
      SKEIN_ASSIGN(call->double_star, parse_expression());
    } else if (current().type == TokenType::kName && ahead().is_operator("=")) {
      if (call->double_star != nullptr) return bad;
      std::string name = current().text;
      next();
      next();
      SKEIN_ASSIGN(ExprPtr value, parse_expression());
      call->keywords.emplace_back(std::move(name), std::move(value));
    } else {
      if (call->star != nullptr || call->double_star != nullptr || !call->keywords.empty()) {
        return bad;
      }
      SKEIN_ASSIGN(ExprPtr value, parse_expression());
      call->positional.push_back(std::move(value));
    }
  }
  SKEIN_TRY(expect_operator(")"));
  return call;
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
    filter->fn = find_filter(filter->text);
    if (filter->fn == nullptr) note_unknown(filter->line, "filter", filter->text);
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
  test->fn = find_test(test->text);
  if (test->fn == nullptr) note_unknown(line, "test", test->text);
  test->children.push_back(std::move(node));
  test->call = std::make_unique<CallSyntax>();
  const Token& token = current();
  const bool starts_operand =
      (token.type == TokenType::kName && token.text != "else" && token.text != "or" &&
       token.text != "and") ||
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
