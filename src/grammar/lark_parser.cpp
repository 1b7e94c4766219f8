#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "grammar/gbnf.h"
#include "grammar/lark_tree.h"
#include "grammar/regex_parser.h"

namespace skein::grammar {
namespace {

struct LarkCommon {
  std::string_view name, pattern;
};
constexpr LarkCommon kCommon[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
    {"NUMBER", "[0-9]+(?:\\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\\.[0-9]+(?:[eE][+-]?[0-9]+)?"},
    {"SIGNED_NUMBER",
     "[+-]?(?:[0-9]+(?:\\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\\.[0-9]+(?:[eE][+-]?[0-9]+)?)"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
};

class LarkParser {
 public:
  LarkParser(std::string_view text, RegexStore& store, const ControlTokens& controls)
      : text_(text), store_(store), controls_(controls) {}

  FormResult<LarkGrammar> parse() {
    while (!error_ && next_statement()) statement();
    if (!error_ && grammar_.definitions.find("start") == grammar_.definitions.end()) {
      fail("there is no rule 'start'");
    }
    if (error_) return *error_;
    return std::move(grammar_);
  }

 private:
  void fail(std::string_view why, FormCode code = FormCode::kInvalidGrammar) {
    if (!error_) error_ = lark_error(text_, at_, why, code);
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view what) {
    if (text_.substr(at_, what.size()) != what) return false;
    at_ += what.size();
    return true;
  }
  bool at_comment() const {
    return text_.substr(at_, 2) == "//" ||
           (peek() == '#' && (at_ == 0 || text_[at_ - 1] == '\n' || text_[at_ - 1] == ' '));
  }
  void skip_blanks() {
    while (at_ < text_.size()) {
      if (at_comment()) {
        while (at_ < text_.size() && peek() != '\n') ++at_;
      } else if (peek() == ' ' || peek() == '\t' || peek() == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }
  // Blanks, and new lines where the statement goes on behind them.
  void space() {
    skip_blanks();
    while (peek() == '\n') {
      const size_t before = at_;
      while (peek() == '\n') {
        ++at_;
        skip_blanks();
      }
      if (depth_ == 0 && peek() != '|') {
        at_ = before;
        return;
      }
    }
  }
  bool next_statement() {
    skip_blanks();
    while (peek() == '\n') {
      ++at_;
      skip_blanks();
    }
    return at_ < text_.size();
  }
  std::string name() {
    const size_t begin = at_;
    const auto part = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    while (at_ < text_.size() && part(peek())) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  static LarkPtr make(LarkNode::Kind kind, size_t at) {
    auto node = std::make_unique<LarkNode>();
    node->kind = kind;
    node->at = at;
    return node;
  }
  LarkPtr expression(ExprId e, size_t at) {
    LarkPtr node = make(LarkNode::Kind::kExpression, at);
    node->expression = e;
    return node;
  }

  void statement() {
    if (take("%")) return directive();
    if (!take("?")) take("!");
    const std::string left = name();
    if (left.empty()) return fail("expected a rule, a terminal or a directive");
    if (peek() == '{') return fail("templates are not supported");
    if (take(".")) {  // a priority, which matters only where a lexer must choose
      take("-");
      name();
    }
    skip_blanks();
    if (!take(":")) return fail("expected :");
    LarkPtr body = alternatives();
    if (error_) return;
    if (at_ < text_.size() && peek() != '\n') return fail("expected a new line");
    if (!grammar_.definitions.emplace(left, std::move(body)).second)
      fail(fmt::format("'{}' is defined twice", left));
  }

  void directive() {
    const std::string what = name();
    skip_blanks();
    if (what == "ignore") {
      LarkPtr body = alternatives();
      if (!error_) grammar_.ignored.push_back(std::move(body));
      return;
    }
    if (what != "import") return fail(fmt::format("%{} is not supported", what));
    if (!take("common.")) return fail("only common terminals can be imported: not supported");
    std::vector<std::string> names;
    if (take("(")) {
      do {
        skip_blanks();
        names.push_back(name());
        skip_blanks();
      } while (take(","));
      if (!take(")")) return fail("expected )");
    } else {
      names.push_back(name());
    }
    skip_blanks();
    std::string alias = names[0];
    if (names.size() == 1 && take("->")) {
      skip_blanks();
      alias = name();
    }
    for (const std::string& one : names) {
      const auto* found = std::find_if(std::begin(kCommon), std::end(kCommon),
                                       [&](const LarkCommon& c) { return c.name == one; });
      if (found == std::end(kCommon)) return fail(fmt::format("common.{} is not known", one));
      grammar_.definitions.emplace(names.size() == 1 ? alias : one, regex(found->pattern, "", at_));
    }
  }

  LarkPtr alternatives() {
    LarkPtr node = make(LarkNode::Kind::kOr, at_);
    if (depth_ > kMaxGrammarDepth) {
      fail(fmt::format("groups nested deeper than {}", kMaxGrammarDepth), FormCode::kTooComplex);
      return node;
    }
    do {
      node->parts.push_back(sequence());
      space();
      if (take("->")) {
        skip_blanks();
        name();
        space();
      }
    } while (!error_ && take("|"));
    return node;
  }

  LarkPtr sequence() {
    LarkPtr node = make(LarkNode::Kind::kConcat, at_);
    for (;;) {
      space();
      if (error_ || at_ >= text_.size() ||
          std::string_view("|)]\n").find(peek()) != std::string_view::npos ||
          text_.substr(at_, 2) == "->") {
        return node;
      }
      LarkPtr part = atom();
      if (error_) return node;
      node->parts.push_back(repeated(std::move(part)));
    }
  }

  bool number(uint32_t& value) {
    const size_t begin = at_;
    uint64_t n = 0;
    while (peek() >= '0' && peek() <= '9') {
      n = std::min<uint64_t>(n * 10 + static_cast<uint64_t>(text_[at_++] - '0'), UINT32_MAX - 1);
    }
    value = static_cast<uint32_t>(n);
    return at_ > begin;
  }

  LarkPtr repeated(LarkPtr part) {
    uint32_t lo = 0, hi = kUnbounded;
    if (take("+")) {
      lo = 1;
    } else if (take("?")) {
      hi = 1;
    } else if (take("~")) {
      skip_blanks();
      if (!number(lo)) fail("expected a number");
      hi = lo;
      if (take("..") && !number(hi)) fail("expected a number");
      if (lo > hi) fail("numbers out of order");
      if (hi > kMaxRepeat) {
        fail(fmt::format("a repeat count of {}, at most {}", hi, kMaxRepeat),
             FormCode::kTooComplex);
      }
    } else if (!take("*")) {
      return part;
    }
    LarkPtr node = make(LarkNode::Kind::kRepeat, at_);
    node->lo = lo;
    node->hi = hi;
    node->parts.push_back(std::move(part));
    return node;
  }

  LarkPtr atom() {
    const size_t begin = at_;
    if (peek() == '"') return string();
    if (peek() == '/') return slashed();
    if (take("(") || take("[")) {
      const bool optional = text_[begin] == '[';
      ++depth_;
      LarkPtr inner = alternatives();
      --depth_;
      if (!error_ && !take(optional ? "]" : ")")) fail(optional ? "expected ]" : "expected )");
      if (!optional) return inner;
      LarkPtr node = make(LarkNode::Kind::kRepeat, begin);
      node->hi = 1;
      node->parts.push_back(std::move(inner));
      return node;
    }
    if (peek() == '<') {
      LarkPtr node = make(LarkNode::Kind::kToken, begin);
      std::string why;
      node->token = read_control_token(text_, at_, controls_, why);
      if (node->token == kNoToken) fail(why);
      return node;
    }
    LarkPtr node = make(LarkNode::Kind::kName, begin);
    node->name = name();
    if (node->name.empty()) fail("expected a name, a string or a regular expression");
    if (peek() == '{') fail("templates are not supported");
    return node;
  }

  std::string string_text() {
    std::string pattern;
    ++at_;
    while (at_ < text_.size() && peek() != '"' && peek() != '\n') {
      if (peek() == '\\' && at_ + 1 < text_.size()) pattern += text_[at_++];
      pattern += text_[at_++];
    }
    if (!take("\"")) fail("unterminated string");
    return pattern;
  }

  // The escapes of a string are those of a regular expression; everything else stands for itself.
  LarkPtr string() {
    const size_t begin = at_;
    const auto as_pattern = [](const std::string& text) {
      std::string pattern;
      for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\' && i + 1 < text.size()) {
          pattern += text[i++];
          pattern += text[i];
        } else {
          if (std::string_view(".*+?()[]{}|^$/").find(text[i]) != std::string_view::npos)
            pattern += '\\';
          pattern += text[i];
        }
      }
      return pattern;
    };
    const std::string first = as_pattern(string_text());
    if (take("..")) {
      if (peek() != '"') return fail("expected a string"), make(LarkNode::Kind::kOr, begin);
      return regex("[" + first + "-" + as_pattern(string_text()) + "]", "", begin);
    }
    return regex(first, take("i") ? "i" : "", begin);
  }

  LarkPtr slashed() {
    const size_t begin = at_++;
    bool bracket = false;
    while (at_ < text_.size() && peek() != '\n' && (bracket || peek() != '/')) {
      if (peek() == '[') bracket = true;
      if (peek() == ']') bracket = false;
      at_ += peek() == '\\' && at_ + 1 < text_.size() ? 2 : 1;
    }
    const std::string_view pattern = text_.substr(begin + 1, at_ - begin - 1);
    if (!take("/"))
      return fail("unterminated regular expression"), make(LarkNode::Kind::kOr, begin);
    const size_t flags = at_;
    while (std::string_view("imslux").find(peek()) != std::string_view::npos && peek() != '\0')
      ++at_;
    return regex(pattern, text_.substr(flags, at_ - flags), begin);
  }

  LarkPtr regex(std::string_view pattern, std::string_view flags, size_t begin) {
    PatternOptions options;
    options.anchored = true;
    options.ignore_case = flags.find('i') != std::string_view::npos;
    options.dot_all = flags.find('s') != std::string_view::npos;
    if (flags.find_first_of("mx") != std::string_view::npos)
      fail("the flags m and x are not supported");
    auto parsed = parse_pattern(store_, pattern, options);
    if (!parsed.ok()) {
      at_ = begin;
      fail(parsed.error().message, parsed.error().code);
      return make(LarkNode::Kind::kOr, begin);
    }
    return expression(*parsed, begin);
  }

  std::string_view text_;
  RegexStore& store_;
  const ControlTokens& controls_;
  size_t at_ = 0;
  uint32_t depth_ = 0;
  LarkGrammar grammar_;
  std::optional<FormError> error_;
};

}  // namespace

bool is_terminal_name(std::string_view name) {
  const size_t at = name.find_first_not_of('_');
  return at != std::string_view::npos && name[at] >= 'A' && name[at] <= 'Z';
}

FormError lark_error(std::string_view text, size_t at, std::string_view why, FormCode code) {
  const std::string_view before = text.substr(0, std::min(at, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t newline = before.rfind('\n');
  const size_t column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
  return {code, fmt::format("{} at {}:{}", why, line, column), ""};
}

FormResult<LarkGrammar> parse_lark(std::string_view text, RegexStore& store,
                                   const ControlTokens& controls) {
  if (text.size() > kMaxGrammarBytes) {
    return FormError{
        FormCode::kTooComplex,
        fmt::format("a grammar of {} bytes, at most {}", text.size(), kMaxGrammarBytes), ""};
  }
  return LarkParser(text, store, controls).parse();
}

}  // namespace skein::grammar
