#include "grammar/gbnf.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <unordered_map>

#include "grammar/char_set.h"

namespace skein::grammar {
namespace {

// Recursive descent over one text. Literals and character classes are terminals; a group and a
// repetition are rules of their own.
class GbnfParser {
 public:
  GbnfParser(std::string_view text, const ControlTokens& controls)
      : text_(text), controls_(controls) {}

  FormResult<Rules> parse() {
    space(true);
    while (at_ < text_.size() && !error_) definition();
    if (!error_) check_names();
    if (error_) return *error_;
    rules_.start = names_.at("root").first;
    return std::move(rules_);
  }

 private:
  void fail(std::string_view why, FormCode code = FormCode::kInvalidGrammar) {
    if (error_) return;
    const std::string_view before = text_.substr(0, std::min(at_, text_.size()));
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const size_t begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    error_ = FormError{code, fmt::format("{} at {}:{}", why, line, before.size() - begin + 1), ""};
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view what) {
    if (text_.substr(at_, what.size()) != what) return false;
    at_ += what.size();
    return true;
  }
  void space(bool lines) {
    for (; at_ < text_.size(); ++at_) {
      if (peek() == '#') {
        while (at_ < text_.size() && peek() != '\n' && peek() != '\r') ++at_;
        if (at_ >= text_.size()) return;
      }
      const bool line = peek() == '\n' || peek() == '\r';
      if (!(peek() == ' ' || peek() == '\t' || (line && lines))) return;
    }
  }
  static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  }
  std::string name() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name_char(peek())) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  uint32_t rule_named(const std::string& name) {
    const auto [found, added] = names_.try_emplace(name, 0, at_);
    if (added) found->second.first = rules_.add_rule();
    return found->second.first;
  }
  void check_names() {
    const std::string* first = nullptr;
    for (const auto& [name, where] : names_) {
      if (!rules_.rules[where.first].empty() || (first != nullptr && where.second > at_)) continue;
      first = &name;
      at_ = where.second;
    }
    if (first != nullptr) fail(fmt::format("rule '{}' is not defined", *first));
    if (names_.find("root") == names_.end()) fail("there is no rule 'root'");
  }

  void definition() {
    const std::string left = name();
    if (left.empty()) return fail("expected the name of a rule");
    const uint32_t rule = rule_named(left);
    space(false);
    if (!take("::=")) return fail("expected ::=");
    space(true);
    rules_.rules[rule].clear();  // the last definition counts
    alternatives(rule, 0);
    if (error_) return;
    if (at_ < text_.size() && peek() != '\n' && peek() != '\r') return fail("expected a new line");
    space(true);
  }

  void alternatives(uint32_t rule, uint32_t depth) {
    if (depth > kMaxGrammarDepth) {
      return fail(fmt::format("groups nested deeper than {}", kMaxGrammarDepth),
                  FormCode::kTooComplex);
    }
    do {
      space(true);
      std::vector<Symbol> symbols = sequence(depth);
      if (error_) return;
      symbols_ += symbols.size() + 1;
      if (symbols_ > kMaxSymbols) {
        return fail(fmt::format("{} grammar symbols, at most {}", symbols_, kMaxSymbols),
                    FormCode::kTooComplex);
      }
      rules_.add(rule, std::move(symbols));
      space(depth > 0);
    } while (take("|"));
  }

  std::vector<Symbol> sequence(uint32_t depth) {
    std::vector<Symbol> symbols;
    for (;;) {
      space(depth > 0);
      const size_t begin = at_;
      std::optional<Symbol> one = item(depth);
      if (error_ || !one) {
        at_ = error_ ? at_ : begin;
        return symbols;
      }
      repetition(*one);
      symbols.push_back(*one);
      if (error_) return symbols;
    }
  }

  std::optional<Symbol> item(uint32_t depth) {
    if (take("\"")) return Symbol::terminal(rules_.add_terminal(quoted()));
    if (take("[")) return Symbol::terminal(rules_.add_terminal(bracket()));
    if (take(".")) {
      return Symbol::terminal(
          rules_.add_terminal(one_char(*rules_.regex, CharSet{}.complement(), Spelling::kUtf8)));
    }
    if (take("(")) {
      const uint32_t group = rules_.add_rule();
      alternatives(group, depth + 1);
      space(true);
      if (!error_ && !take(")")) fail("expected )");
      return Symbol::rule(group);
    }
    if (peek() == '<') return control_token();
    if (peek() == '!') {
      fail("tokens that are named by what they are not: not supported");
      return std::nullopt;
    }
    if (!is_name_char(peek())) return std::nullopt;
    const std::string what = name();
    return Symbol::rule(rule_named(what));
  }

