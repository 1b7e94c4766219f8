// Character classes as the regex engine of Hugging Face tokenizers knows them (Unicode 16), since
// that is what models were trained with. See tools/make_unicode_tables.py.
#pragma once

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace skein::unicode {

// A set of classes: one bit per general category, one for \s, one for \w.
using Classes = uint32_t;

enum Category : uint8_t {
  kCn,
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCo,
  kCs,
};

constexpr Classes bit(Category category) {
  return Classes{1} << category;
}

inline constexpr Classes kSpace = Classes{1} << 30;  // \s
inline constexpr Classes kWord = Classes{1} << 31;   // \w
inline constexpr Classes kMark = bit(kMn) | bit(kMc) | bit(kMe);
inline constexpr Classes kLetter = bit(kLu) | bit(kLl) | bit(kLt) | bit(kLm) | bit(kLo);
inline constexpr Classes kNumber = bit(kNd) | bit(kNl) | bit(kNo);
inline constexpr Classes kPunctuation =
    bit(kPc) | bit(kPd) | bit(kPs) | bit(kPe) | bit(kPi) | bit(kPf) | bit(kPo);
inline constexpr Classes kSymbol = bit(kSm) | bit(kSc) | bit(kSk) | bit(kSo);

class Table {
 public:
  Table();
  Classes operator[](char32_t code_point) const { return masks_[value_[code_point]]; }

 private:
  std::array<uint8_t, 0x110000> value_;
  std::array<Classes, 128> masks_;
};

// Built on first use (about a megabyte); safe from any thread.
const Table& table();

}  // namespace skein::unicode
