#include "text/jinja/parser.h"

#include <algorithm>

#include "text/jinja/python_text.h"

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

Result<std::shared_ptr<const Program>> parse_program(std::string_view source) {
  if (!is_utf8(source)) return invalid_argument("line 1: the template is not valid UTF-8");
  SKEIN_ASSIGN(std::vector<Token> tokens, tokenize(source));
  auto program = std::make_shared<Program>();
  SKEIN_TRY(Parser(std::move(tokens), *program).parse());
  return std::shared_ptr<const Program>(std::move(program));
}

}  // namespace skein::jinja
