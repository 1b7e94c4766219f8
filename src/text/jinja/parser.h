// Source text to tokens, with Jinja2's whitespace control (trim_blocks and lstrip_blocks on), and
// tokens to a Program.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/ast.h"

namespace skein::jinja {

enum class TokenType : uint8_t {
  kData,
  kBlockBegin,
  kBlockEnd,
  kPrintBegin,
  kPrintEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,  // text holds it: "+", "**", "==", "(", ...
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  int line = 0;
  std::string text;  // kData, kName, kString (unescaped), kOperator
  int64_t integer = 0;
  double real = 0;

  bool is_operator(std::string_view op) const { return type == TokenType::kOperator && text == op; }
  bool is_name(std::string_view name) const { return type == TokenType::kName && text == name; }
  bool is_one_of(std::initializer_list<std::string_view> names) const {
    return type == TokenType::kName && std::find(names.begin(), names.end(), text) != names.end();
  }
};

// The tokens of `source` (valid UTF-8), ended by one kEnd. Errors begin with "line N: ".
Result<std::vector<Token>> tokenize(std::string_view source);

// A place in the tokens, which moves on as a parser takes or expects one.
class TokenReader {
 public:
  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[position_]; }
  const Token& ahead() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  void next() {
    if (position_ + 1 < tokens_.size()) ++position_;
  }
  bool take_operator(std::string_view op);
  bool take_name(std::string_view name);
  Status expect_operator(std::string_view op);
  Status expect_name(std::string_view name);
  Status expect(TokenType type);
  Status unexpected(std::string_view wanted) const;
  template <class... A>
  static Status error(int line, fmt::format_string<A...> format, A&&... args) {
    return invalid_argument("line {}: {}", line, fmt::format(format, std::forward<A>(args)...));
  }

 private:
  std::vector<Token> tokens_;
  size_t position_ = 0;
};

// Grammar and precedence are Jinja2's.
class Parser : private TokenReader {
 public:
  Parser(std::vector<Token> tokens, Program& program)
      : TokenReader(std::move(tokens)), program_(program) {}

  Status parse();

 private:
  using Words = std::initializer_list<std::string_view>;

  // --- statements ---
  Status parse_body(Words end_words, Body& body);
  Status parse_block(Words end_words, Body& body);  // the rest of a tag, then parse_body
  Status parse_statement(Body& body);
  Result<std::unique_ptr<Stmt>> parse_for();
  Result<std::unique_ptr<Stmt>> parse_if();
  Result<std::unique_ptr<Stmt>> parse_set();
  Result<std::unique_ptr<Stmt>> parse_macro();
  Result<std::unique_ptr<Stmt>> parse_call_block();
  Result<std::unique_ptr<Stmt>> parse_with();
  Result<std::unique_ptr<Stmt>> parse_filter_block();
  Result<std::unique_ptr<Stmt>> parse_generation();
  Status parse_print(Body& body);
  Result<std::unique_ptr<Stmt>> parse_loop_control();
  Status parse_signature(MacroSyntax& macro);
  Status parse_macro_body(MacroSyntax& macro, std::string_view end_word);
  Result<ExprPtr> parse_target(bool with_namespace, Words end_words);
  Result<std::pair<Symbol, std::string>> parse_name_target();
  Status check_target(Expr& target);

  // --- expressions ---
  struct TupleRules {
    bool names_only = false;      // an assignment target
    bool with_condition = true;   // a if b else c is allowed
    bool in_parentheses = false;  // so () is a tuple
  };
  Result<ExprPtr> parse_tuple(TupleRules rules, Words end_words = {});
  Result<ExprPtr> parse_expression(bool with_condition = true);
  Result<ExprPtr> parse_condition();
  // One level of precedence: `operand`, then any number of an operator and an operand.
  struct BinaryOperator {
    std::string_view text;
    ExprKind kind;
    Op op;
  };
  using Rule = Result<ExprPtr> (Parser::*)();
  Result<ExprPtr> parse_binary(std::span<const BinaryOperator> operators, Rule operand);
  Result<ExprPtr> parse_or();
  Result<ExprPtr> parse_and();
  Result<ExprPtr> parse_not();
  Result<ExprPtr> parse_compare();
  Result<ExprPtr> parse_sum();
  Result<ExprPtr> parse_concat();
  Result<ExprPtr> parse_product();
  Result<ExprPtr> parse_power();
  Result<ExprPtr> parse_unary();
  Result<ExprPtr> parse_signed();  // without filters and tests
  Result<ExprPtr> parse_primary();
  Result<ExprPtr> parse_name();
  Result<ExprPtr> parse_string();
  Result<ExprPtr> parse_display();
  Result<ExprPtr> parse_postfix(ExprPtr node);
  Result<ExprPtr> parse_subscript(ExprPtr node);
  Result<ExprPtr> parse_filters_and_tests(ExprPtr node);
  // `| name(...)` any number of times; `inline_first`: the first comes without its pipe.
  Result<ExprPtr> parse_filter(ExprPtr node, bool inline_first);
  Result<ExprPtr> parse_test(ExprPtr node);
  Result<std::string> parse_dotted_name();
  Result<ExprPtr> parse_call(ExprPtr function);
  Result<std::unique_ptr<CallSyntax>> parse_call_arguments();
  bool is_tuple_end(Words end_words) const;
  bool take_compare_operator(Op& op);

  // --- nodes ---
  ExprPtr make(ExprKind kind, int line) const;
  template <class... Children>
  Result<ExprPtr> make(ExprKind kind, int line, ExprPtr first, Children... rest) {
    ExprPtr node = make(kind, line);
    node->children.push_back(std::move(first));
    (node->children.push_back(std::move(rest)), ...);
    return finish(std::move(node));
  }
  // Sets the node's height and refuses trees that would be too deep to walk.
  Result<ExprPtr> finish(ExprPtr node) const;
  Symbol intern(const std::string& name);
  void note_unknown(int line, std::string_view what, std::string_view name);

  // Counts nesting for as long as it lives.
  class Nested {
   public:
    explicit Nested(Parser& parser) : parser_(parser) { ++parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    ~Nested() { --parser_.nesting_; }
    Status check() const;

   private:
    Parser& parser_;
  };

  Program& program_;
  int nesting_ = 0;
  int loops_ = 0;  // for loops around the current statement within its function
  // Jinja2 refuses unknown filters and tests when it compiles, except below an if: there the
  // template may have asked for them first ('x' is filter).
  bool conditional_ = false;
  std::vector<Status> unknown_;
  std::vector<MacroSyntax*> macros_;  // around the current statement
};

// Errors begin with "line N: ".
Result<std::shared_ptr<const Program>> parse_program(std::string_view source);

}  // namespace skein::jinja
