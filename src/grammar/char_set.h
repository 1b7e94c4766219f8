// Sets of Unicode scalar values, and how a text spells them: as UTF-8, or as UTF-8 inside a JSON
// string, where some must be escaped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/regex.h"

namespace skein::grammar {

inline constexpr uint32_t kMaxCodePoint = 0x10FFFF;

class CharSet {
 public:
  CharSet() = default;
  CharSet(std::initializer_list<std::pair<uint32_t, uint32_t>> ranges) {
    for (const auto& [first, last] : ranges) add(first, last);
  }

  void add(uint32_t first, uint32_t last) { ranges_.emplace_back(first, last); }
  void add(const CharSet& other) {
    ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  }
  CharSet complement() const;
  // Whether it is one character, which `c` then is.
  bool single(uint32_t& c) const {
    if (ranges_.size() != 1 || ranges_[0].first != ranges_[0].second) return false;
    c = ranges_[0].first;
    return c <= kMaxCodePoint && (c < 0xD800 || c > 0xDFFF);
  }
  // Sorted, without overlaps, without surrogates.
  std::vector<std::pair<uint32_t, uint32_t>> ranges() const;
  // Letters of ASCII in both cases where one of them is there.
  CharSet without_case() const;

 private:
  std::vector<std::pair<uint32_t, uint32_t>> ranges_;
};

enum class Spelling : uint8_t {
  kUtf8,
  kJson,  // inside a JSON string: escapes only for what must be escaped
};

ExprId one_char(RegexStore& store, const CharSet& set, Spelling spelling);
// `text` as it is spelled: one text in UTF-8; in JSON a control character has two spellings.
ExprId spelled_text(RegexStore& store, std::string_view text, Spelling spelling);

// Any of `texts`, inside a JSON string.
ExprId spelled_texts(RegexStore& store, std::vector<std::string> texts);

// The code point at `at`, which moves behind it; false where the bytes are not UTF-8.
bool next_code_point(std::string_view text, size_t& at, uint32_t& code_point);
void append_utf8(std::string& out, uint32_t code_point);

}  // namespace skein::grammar
