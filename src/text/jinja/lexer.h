// Source text to tokens, with Jinja2's whitespace control (trim_blocks and lstrip_blocks on).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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
};

// The tokens of `source` (valid UTF-8), ended by one kEnd. Errors begin with "line N: ".
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace skein::jinja
