#include "text/scan.h"

namespace skein {

using namespace unicode;  // NOLINT: the class names read like the regexes they stand for

namespace {
// The halves of a word in Tekken and o200k. Most scripts have no case and are in both.
constexpr Classes kCaseless = bit(kLm) | bit(kLo) | kMark;
constexpr Classes kUpper = bit(kLu) | bit(kLt) | kCaseless;
constexpr Classes kLower = bit(kLl) | kCaseless;
}  // namespace

size_t Scan::run(size_t p, Classes classes) const {
  for (Char c = at(p); (c.classes & classes) != 0; c = at(p)) p += c.length;
  return p;
}

size_t Scan::run_without(size_t p, Classes classes) const {
  for (Char c = at(p); c.length != 0 && (c.classes & classes) == 0; c = at(p)) p += c.length;
  return p;
}

size_t Scan::contraction(size_t p, bool ignore_case) const {
  if (text_[p] != '\'') return p;
  const auto letter = [&](size_t i) -> char {
    if (i >= text_.size()) return '\0';
    const char c = text_[i];
    return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  };
  const char first = letter(p + 1);
  const char second = letter(p + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return p + 2;
  if (second == 'e' && (first == 'r' || first == 'v')) return p + 3;
  if (second == 'l' && first == 'l') return p + 3;
  // U+017F, the long s, folds to s.
  if (ignore_case && text_.substr(p + 1, 2) == "\xC5\xBF") return p + 3;
  return p;
}

size_t Scan::digits(size_t p, size_t most) const {
  for (size_t i = 0; i < most; ++i) {
    const Char c = at(p);
    if ((c.classes & kNumber) == 0) break;
    p += c.length;
  }
  return p;
}

size_t Scan::space(size_t p, bool newlines) const {
  size_t q = p;
  size_t last = p;         // where the last white space of the run begins
  size_t newline_end = p;  // the end of the last line end in it
  for (Char c = at(q); (c.classes & kSpace) != 0; c = at(q)) {
    last = q;
    q += c.length;
    if (is_newline(last)) newline_end = q;
  }
  if (newlines && newline_end != p) return newline_end;
  return q == text_.size() || last == p ? q : last;
}

size_t Scan::gpt2(size_t p) const {
  if (const size_t q = contraction(p, false); q != p) return q;
  const size_t start = p + (text_[p] == ' ' ? 1 : 0);
  const Char c = at(start);
  if ((c.classes & kLetter) != 0) return run(start, kLetter);
  if ((c.classes & kNumber) != 0) return run(start, kNumber);
  if (c.length != 0 && (c.classes & kSpace) == 0) {
    return run_without(start, kSpace | kLetter | kNumber);
  }
  return space(p, false);
}

size_t Scan::word(size_t p, WordRule rule) const {
  if (const size_t q = contraction(p, true); q != p) return q;
  const Classes in_word = rule.marks ? kLetter | kMark : kLetter;
  const Char c = at(p);
  if ((c.classes & in_word) != 0) return run(p, in_word);
  if ((c.classes & kNumber) != 0) return digits(p, rule.max_digits);
  if (!is_newline(p)) {
    const size_t q = run(p + c.length, in_word);
    if (q != p + c.length) return q;
  }
  const Classes not_symbol = kSpace | kNumber | in_word;
  const size_t start = p + (text_[p] == ' ' ? 1 : 0);
  const size_t end = run_without(start, not_symbol);
  if (end != start) return rule.newlines ? run_of(end, "\r\n") : end;
  return space(p, true);
}

size_t Scan::lower_word(size_t p) const {
  size_t q = p;
  size_t caseless_end = p;  // behind the last character of the run that may also be lower case
  for (Char c = at(q); (c.classes & kUpper) != 0; c = at(q)) {
    q += c.length;
    if ((c.classes & kLower) != 0) caseless_end = q;
  }
  const size_t end = run(q, kLower);
  return end != q ? end : caseless_end;
}

size_t Scan::upper_word(size_t p) const {
  const size_t q = run(p, kUpper);
  return q == p ? p : run(q, kLower);
}

size_t Scan::cased(size_t p, CasedRule rule) const {
  const Char c = at(p);
  const bool may_lead = !is_newline(p) && (c.classes & (kLetter | kNumber)) == 0;
  size_t end = p;
  // Each form first with one leading other character, then without.
  const auto attempt = [&](auto form) {
    if (end != p) return;
    if (may_lead) {
      const size_t q = form(p + c.length);
      if (q != p + c.length) end = q;
    }
    if (end == p) end = form(p);
  };
  attempt([this](size_t q) { return lower_word(q); });
  attempt([this](size_t q) { return upper_word(q); });
  if (end != p) {
    return rule.contractions && end < text_.size() ? contraction(end, true) : end;
  }
  if ((c.classes & kNumber) != 0) return digits(p, rule.max_digits);
  const size_t start = p + (text_[p] == ' ' ? 1 : 0);
  end = run_without(start, kSpace | kLetter | kNumber);
  if (end != start) return run_of(end, "\r\n/");
  return space(p, true);
}

size_t Scan::deepseek3(size_t p) const {
  const Char c = at(p);
  if (c.code_point > ' ' && c.code_point < 0x7F && (c.classes & (kLetter | kNumber)) == 0) {
    size_t q = p + 1;
    while (q < text_.size() &&
           ((text_[q] >= 'A' && text_[q] <= 'Z') || (text_[q] >= 'a' && text_[q] <= 'z'))) {
      ++q;
    }
    if (q != p + 1) return q;
  }
  if ((c.classes & (kLetter | kMark)) != 0) return run(p, kLetter | kMark);
  if (!is_newline(p) && (c.classes & (kPunctuation | kSymbol)) == 0) {
    const size_t q = run(p + c.length, kLetter | kMark);
    if (q != p + c.length) return q;
  }
  const size_t start = p + (text_[p] == ' ' ? 1 : 0);
  const size_t end = run(start, kPunctuation | kSymbol);
  if (end != start) return run_of(end, "\r\n");
  return space(p, true);
}

}  // namespace skein
