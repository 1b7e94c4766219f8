#include <algorithm>

#include "text/jinja/parser.h"
#include "text/jinja/python_text.h"

namespace skein::jinja {
namespace {

// \r\n and \r become \n, and one newline at the very end goes (keep_trailing_newline is off).
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> run() {
    while (pos_ < source_.size()) SKEIN_TRY(lex_data());
    push(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  Status lex_data();
  Status lex_raw(size_t begin);
  Status lex_comment();
  Status lex_tag(bool block);
  Status lex_expression_token();
  Status lex_number();
  Status lex_string();
  Status lex_operator();

  char at(size_t pos) const { return pos < source_.size() ? source_[pos] : '\0'; }
  std::string_view rest(size_t pos) const { return std::string_view(source_).substr(pos); }
  bool starts(size_t pos, std::string_view what) const {
    return std::string_view(source_).compare(pos, what.size(), what) == 0;
  }
  size_t skip_space(size_t pos) const {
    while (pos < source_.size()) {
      const CodePoint c = code_point_at(source_, pos);
      if (!is_space(c.value)) break;
      pos += c.length;
    }
    return pos;
  }
  void advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(pos_),
                                         source_.begin() + static_cast<ptrdiff_t>(to), '\n'));
    line_starting_ = to > 0 && source_[to - 1] == '\n';
    pos_ = to;
  }
  void push(TokenType type, std::string text) {
    Token token;
    token.type = type;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
  }
  template <class... A>
  Status error(fmt::format_string<A...> format, A&&... args) const {
    return invalid_argument("line {}: {}", line_, fmt::format(format, std::forward<A>(args)...));
  }

  std::string_view strip_before_tag(std::string_view text, char sign, bool print) const;
  size_t raw_begin_length(size_t pos) const;
  bool raw_end_at(size_t pos, size_t& end) const;
  // Length of "%}", "-%}", "+%}" and what they eat, at pos; 0 when none is there.
  size_t block_end_length(size_t pos) const;

  std::string source_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string open_brackets_;  // the closing ones that are expected
  std::vector<Token> tokens_;
};

std::string_view Lexer::strip_before_tag(std::string_view text, char sign, bool print) const {
  if (sign == '-') return text.substr(0, strip_space(text, false, true).end);
  if (sign == '+' || print) return text;
  const size_t newline = text.rfind('\n');
  const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
  if (line_begin == 0 && !line_starting_) return text;
  const std::string_view last_line = text.substr(line_begin);
  const Span left = strip_space(last_line, true, false);
  return left.begin == last_line.size() ? text.substr(0, line_begin) : text;
}

size_t Lexer::raw_begin_length(size_t pos) const {
  size_t p = pos + 2;
  if (at(p) == '-' || at(p) == '+') ++p;
  p = skip_space(p);
  if (!starts(p, "raw")) return 0;
  p = skip_space(p + 3);
  if (starts(p, "-%}")) return skip_space(p + 3) - pos;
  return starts(p, "%}") ? p + 2 - pos : 0;
}

size_t Lexer::block_end_length(size_t pos) const {
  if (starts(pos, "+%}")) return 3;
  if (starts(pos, "-%}")) return skip_space(pos + 3) - pos;
  if (starts(pos, "%}")) return at(pos + 2) == '\n' ? 3 : 2;
  return 0;
}

Status Lexer::lex_data() {
  size_t tag = pos_;
  for (;; ++tag) {
    tag = source_.find('{', tag);
    if (tag == std::string::npos) break;
    const char kind = at(tag + 1);
    if (kind == '%' || kind == '{' || kind == '#') break;
  }
  if (tag == std::string::npos) {
    push(TokenType::kData, source_.substr(pos_));
    advance(source_.size());
    return {};
  }
  const char kind = source_[tag + 1];
  const char sign = at(tag + 2);
  const std::string_view text =
      strip_before_tag(rest(pos_).substr(0, tag - pos_), sign, kind == '{');
  if (!text.empty()) push(TokenType::kData, std::string(text));
  if (kind == '%') {
    if (const size_t raw = raw_begin_length(tag); raw > 0) {
      advance(tag + raw);
      return lex_raw(pos_);
    }
  }
  advance(tag + 2 + (sign == '-' || sign == '+' ? 1 : 0));
  if (kind == '#') return lex_comment();
  return lex_tag(kind == '%');
}

bool Lexer::raw_end_at(size_t pos, size_t& end) const {
  size_t p = pos + 2;
  if (at(p) == '-' || at(p) == '+') ++p;
  p = skip_space(p);
  if (!starts(p, "endraw")) return false;
  p = skip_space(p + 6);
  const size_t length = block_end_length(p);
  end = p + length;
  return length > 0;
}

Status Lexer::lex_raw(size_t begin) {
  for (size_t tag = begin;; tag += 2) {
    tag = source_.find("{%", tag);
    if (tag == std::string::npos) {
      if (begin == source_.size()) return {};  // as with comments
      return error("missing end of raw directive");
    }
    size_t end = 0;
    if (!raw_end_at(tag, end)) continue;
    const std::string_view text =
        strip_before_tag(rest(begin).substr(0, tag - begin), at(tag + 2), false);
    if (!text.empty()) push(TokenType::kData, std::string(text));
    advance(end);
    return {};
  }
}

