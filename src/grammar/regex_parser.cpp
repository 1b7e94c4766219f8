#include "grammar/regex_parser.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <vector>

#include "grammar/pattern_tree.h"

namespace skein::grammar {
namespace {

const CharSet kDigits{{'0', '9'}};
const CharSet kWords{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharSet kSpaces{{9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                      {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                      {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CharSet kLineEnds{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class PatternParser {
 public:
  PatternParser(RegexStore& store, std::string_view text, const PatternOptions& options)
      : store_(store), text_(text), options_(options) {}

  PatternPtr parse() {
    PatternPtr node = alternatives(0);
    if (!error_ && at_ < text_.size()) fail("unmatched )");
    return node;
  }
  const std::optional<std::string>& error() const { return error_; }

 private:
  bool done() const { return at_ >= text_.size() || error_.has_value(); }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view what) {
    if (text_.substr(at_).substr(0, what.size()) != what) return false;
    at_ += what.size();
    return true;
  }
  PatternPtr fail(std::string_view why) {
    if (!error_) error_ = fmt::format("{} at offset {}", why, at_);
    return std::make_unique<PatternNode>();
  }
  static PatternPtr make(PatternNode::Kind kind) {
    auto node = std::make_unique<PatternNode>();
    node->kind = kind;
    return node;
  }
  PatternPtr chars(const CharSet& set) {
    PatternPtr node = make(PatternNode::Kind::kChars);
    node->chars =
        one_char(store_, options_.ignore_case ? set.without_case() : set, options_.spelling);
    return node;
  }

  PatternPtr alternatives(uint32_t depth) {
    if (depth > kMaxPatternDepth) {
      return fail(fmt::format("groups nested deeper than {}", kMaxPatternDepth));
    }
    PatternPtr node = make(PatternNode::Kind::kOr);
    node->parts.push_back(sequence(depth));
    while (!done() && take("|")) node->parts.push_back(sequence(depth));
    for (const PatternPtr& part : node->parts) node->special |= part->special;
    if (node->parts.size() == 1) return std::move(node->parts[0]);
    return node;
  }

  PatternPtr sequence(uint32_t depth) {
    PatternPtr node = make(PatternNode::Kind::kConcat);
    while (!done() && peek() != '|' && peek() != ')') {
      PatternPtr part = quantified(depth);
      node->special |= part->special;
      node->parts.push_back(std::move(part));
    }
    return node;
  }

  PatternPtr quantified(uint32_t depth) {
    PatternPtr part = atom(depth);
    uint32_t lo = 0, hi = 0;
    while (!done() && quantifier(lo, hi)) {
      if (part->special) return fail("a repeated anchor or look-ahead is not supported");
      PatternPtr repeat = make(PatternNode::Kind::kRepeat);
      repeat->lo = lo;
      repeat->hi = hi;
      repeat->parts.push_back(std::move(part));
      part = std::move(repeat);
      if (!take("?") && peek() == '+') return fail("possessive quantifiers are not supported");
      if (peek() == '*' || peek() == '?' || peek() == '+') return fail("nothing to repeat");
      break;
    }
    return part;
  }

  bool number(uint32_t& value) {
    const size_t begin = at_;
    uint64_t n = 0;
    while (at_ < text_.size() && peek() >= '0' && peek() <= '9') {
      n = std::min<uint64_t>(n * 10 + static_cast<uint64_t>(peek() - '0'), UINT32_MAX - 1);
      ++at_;
    }
    value = static_cast<uint32_t>(n);
    return at_ > begin;
  }

  bool quantifier(uint32_t& lo, uint32_t& hi) {
    if (take("*")) return lo = 0, hi = kUnbounded, true;
    if (take("+")) return lo = 1, hi = kUnbounded, true;
    if (take("?")) return lo = 0, hi = 1, true;
    const size_t begin = at_;
    if (!take("{")) return false;
    const bool has_lo = number(lo);
    hi = lo;
    if (has_lo && take(",") && !number(hi)) hi = kUnbounded;
    if (!has_lo || !take("}")) {  // a brace that is no quantifier is itself, as in browsers
      at_ = begin;
      return false;
    }
    if (lo > hi) fail("numbers out of order in quantifier");
    if (lo > kMaxRepeat || (hi != kUnbounded && hi > kMaxRepeat)) {
      fail(fmt::format("a repeat count of {}, at most {}", hi == kUnbounded ? lo : hi, kMaxRepeat));
    }
    return true;
  }

  PatternPtr group(uint32_t depth) {
    PatternNode::Kind kind = PatternNode::Kind::kConcat;
    if (take("?")) {
      if (take("=")) {
        kind = PatternNode::Kind::kAhead;
      } else if (take("!")) {
        kind = PatternNode::Kind::kNotAhead;
      } else if (take("<=") || take("<!")) {
        return fail("look-behind is not supported");
      } else if (take("<") || take("P<")) {
        const size_t end = text_.find('>', at_);
        if (end == std::string_view::npos) return fail("unterminated group name");
        at_ = end + 1;
      } else if (!take(":")) {
        return fail("this kind of group is not supported");
      }
    }
    PatternPtr inner = alternatives(depth + 1);
    if (!take(")")) return fail("missing )");
    if (kind == PatternNode::Kind::kConcat) return inner;
    PatternPtr node = make(kind);
    node->special = true;
    node->parts.push_back(std::move(inner));
    return node;
  }

  PatternPtr atom(uint32_t depth) {
    const char c = peek();
    if (take("(")) return group(depth);
    if (take("[")) return bracket();
    if (take("^") || take("$")) {
      PatternPtr node = make(c == '^' ? PatternNode::Kind::kBegin : PatternNode::Kind::kEnd);
      node->special = true;
      return node;
    }
    if (take(".")) return chars(options_.dot_all ? CharSet{}.complement() : kLineEnds.complement());
    if (c == '*' || c == '+' || c == '?') return fail("nothing to repeat");
    if (take("\\")) {
      if (peek() == 'b' || peek() == 'B') return fail("word boundaries are not supported");
      if ((peek() >= '1' && peek() <= '9') || peek() == 'k') {
        return fail("back references are not supported");
      }
      if (peek() == 'A' || peek() == 'Z' || peek() == 'z' || peek() == 'G') {
        return fail("this kind of anchor is not ECMA's");
      }
      CharSet set;
      uint32_t single = 0;
      escape(set, single);
      return chars(set);
    }
    uint32_t code_point = 0;
    if (!next_code_point(text_, at_, code_point)) return fail("not UTF-8");
    return chars(CharSet{{code_point, code_point}});
  }

  // Behind a backslash. `single` is the character, or UINT32_MAX for a class.
  void escape(CharSet& set, uint32_t& single) {
    single = UINT32_MAX;
    if (at_ >= text_.size()) {
      fail("\\ at the end");
      return;
    }
    const char c = text_[at_++];
    switch (c) {
      case 'd':
        return set.add(kDigits);
      case 'D':
        return set.add(kDigits.complement());
      case 'w':
        return set.add(kWords);
      case 'W':
        return set.add(kWords.complement());
      case 's':
        return set.add(kSpaces);
      case 'S':
        return set.add(kSpaces.complement());
      case 'p':
      case 'P':
        fail("property classes (\\p) are not supported");
        return;
      default:
        --at_;
        single = escaped_char();
        set.add(single, single);
    }
  }

  uint32_t hex(size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const char c = peek();
      const int d = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
      if (d < 0) {
        fail("bad hexadecimal escape");
        return 0;
      }
      value = value << 4 | static_cast<uint32_t>(d);
    }
    return value;
  }

  uint32_t unicode_escape() {
    if (take("{")) {
      uint32_t value = 0;
      size_t n = 0;
      while (!done() && peek() != '}' && n++ < 8) value = value << 4 | hex(1);
      if (!take("}") || value > kMaxCodePoint) fail("bad \\u{} escape");
      return value;
    }
    const uint32_t high = hex(4);
    if (high < 0xD800 || high > 0xDBFF) return high;
    const size_t before = at_;
    if (take("\\u")) {
      const uint32_t low = hex(4);
      if (low >= 0xDC00 && low <= 0xDFFF) return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    }
    at_ = before;
    return high;
  }

  uint32_t escaped_char() {
    const char c = text_[at_++];
    switch (c) {
      case 't':
        return '\t';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'b':  // only inside brackets; elsewhere it is a word boundary
        return '\b';
      case 'a':
        return fail("\\a is not an ECMA-262 escape"), 0;
      case '0':
        return 0;
      case 'c':
        if ((peek() | 32) < 'a' || (peek() | 32) > 'z') return fail("bad control escape"), 0;
        return static_cast<uint32_t>(text_[at_++]) & 31;
      case 'x':
        return hex(2);
      case 'u':
        return unicode_escape();
      default: {
        --at_;
        uint32_t code_point = 0;
        if (!next_code_point(text_, at_, code_point)) return fail("not UTF-8"), 0;
        return code_point;
      }
    }
  }

  PatternPtr bracket() {
    const bool negated = take("^");
    CharSet set;
    while (!done() && peek() != ']') {
      uint32_t first = 0, last = 0;
      if (!class_atom(set, first)) continue;
      if (peek() != '-' || at_ + 1 >= text_.size() || text_[at_ + 1] == ']') {
        set.add(first, first);
        continue;
      }
      ++at_;
      if (!class_atom(set, last)) {  // [a-\d]: the three of them
        set.add(first, first);
        set.add('-', '-');
        continue;
      }
      if (last < first) return fail("range out of order in character class");
      set.add(first, last);
    }
    if (!take("]")) return fail("missing ]");
    if (options_.ignore_case) set = set.without_case();
    return chars(negated ? set.complement() : set);
  }

  // False: it was a class, and is in `set` already.
  bool class_atom(CharSet& set, uint32_t& single) {
    if (take("\\")) {
      CharSet escaped_set;
      escape(escaped_set, single);
      if (single == UINT32_MAX) set.add(escaped_set);
      return single != UINT32_MAX;
    }
    if (!next_code_point(text_, at_, single)) {
      fail("not UTF-8");
      at_ = text_.size();
      return false;
    }
    return true;
  }

  RegexStore& store_;
  std::string_view text_;
  const PatternOptions& options_;
  size_t at_ = 0;
  std::optional<std::string> error_;
};

// Texts of which a part matches.
ExprId anywhere(RegexStore& store, const PatternNode& tree, PatternCompiler& compiler,
                Spelling spelling) {
  const ExprId any = one_char(store, CharSet{}.complement(), spelling);
  const ExprId all = store.repeat(any, 0, kUnbounded);
  if (!tree.special) {
    const ExprId part = compiler.compile(tree, kEmptyText, true);
    if (store.nullable(part)) return all;
    if (store.is_row_of(part, any)) return store.concat(all, store.concat(part, all));
  }
  const ExprId later = compiler.compile(tree, kAnything, false);
  if (later == kNothing) return compiler.compile(tree, all, true);  // it begins with ^
  // Once it has matched, the rest is `all` and nothing else is remembered.
  const ExprId result = store.either(compiler.compile(tree, kAnything, true),
                                     store.concat(store.repeat(any, 1, kUnbounded), later));
  return result == kAnything ? all : store.both(result, all);
}

}  // namespace

FormResult<ExprId> parse_pattern(RegexStore& store, std::string_view pattern,
                                 const PatternOptions& options) {
  if (pattern.size() > kMaxPatternBytes) {
    return FormError{FormCode::kTooComplex,
                     fmt::format("a regular expression of {} bytes, at most {}", pattern.size(),
                                 kMaxPatternBytes),
                     ""};
  }
  PatternParser parser(store, pattern, options);
  const PatternPtr tree = parser.parse();
  if (parser.error()) return FormError{FormCode::kInvalidRegex, *parser.error(), ""};
  PatternCompiler compiler(store);
  const ExprId result = options.anchored ? compiler.compile(*tree, kEmptyText, true)
                                         : anywhere(store, *tree, compiler, options.spelling);
  if (compiler.refused()) {
    return FormError{FormCode::kInvalidRegex, "^ behind something optional is not supported", ""};
  }
  if (store.full()) {
    return FormError{FormCode::kTooComplex,
                     fmt::format("more than {} expressions", kMaxExpressions), ""};
  }
  return result;
}

}  // namespace skein::grammar
