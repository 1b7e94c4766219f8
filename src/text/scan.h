// The matchers behind the splitters: each returns the end of the match that starts at a position,
// or the position itself when there is none. A view of the text; the text must outlive it.
#pragma once

#include <cstddef>
#include <string_view>

#include "text/unicode.h"
#include "text/utf8.h"

namespace skein {

struct Char {
  unicode::Classes classes = 0;  // none for a byte that is not UTF-8
  char32_t code_point = UINT32_MAX;
  uint32_t length = 0;  // 0 at the end of the text
};

class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text), table_(unicode::table()) {}

  std::string_view text() const { return text_; }

  Char at(size_t p) const {
    if (p >= text_.size()) return {};
    const auto byte = static_cast<uint8_t>(text_[p]);
    if (byte < 0x80) return {table_[byte], byte, 1};
    const Utf8Char next = utf8_next(text_.substr(p, 4));
    if (next.kind != Utf8Kind::kValid) return {0, UINT32_MAX, 1};
    return {table_[next.code_point], next.code_point, next.length};
  }

  // The end of the run of characters that are in `classes`, or in none of them, from p.
  size_t run(size_t p, unicode::Classes classes) const;
  size_t run_without(size_t p, unicode::Classes classes) const;

  size_t gpt2(size_t p) const;

  struct WordRule {
    size_t max_digits;
    bool marks = false;    // \p{M} is part of a word
    bool newlines = true;  // symbols take the line ends behind them
  };
  size_t word(size_t p, WordRule rule) const;

  struct CasedRule {
    size_t max_digits;
    bool contractions;
  };
  size_t cased(size_t p, CasedRule rule) const;

  size_t deepseek3(size_t p) const;

 private:
  bool is_newline(size_t p) const {
    return p < text_.size() && (text_[p] == '\n' || text_[p] == '\r');
  }
  size_t run_of(size_t p, std::string_view bytes) const {
    const size_t end = text_.find_first_not_of(bytes, p);
    return end == std::string_view::npos ? text_.size() : end;
  }
  // 's|'t|'re|'ve|'m|'ll|'d
  size_t contraction(size_t p, bool ignore_case) const;
  size_t digits(size_t p, size_t most) const;
  // \s*[\r\n]+|\s+(?!\S)|\s+ ; without `newlines` the last two.
  size_t space(size_t p, bool newlines) const;
  // [upper]*[lower]+, and [upper]+[lower]* where the first fails.
  size_t lower_word(size_t p) const;
  size_t upper_word(size_t p) const;

  std::string_view text_;
  const unicode::Table& table_;
};

}  // namespace skein