Status Lexer::lex_comment() {
  const size_t close = source_.find("#}", pos_);
  if (close == std::string::npos) {
    if (pos_ == source_.size()) return {};  // Jinja2 misses an end only after some text
    return error("missing end of comment tag");
  }
  size_t end = close + 2;
  if (close > pos_ && source_[close - 1] == '-') {
    end = skip_space(end);
  } else if (!(close > pos_ && source_[close - 1] == '+') && at(end) == '\n') {
    ++end;
  }
  advance(end);
  return {};
}

Status Lexer::lex_tag(bool block) {
  push(block ? TokenType::kBlockBegin : TokenType::kPrintBegin, "");
  open_brackets_.clear();
  while (pos_ < source_.size()) {
    if (open_brackets_.empty()) {
      size_t end = 0;
      if (block) {
        end = block_end_length(pos_);
      } else if (starts(pos_, "-}}")) {
        end = skip_space(pos_ + 3) - pos_;
      } else if (starts(pos_, "}}")) {
        end = 2;
      }
      if (end > 0) {
        push(block ? TokenType::kBlockEnd : TokenType::kPrintEnd, "");
        advance(pos_ + end);
        return {};
      }
    }
    SKEIN_TRY(lex_expression_token());
  }
  return {};
}

Status Lexer::lex_expression_token() {
  if (const size_t end = skip_space(pos_); end > pos_) {
    advance(end);
    return {};
  }
  const CodePoint c = code_point_at(source_, pos_);
  if (c.value >= '0' && c.value <= '9') return lex_number();
  if (is_word(c.value)) {
    size_t end = pos_;
    while (end < source_.size()) {
      const CodePoint next = code_point_at(source_, end);
      if (!is_word(next.value)) break;
      end += next.length;
    }
    if (!is_alpha(c.value) && c.value != '_') return error("invalid character in identifier");
    push(TokenType::kName, source_.substr(pos_, end - pos_));
    advance(end);
    return {};
  }
  if (c.value == '\'' || c.value == '"') return lex_string();
  return lex_operator();
}

Status Lexer::lex_number() {
  const bool after_dot = pos_ > 0 && source_[pos_ - 1] == '.';
  const NumberLiteral number = scan_number(rest(pos_), !after_dot);
  if (number.out_of_range)
    return error("number {} is out of range", rest(pos_).substr(0, number.length));
  push(number.is_float ? TokenType::kFloat : TokenType::kInteger, "");
  tokens_.back().integer = number.integer;
  tokens_.back().real = number.real;
  advance(pos_ + number.length);
  return {};
}

Status Lexer::lex_string() {
  const char quote = source_[pos_];
  size_t end = pos_ + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) return error("unexpected char '{}'", quote);
  std::string text;
  if (Status s = unescape_string(rest(pos_ + 1).substr(0, end - pos_ - 1), text); !s.ok()) {
    return error("{}", s.message());
  }
  push(TokenType::kString, std::move(text));
  advance(end + 1);
  return {};
}

Status Lexer::lex_operator() {
  static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
  static constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
  for (std::string_view op : kTwo) {
    if (!starts(pos_, op)) continue;
    push(TokenType::kOperator, std::string(op));
    advance(pos_ + 2);
    return {};
  }
  const char c = source_[pos_];
  if (kOne.find(c) == std::string_view::npos) {
    const CodePoint p = code_point_at(source_, pos_);
    return error("unexpected char '{}'", rest(pos_).substr(0, p.length));
  }
  if (c == '(') open_brackets_ += ')';
  if (c == '[') open_brackets_ += ']';
  if (c == '{') open_brackets_ += '}';
  if (c == ')' || c == ']' || c == '}') {
    if (open_brackets_.empty()) return error("unexpected '{}'", c);
    if (open_brackets_.back() != c) {
      return error("unexpected '{}', expected '{}'", c, open_brackets_.back());
    }
    open_brackets_.pop_back();
  }
  push(TokenType::kOperator, std::string(1, c));
  advance(pos_ + 1);
  return {};
}

// The words for a token in errors; a name and an operator stand for themselves.
std::string_view name_of(TokenType type) {
  static constexpr std::string_view kNames[] = {
      "text",       "a tag",   "end of tag", "a print tag",    "end of print tag", "", "a string",
      "an integer", "a float", "",           "end of template"};
  return kNames[static_cast<size_t>(type)];
}

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  return Lexer(normalize_newlines(source)).run();
}

bool TokenReader::take_operator(std::string_view op) {
  if (!current().is_operator(op)) return false;
  next();
  return true;
}

bool TokenReader::take_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  next();
  return true;
}

Status TokenReader::unexpected(std::string_view wanted) const {
  const Token& token = current();
  const std::string_view name = name_of(token.type);
  if (name.empty()) return error(token.line, "expected {}, got '{}'", wanted, token.text);
  return error(token.line, "expected {}, got {}", wanted, name);
}

Status TokenReader::expect_operator(std::string_view op) {
  if (take_operator(op)) return {};
  return unexpected(fmt::format("'{}'", op));
}

Status TokenReader::expect_name(std::string_view name) {
  if (take_name(name)) return {};
  return unexpected(fmt::format("'{}'", name));
}

Status TokenReader::expect(TokenType type) {
  if (current().type == type) {
    next();
    return {};
  }
  return unexpected(type == TokenType::kName ? "a name" : name_of(type));
}

}  // namespace skein::jinja
