// Source text to tokens, with Jinja2's whitespace control (trim_blocks and lstrip_blocks on).
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

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

}  // namespace skein::jinja