  std::optional<Symbol> control_token() {
    std::string why;
    const TokenId token = read_control_token(text_, at_, controls_, why);
    if (token == kNoToken) {
      fail(why);
      return std::nullopt;
    }
    return Symbol::terminal(rules_.add_token(token));
  }

  bool number(uint32_t& value) {
    const size_t begin = at_;
    uint64_t n = 0;
    while (at_ < text_.size() && peek() >= '0' && peek() <= '9') {
      n = std::min<uint64_t>(n * 10 + static_cast<uint64_t>(text_[at_++] - '0'), UINT32_MAX - 1);
    }
    value = static_cast<uint32_t>(n);
    return at_ > begin;
  }

  void repetition(Symbol& symbol) {
    uint32_t lo = 0, hi = 0;
    if (take("*")) {
      hi = kUnbounded;
    } else if (take("+")) {
      lo = 1;
      hi = kUnbounded;
    } else if (take("?")) {
      hi = 1;
    } else if (take("{")) {
      space(false);
      const bool has_lo = number(lo);
      hi = lo;
      space(false);
      if (take(",")) {
        space(false);
        if (!number(hi)) hi = kUnbounded;
      } else if (!has_lo) {
        return fail("expected a number");
      }
      space(false);
      if (!take("}")) return fail("expected }");
      if (lo > hi) return fail("numbers out of order");
      const uint32_t largest = hi == kUnbounded ? lo : hi;
      if (largest > kMaxRepeat) {
        return fail(fmt::format("a repeat count of {}, at most {}", largest, kMaxRepeat),
                    FormCode::kTooComplex);
      }
    } else {
      return;
    }
    symbol = repeated(symbol, lo, hi);
    if (peek() == '*' || peek() == '+' || peek() == '?') repetition(symbol);
  }

  // A terminal keeps its counter inside; a rule becomes a list that counts.
  Symbol repeated(const Symbol& symbol, uint32_t lo, uint32_t hi) {
    if (symbol.kind == Symbol::Kind::kTerminal) {
      const ExprId inner = rules_.terminals[symbol.index].expression;
      return Symbol::terminal(rules_.add_terminal(rules_.regex->repeat(inner, lo, hi)));
    }
    return counted_list(rules_, symbol, lo, hi);
  }

  uint32_t hex(size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const char c = peek();
      const int d = c >= '0' && c <= '9'                 ? c - '0'
                    : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                         : -1;
      if (d < 0) return fail("bad hexadecimal escape"), 0;
      value = value << 4 | static_cast<uint32_t>(d);
    }
    return value;
  }

  uint32_t character() {
    if (!take("\\")) {
      uint32_t c = 0;
      if (!next_code_point(text_, at_, c)) fail("not UTF-8");
      return c;
    }
    const char c = peek();
    ++at_;
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      case 'U':
        return hex(8);
      case '"':
      case '\\':
      case '[':
      case ']':
        return static_cast<uint32_t>(c);
      default:
        fail("unknown escape");
        return 0;
    }
  }

  ExprId quoted() {
    std::string bytes;
    while (!error_ && at_ < text_.size() && peek() != '"') {
      const uint32_t c = character();
      if (c > kMaxCodePoint || (c >= 0xD800 && c <= 0xDFFF)) fail("not a character");
      if (!error_) append_utf8(bytes, c);
    }
    if (!error_ && !take("\"")) fail("unterminated literal");
    return rules_.regex->literal(bytes);
  }

  ExprId bracket() {
    const bool negated = take("^");
    CharSet set;
    while (!error_ && at_ < text_.size() && peek() != ']') {
      const uint32_t first = character();
      uint32_t last = first;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        last = character();
      }
      if (last < first) fail("range out of order");
      if (last > kMaxCodePoint) fail("not a character");
      set.add(first, last);
    }
    if (!error_ && !take("]")) fail("unterminated class");
    return one_char(*rules_.regex, negated ? set.complement() : set, Spelling::kUtf8);
  }

  std::string_view text_;
  const ControlTokens& controls_;
  size_t at_ = 0;
  Rules rules_;
  std::unordered_map<std::string, std::pair<uint32_t, size_t>> names_;  // rule, first mention
  size_t symbols_ = 0;
  std::optional<FormError> error_;
};

}  // namespace

FormResult<Rules> gbnf_rules(std::string_view text, const ControlTokens& controls) {
  if (text.size() > kMaxGrammarBytes) {
    return FormError{
        FormCode::kTooComplex,
        fmt::format("a grammar of {} bytes, at most {}", text.size(), kMaxGrammarBytes), ""};
  }
  return GbnfParser(text, controls).parse();
}

}  // namespace skein::grammar
