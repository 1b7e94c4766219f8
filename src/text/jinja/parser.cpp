#include "text/jinja/parser.h"

#include "text/jinja/python_text.h"
#include "text/jinja/runtime.h"

namespace skein::jinja {
namespace {

std::unique_ptr<Stmt> statement(StmtKind kind, int line) {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = kind;
  stmt->line = line;
  return stmt;
}

// Sets a variable for a scope and puts it back.
template <class T>
class Restore {
 public:
  Restore(T& variable, T value) : variable_(variable), old_(variable) { variable = value; }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;
  ~Restore() { variable_ = old_; }

 private:
  T& variable_;
  T old_;
};

}  // namespace

Status Parser::Nested::check() const {
  if (parser_.nesting_ <= Program::kMaxNesting) return {};
  return parser_.error(parser_.current().line, "nested more than {} deep", Program::kMaxNesting);
}

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

Status Parser::parse() {
  SKEIN_TRY(parse_body({}, program_.body));
  if (!unknown_.empty()) return unknown_.front();
  return {};
}

Status Parser::parse_body(Words end_words, Body& body) {
  while (current().type != TokenType::kEnd) {
    const Token& token = current();
    if (token.type == TokenType::kData) {
      auto text = statement(StmtKind::kText, token.line);
      text->text = token.text;
      body.push_back(std::move(text));
      next();
    } else if (token.type == TokenType::kPrintBegin) {
      auto print = statement(StmtKind::kPrint, token.line);
      next();
      SKEIN_ASSIGN(print->value, parse_tuple({}));
      SKEIN_TRY(expect(TokenType::kPrintEnd));
      body.push_back(std::move(print));
    } else {
      SKEIN_TRY(expect(TokenType::kBlockBegin));
      if (current().is_one_of(end_words)) return {};
      SKEIN_TRY(parse_statement(body));
      SKEIN_TRY(expect(TokenType::kBlockEnd));
    }
  }
  if (end_words.size() == 0) return {};
  return error(current().line, "unexpected end of template; expected '{}'", *end_words.begin());
}

Status Parser::parse_block(Words end_words, Body& body) {
  take_operator(":");
  SKEIN_TRY(expect(TokenType::kBlockEnd));
  return parse_body(end_words, body);
}

Status Parser::parse_statement(Body& body) {
  const Nested nested(*this);
  SKEIN_TRY(nested.check());
  using Tag = Result<std::unique_ptr<Stmt>> (Parser::*)();
  static constexpr std::pair<std::string_view, Tag> kTags[] = {
      {"for", &Parser::parse_for},
      {"if", &Parser::parse_if},
      {"set", &Parser::parse_set},
      {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_block},
      {"with", &Parser::parse_with},
      {"filter", &Parser::parse_filter_block},
      {"generation", &Parser::parse_generation},
      {"break", &Parser::parse_loop_control},
      {"continue", &Parser::parse_loop_control},
  };
  const Token& token = current();
  if (token.type != TokenType::kName) return error(token.line, "tag name expected");
  if (token.text == "print") return parse_print(body);
  for (const auto& [name, parse_tag] : kTags) {
    if (token.text != name) continue;
    SKEIN_ASSIGN(std::unique_ptr<Stmt> stmt, (this->*parse_tag)());
    body.push_back(std::move(stmt));
    return {};
  }
  return error(token.line, "unknown tag '{}'", token.text);
}

Result<std::unique_ptr<Stmt>> Parser::parse_for() {
  auto loop = statement(StmtKind::kFor, current().line);
  next();
  SKEIN_ASSIGN(loop->target, parse_target(false, {"in"}));
  SKEIN_TRY(expect_name("in"));
  SKEIN_ASSIGN(loop->value, parse_tuple({.with_condition = false}, {"recursive"}));
  const Restore conditional(conditional_, false);
  if (take_name("if")) {
    SKEIN_ASSIGN(loop->filter, parse_expression());
  }
  loop->recursive = take_name("recursive");
  {
    const Restore in_loop(loops_, loops_ + 1);
    SKEIN_TRY(parse_block({"endfor", "else"}, loop->body));
  }
  if (take_name("else")) SKEIN_TRY(parse_block({"endfor"}, loop->otherwise));
  SKEIN_TRY(expect_name("endfor"));
  return loop;
}

Result<std::unique_ptr<Stmt>> Parser::parse_if() {
  auto stmt = statement(StmtKind::kIf, current().line);
  const Restore conditional(conditional_, true);
  do {
    next();  // if, elif
    Branch branch;
    SKEIN_ASSIGN(branch.test, parse_tuple({.with_condition = false}));
    SKEIN_TRY(parse_block({"elif", "else", "endif"}, branch.body));
    stmt->branches.push_back(std::move(branch));
  } while (current().is_name("elif"));
  if (take_name("else")) SKEIN_TRY(parse_block({"endif"}, stmt->otherwise));
  SKEIN_TRY(expect_name("endif"));
  return stmt;
}

Result<std::unique_ptr<Stmt>> Parser::parse_set() {
  const int line = current().line;
  next();
  SKEIN_ASSIGN(ExprPtr target, parse_target(true, {}));
  if (take_operator("=")) {
    auto stmt = statement(StmtKind::kSet, line);
    stmt->target = std::move(target);
    SKEIN_ASSIGN(stmt->value, parse_tuple({}));
    return stmt;
  }
  auto stmt = statement(StmtKind::kSetBlock, line);
  stmt->target = std::move(target);
  const Restore conditional(conditional_, false);
  SKEIN_ASSIGN(stmt->filter, parse_filter(nullptr, false));
  SKEIN_TRY(parse_block({"endset"}, stmt->body));
  SKEIN_TRY(expect_name("endset"));
  return stmt;
}

Status Parser::parse_signature(MacroSyntax& macro) {
  SKEIN_TRY(expect_operator("("));
  while (!current().is_operator(")")) {
    if (!macro.parameters.empty()) SKEIN_TRY(expect_operator(","));
    const int line = current().line;
    SKEIN_ASSIGN(auto parameter, parse_name_target());
    if (take_operator("=")) {
      SKEIN_ASSIGN(ExprPtr value, parse_expression());
      macro.defaults.push_back(std::move(value));
    } else if (!macro.defaults.empty()) {
      return error(line, "non-default argument follows default argument");
    } else if (parameter.second == "caller") {
      return error(line, "the argument 'caller' needs a default");
    }
    macro.parameters.push_back(std::move(parameter));
  }
  return expect_operator(")");
}

Result<ExprPtr> Parser::parse_call(ExprPtr function) {
  ExprPtr call = make(ExprKind::kCall, current().line);
  call->children.push_back(std::move(function));
  SKEIN_ASSIGN(call->call, parse_call_arguments());
  return finish(std::move(call));
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

Status Parser::parse_macro_body(MacroSyntax& macro, std::string_view end_word) {
  const Restore conditional(conditional_, false);
  const Restore loops(loops_, 0);
  macros_.push_back(&macro);
  const Status status = parse_block({end_word}, macro.body);
  macros_.pop_back();
  SKEIN_TRY(status);
  return expect_name(end_word);
}

Result<std::unique_ptr<Stmt>> Parser::parse_macro() {
  auto stmt = statement(StmtKind::kMacro, current().line);
  next();
  stmt->macro = std::make_unique<MacroSyntax>();
  SKEIN_ASSIGN(auto name, parse_name_target());
  stmt->symbol = name.first;
  stmt->macro->name = std::move(name.second);
  {
    const Restore conditional(conditional_, false);
    SKEIN_TRY(parse_signature(*stmt->macro));
  }
  SKEIN_TRY(parse_macro_body(*stmt->macro, "endmacro"));
  return stmt;
}

Result<std::unique_ptr<Stmt>> Parser::parse_call_block() {
  auto stmt = statement(StmtKind::kCallBlock, current().line);
  next();
  stmt->macro = std::make_unique<MacroSyntax>();
  stmt->macro->name = "caller";
  if (current().is_operator("(")) SKEIN_TRY(parse_signature(*stmt->macro));
  SKEIN_ASSIGN(stmt->value, parse_expression());
  if (stmt->value->kind != ExprKind::kCall) return error(stmt->line, "expected call");
  SKEIN_TRY(parse_macro_body(*stmt->macro, "endcall"));
  return stmt;
}

Result<std::unique_ptr<Stmt>> Parser::parse_with() {
  auto stmt = statement(StmtKind::kWith, current().line);
  next();
  while (current().type != TokenType::kBlockEnd) {
    if (!stmt->bindings.empty()) SKEIN_TRY(expect_operator(","));
    SKEIN_ASSIGN(ExprPtr target, parse_target(false, {}));
    SKEIN_TRY(expect_operator("="));
    SKEIN_ASSIGN(ExprPtr value, parse_expression());
    stmt->bindings.emplace_back(std::move(target), std::move(value));
  }
  const Restore conditional(conditional_, false);
  SKEIN_TRY(parse_block({"endwith"}, stmt->body));
  SKEIN_TRY(expect_name("endwith"));
  return stmt;
}

Result<std::unique_ptr<Stmt>> Parser::parse_filter_block() {
  auto stmt = statement(StmtKind::kFilterBlock, current().line);
  next();
  const Restore conditional(conditional_, false);
  SKEIN_ASSIGN(stmt->filter, parse_filter(nullptr, true));
  SKEIN_TRY(parse_block({"endfilter"}, stmt->body));
  SKEIN_TRY(expect_name("endfilter"));
  return stmt;
}

Result<std::unique_ptr<Stmt>> Parser::parse_generation() {
  auto stmt = statement(StmtKind::kScope, current().line);
  next();
  const Restore conditional(conditional_, false);
  const Restore loops(loops_, 0);
  SKEIN_TRY(parse_block({"endgeneration"}, stmt->body));
  SKEIN_TRY(expect_name("endgeneration"));
  return stmt;
}

Status Parser::parse_print(Body& body) {
  next();
  for (bool first = true; current().type != TokenType::kBlockEnd; first = false) {
    if (!first) SKEIN_TRY(expect_operator(","));
    auto print = statement(StmtKind::kPrint, current().line);
    SKEIN_ASSIGN(print->value, parse_expression());
    body.push_back(std::move(print));
  }
  return {};
}

Result<std::unique_ptr<Stmt>> Parser::parse_loop_control() {
  const Token& word = current();
  if (loops_ == 0) return error(word.line, "'{}' outside a loop", word.text);
  auto stmt = statement(word.text == "break" ? StmtKind::kBreak : StmtKind::kContinue, word.line);
  next();
  return stmt;
}

Result<std::pair<Symbol, std::string>> Parser::parse_name_target() {
  const Token token = current();
  SKEIN_TRY(expect(TokenType::kName));
  if (token.is_one_of({"true", "false", "none", "True", "False", "None"})) {
    return error(token.line, "can't assign to '{}'", token.text);
  }
  return std::pair(intern(token.text), token.text);
}

Result<ExprPtr> Parser::parse_target(bool with_namespace, Words end_words) {
  const int line = current().line;
  if (with_namespace && ahead().is_operator(".")) {
    ExprPtr target = make(ExprKind::kNamespaceTarget, line);
    target->symbol = intern(current().text);
    SKEIN_TRY(expect(TokenType::kName));
    next();  // the dot
    target->text = current().text;
    SKEIN_TRY(expect(TokenType::kName));
    return target;
  }
  SKEIN_ASSIGN(ExprPtr target, parse_tuple({.names_only = true}, end_words));
  SKEIN_TRY(check_target(*target));
  return target;
}

Status Parser::check_target(Expr& target) {
  if (target.kind == ExprKind::kName) return {};
  if (target.kind != ExprKind::kTuple) return error(target.line, "can't assign to this");
  for (const ExprPtr& child : target.children) SKEIN_TRY(check_target(*child));
  return {};
}

// --- expressions, from the loosest operator to the operands ---

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

Result<std::shared_ptr<const Program>> parse_program(std::string_view source) {
  if (!is_utf8(source)) return invalid_argument("line 1: the template is not valid UTF-8");
  SKEIN_ASSIGN(std::vector<Token> tokens, tokenize(source));
  auto program = std::make_shared<Program>();
  SKEIN_TRY(Parser(std::move(tokens), *program).parse());
  return std::shared_ptr<const Program>(std::move(program));
}

}  // namespace skein::jinja
