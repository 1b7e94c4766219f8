#include "grammar/decimal.h"

#include <algorithm>

namespace skein::grammar {
namespace {

constexpr int32_t kMaxExponent = 400;

// a + 1 for a string of digits.
std::string incremented(std::string a) {
  size_t i = a.size();
  while (i > 0 && a[i - 1] == '9') a[--i] = '0';
  if (i == 0) return "1" + a;
  ++a[i - 1];
  return a;
}

// a - 1 for a string of digits that is not 0.
std::string decremented(std::string a) {
  size_t i = a.size();
  while (a[i - 1] == '0') a[--i] = '9';
  --a[i - 1];
  return a;
}

}  // namespace

std::optional<Decimal> Decimal::parse(std::string_view text) {
  Decimal result;
  size_t at = 0;
  if (!text.empty() && text[0] == '-') result.negative_ = true, at = 1;
  int64_t exponent = 0;
  bool fraction = false;
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] == '.') {
      fraction = true;
      continue;
    }
    result.digits_ += text[at];
    exponent -= fraction ? 1 : 0;
  }
  if (at < text.size()) {
    ++at;
    const bool minus = at < text.size() && text[at] == '-';
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    int64_t value = 0;
    for (; at < text.size(); ++at) {
      value = std::min<int64_t>(value * 10 + (text[at] - '0'), 1'000'000);
    }
    exponent += minus ? -value : value;
  }
  result.exponent_ = static_cast<int32_t>(std::clamp<int64_t>(exponent, -3'000'000, 3'000'000));
  result.normalize();
  if (result.digits_.size() > kMaxExponent || result.exponent_ > kMaxExponent ||
      result.exponent_ < -kMaxExponent) {
    return std::nullopt;
  }
  return result;
}

Decimal Decimal::of(uint64_t value) {
  return from_whole(std::to_string(value), false);
}

Decimal Decimal::from_whole(const std::string& digits, bool negative) {
  Decimal result;
  result.digits_ = digits;
  result.negative_ = negative;
  result.normalize();
  return result;
}

void Decimal::normalize() {
  const size_t first = digits_.find_first_not_of('0');
  if (first == std::string::npos) {
    digits_.clear();
    exponent_ = 0;
    negative_ = false;
    return;
  }
  const size_t last = digits_.find_last_not_of('0');
  exponent_ += static_cast<int32_t>(digits_.size() - 1 - last);
  digits_ = digits_.substr(first, last - first + 1);
}

Decimal Decimal::magnitude() const {
  Decimal result = *this;
  result.negative_ = false;
  return result;
}

Decimal Decimal::negated() const {
  Decimal result = *this;
  result.negative_ = !negative_ && !is_zero();
  return result;
}

std::string Decimal::whole() const {
  if (exponent_ >= 0) {
    return is_zero() ? "0" : digits_ + std::string(static_cast<size_t>(exponent_), '0');
  }
  const auto behind = static_cast<size_t>(-exponent_);
  return behind >= digits_.size() ? "0" : digits_.substr(0, digits_.size() - behind);
}

std::string Decimal::fraction() const {
  if (exponent_ >= 0) return "";
  const auto behind = static_cast<size_t>(-exponent_);
  if (behind <= digits_.size()) return digits_.substr(digits_.size() - behind);
  return std::string(behind - digits_.size(), '0') + digits_;
}

std::string Decimal::to_string() const {
  const std::string behind = fraction();
  return (negative_ ? "-" : "") + whole() + (behind.empty() ? "" : "." + behind);
}

Decimal Decimal::rounded_down() const {
  if (is_integer()) return *this;
  return from_whole(negative_ ? incremented(whole()) : whole(), negative_);
}

Decimal Decimal::rounded_up() const {
  if (is_integer()) return *this;
  return from_whole(negative_ ? whole() : incremented(whole()), negative_);
}

Decimal Decimal::next_integer() const {
  const Decimal down = rounded_down();
  return down.negative_ ? from_whole(decremented(down.whole()), true)
                        : from_whole(incremented(down.whole()), false);
}

bool Decimal::is_multiple_of(const Decimal& unit) const {
  if (is_zero()) return true;
  if (unit.is_zero()) return false;
  // Both as whole numbers of the smaller of the two powers of ten; long division by its digits.
  const int32_t shift = exponent_ - unit.exponent_;
  if (unit.digits_.size() > 18) return digits_ == unit.digits_ && shift >= 0;
  uint64_t divisor = std::stoull(unit.digits_);
  uint64_t rest = 0;
  for (const char c : digits_) rest = (rest * 10 + static_cast<unsigned>(c - '0')) % divisor;
  for (int32_t i = 0; i < shift; ++i) rest = rest * 10 % divisor;
  if (shift >= 0) return rest == 0;
  return false;  // more places behind the point than the unit has, and no zeros at the end
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative_ != b.negative_) return a.negative_ ? -1 : 1;
  const int sign = a.negative_ ? -1 : 1;
  const std::string x = a.whole(), y = b.whole();
  if (x.size() != y.size()) return x.size() < y.size() ? -sign : sign;
  if (const int order = x.compare(y); order != 0) return order < 0 ? -sign : sign;
  const int order = a.fraction().compare(b.fraction());
  return order == 0 ? 0 : order < 0 ? -sign : sign;
}

}  // namespace skein::grammar
