// Decimal numbers, exactly: what JSON writes, compared by value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace skein::grammar {

// sign * digits * 10^exponent; digits without zeros at either end, zero has none.
class Decimal {
 public:
  Decimal() = default;
  // A JSON number. Nothing where it has more than 400 digits or an exponent beyond 400.
  static std::optional<Decimal> parse(std::string_view text);
  static Decimal of(uint64_t value);

  bool negative() const { return negative_; }
  bool is_zero() const { return digits_.empty(); }
  bool is_integer() const { return exponent_ >= 0; }
  Decimal magnitude() const;
  Decimal negated() const;
  // The digits before the point ("0" where there are none) and behind it, of the magnitude.
  std::string whole() const;
  std::string fraction() const;
  std::string to_string() const;  // without an exponent
  // floor(*this) and ceil(*this).
  Decimal rounded_down() const;
  Decimal rounded_up() const;
  Decimal next_integer() const;  // the least that is greater
  // Whether it is a whole multiple of `unit`.
  bool is_multiple_of(const Decimal& unit) const;
  const std::string& digits() const { return digits_; }
  int32_t exponent() const { return exponent_; }

  friend int compare(const Decimal& a, const Decimal& b);
  friend bool operator==(const Decimal& a, const Decimal& b) { return compare(a, b) == 0; }
  friend bool operator<(const Decimal& a, const Decimal& b) { return compare(a, b) < 0; }

 private:
  void normalize();
  static Decimal from_whole(const std::string& digits, bool negative);
  bool negative_ = false;
  std::string digits_;
  int32_t exponent_ = 0;
};

}  // namespace skein::grammar
