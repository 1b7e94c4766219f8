#include <algorithm>
#include <numeric>

#include "grammar/json_text.h"

namespace skein::grammar {
namespace {

ExprId figure_range(RegexStore& store, int first, int last) {
  if (first > last) return kNothing;
  return store.byte_class(
      ByteSet::range(static_cast<uint8_t>('0' + first), static_cast<uint8_t>('0' + last)));
}

ExprId figures(RegexStore& store, uint32_t lo, uint32_t hi) {
  return store.repeat(figure_range(store, 0, 9), lo, hi);
}

// Without a look at `values`.
bool within(const NumberSet& set, const Decimal& value) {
  if (set.lo && (value < *set.lo || (set.lo_open && value == *set.lo))) return false;
  if (set.hi && (*set.hi < value || (set.hi_open && value == *set.hi))) return false;
  if (set.integers && !value.is_integer()) return false;
  if (set.fractions && value.is_integer()) return false;
  const auto divides = [&](const Decimal& unit) { return value.is_multiple_of(unit); };
  if (!std::all_of(set.multiples.begin(), set.multiples.end(), divides)) return false;
  if (std::any_of(set.no_multiples.begin(), set.no_multiples.end(), divides)) return false;
  if (std::find(set.excluded.begin(), set.excluded.end(), value) != set.excluded.end())
    return false;
  return true;
}

}  // namespace

bool has_value(const NumberSet& set, const Decimal& value) {
  return within(set, value) && (!set.values || std::find(set.values->begin(), set.values->end(),
                                                         value) != set.values->end());
}

NumberSet both_of(const NumberSet& a, const NumberSet& b) {
  NumberSet result = a;
  if (b.lo && (!a.lo || *a.lo < *b.lo || (*a.lo == *b.lo && b.lo_open))) {
    result.lo = b.lo;
    result.lo_open = b.lo_open;
  }
  if (b.hi && (!a.hi || *b.hi < *a.hi || (*a.hi == *b.hi && b.hi_open))) {
    result.hi = b.hi;
    result.hi_open = b.hi_open;
  }
  result.integers = a.integers || b.integers;
  result.fractions = a.fractions || b.fractions;
  const auto join = [](std::vector<Decimal>& into, const std::vector<Decimal>& more) {
    for (const Decimal& value : more) {
      if (std::find(into.begin(), into.end(), value) == into.end()) into.push_back(value);
    }
  };
  join(result.multiples, b.multiples);
  join(result.no_multiples, b.no_multiples);
  join(result.excluded, b.excluded);
  if (!result.values) result.values = b.values;
  if (result.values) {
    std::vector<Decimal> kept, others;
    if (a.values && b.values) {
      others = *b.values;
      std::sort(others.begin(), others.end());
    }
    for (const Decimal& value : *result.values) {
      const bool in_both =
          !a.values || !b.values || std::binary_search(others.begin(), others.end(), value);
      if (in_both && within(a, value) && within(b, value)) kept.push_back(value);
    }
    result = {};
    result.values = std::move(kept);
  }
  return result;
}

bool is_empty(const NumberSet& set) {
  if (set.values) return set.values->empty();
  if (set.integers && set.fractions) return true;
  if (!set.lo || !set.hi) return false;
  if (*set.hi < *set.lo) return true;
  if (*set.lo == *set.hi) return !has_value(set, *set.lo);
  if (!set.integers) return false;
  Decimal first = set.lo->rounded_up();
  if (has_value(set, first)) return false;
  for (int i = 0; i < 1000; ++i) {  // short intervals are tried out
    first = first.next_integer();
    if (*set.hi < first) return true;
    if (has_value(set, first)) return false;
  }
  return false;
}

std::vector<NumberSet> complement_of(const NumberSet& set) {
  std::vector<NumberSet> parts;
  if (set.lo) {
    NumberSet part;
    part.hi = set.lo;
    part.hi_open = !set.lo_open;
    parts.push_back(part);
  }
  if (set.hi) {
    NumberSet part;
    part.lo = set.hi;
    part.lo_open = !set.hi_open;
    parts.push_back(part);
  }
  if (set.integers || set.fractions) {
    NumberSet part;
    (set.integers ? part.fractions : part.integers) = true;
    parts.push_back(part);
  }
  for (const Decimal& unit : set.multiples) {
    NumberSet part;
    part.no_multiples = {unit};
    parts.push_back(part);
  }
  for (const Decimal& unit : set.no_multiples) {
    NumberSet part;
    part.multiples = {unit};
    parts.push_back(part);
  }
  if (!set.excluded.empty()) {
    NumberSet part;
    part.values = set.excluded;
    parts.push_back(part);
  }
  if (set.values) {
    NumberSet part;
    part.excluded = *set.values;
    parts.push_back(part);
  }
  return parts;
}

namespace {

// Digits of magnitudes within two bounds, position by position: whether what was written so far
// equals the lower bound's digits, the upper bound's, or neither any more.
class IntervalDigits {
 public:
  IntervalDigits(RegexStore& store, const NumberSet& bounds)
      : store_(store),
        bounds_(bounds),
        low_(bounds.lo->whole()),
        low_behind_(bounds.lo->fraction()) {
    if (bounds.hi) {
      high_ = bounds.hi->whole();
      high_behind_ = bounds.hi->fraction();
    }
    places_ = std::max<size_t>({kMaxDigits, low_behind_.size() + 1, high_behind_.size() + 1});
  }

  ExprId expression() {
    const size_t longest = bounds_.hi ? high_.size() : std::max<size_t>(kMaxDigits, low_.size());
    std::vector<ExprId> parts;
    for (length_ = low_.size(); length_ <= longest; ++length_) {
      parts.push_back(before(0, length_ == low_.size(), bounds_.hi && length_ == high_.size()));
    }
    return store_.either(std::move(parts));
  }

 private:
  // One digit, then what may follow it, as the digit stays at a bound or leaves it.
  template <class Next>
  ExprId digit(int least, int most, bool at_low, bool at_high, const Next& next) {
    if (least > most) return kNothing;
    if (least == most)
      return store_.concat(figure_range(store_, least, least), next(at_low, at_high));
    std::vector<ExprId> parts;
    if (at_low) {
      parts.push_back(store_.concat(figure_range(store_, least, least), next(true, false)));
      ++least;
    }
    if (at_high) {
      parts.push_back(store_.concat(figure_range(store_, most, most), next(false, true)));
      --most;
    }
    if (least <= most) {
      parts.push_back(store_.concat(figure_range(store_, least, most), next(false, false)));
    }
    return store_.either(std::move(parts));
  }

  ExprId before(size_t i, bool at_low, bool at_high) {
    if (i == length_) return after_whole(at_low, at_high);
    if (!at_low && !at_high && i > 0) {
      return store_.concat(
          figures(store_, static_cast<uint32_t>(length_ - i), static_cast<uint32_t>(length_ - i)),
          after_whole(false, false));
    }
    const int least = at_low ? low_[i] - '0' : i == 0 && length_ > 1 ? 1 : 0;
    const int most = at_high ? high_[i] - '0' : 9;
    return digit(least, most, at_low, at_high,
                 [&](bool low, bool high) { return before(i + 1, low, high); });
  }

  bool may_stop(size_t place, bool at_low, bool at_high) const {
    if (at_low && (place < low_behind_.size() || bounds_.lo_open)) return false;
    return !at_high || place < high_behind_.size() || !bounds_.hi_open;
  }

  ExprId after_whole(bool at_low, bool at_high) {
    const ExprId stop = may_stop(0, at_low, at_high) ? kEmptyText : kNothing;
    if (bounds_.integers) return stop;
    return store_.either(stop, store_.concat(store_.byte('.'), behind(0, at_low, at_high)));
  }

  ExprId behind(size_t place, bool at_low, bool at_high) {
    if (place >= places_) return kNothing;
    if (at_low && place >= low_behind_.size() && !bounds_.lo_open) at_low = false;
    if (!at_low && !at_high) return figures(store_, 1, static_cast<uint32_t>(places_ - place));
    const int least = at_low && place < low_behind_.size() ? low_behind_[place] - '0' : 0;
    const int most = !at_high ? 9 : place < high_behind_.size() ? high_behind_[place] - '0' : 0;
    return digit(least, most, at_low, at_high, [&](bool low, bool high) {
      const ExprId stop = may_stop(place + 1, low, high) ? kEmptyText : kNothing;
      return store_.either(stop, behind(place + 1, low, high));
    });
  }

  RegexStore& store_;
  const NumberSet& bounds_;
  std::string low_, high_, low_behind_, high_behind_;
  size_t places_ = 0;
  size_t length_ = 0;
};

ExprId within_bounds(RegexStore& store, const NumberSet& set) {
  std::vector<ExprId> parts;
  if (!set.hi || !set.hi->negative()) {  // from 0 on
    NumberSet positive = set;
    if (!set.lo || set.lo->negative()) positive.lo = Decimal(), positive.lo_open = false;
    parts.push_back(IntervalDigits(store, positive).expression());
  }
  if (!set.lo || set.lo->negative()) {
    NumberSet negative = set;
    negative.hi = set.lo ? std::optional(set.lo->magnitude()) : std::nullopt;
    negative.hi_open = set.lo_open;
    const bool below_zero = set.hi && set.hi->negative();
    negative.lo = below_zero ? set.hi->magnitude() : Decimal();
    negative.lo_open = below_zero ? set.hi_open : true;
    parts.push_back(store.concat(store.byte('-'), IntervalDigits(store, negative).expression()));
  }
  return store.either(std::move(parts));
}

// The unit of the numbers that are multiples of both. A search among multiples of one unit goes
// straight to the next; of two at once, it would have to try out all remainders.
Decimal common_unit(Decimal a, Decimal b) {
  if (a.exponent() < b.exponent()) std::swap(a, b);
  // a is m * 10^s and b is n, in units of b's power of ten, and m * n / gcd(m * 10^s, n) is whole.
  const uint64_t m = std::stoull(a.digits()), n = std::stoull(b.digits());
  uint64_t rest = m % n;
  for (int32_t i = b.exponent(); i < a.exponent(); ++i) rest = rest * 10 % n;
  const uint64_t unit = m * (n / std::gcd(rest, n));  // nine digits each
  return *Decimal::parse(std::to_string(unit) + "e" + std::to_string(a.exponent()));
}

bool has_few_digits(const Decimal& unit) {
  return unit.digits().size() <= 9 && unit.exponent() >= -30 && unit.exponent() <= 8;
}

// Of numbers that have at most `digits` before their point: how many are left tells where no
// multiple can follow any more.
std::optional<ExprId> multiple_expression(RegexStore& store, const Decimal& unit, uint32_t digits) {
  if (!has_few_digits(unit)) return std::nullopt;
  uint64_t p = std::stoull(unit.digits());
  const ExprId whole = store.concat(store.optional(store.byte('-')), figures(store, 1, digits));
  if (unit.exponent() >= 0) {
    for (int32_t i = 0; i < unit.exponent(); ++i) p *= 10;
    if (p > UINT32_MAX) return std::nullopt;
    return store.both(whole, store.multiple(static_cast<uint32_t>(p)));
  }
  // With j digits behind the point, they are a multiple of p without some of its factors 2 or 5:
  // most units have none, and then it is p for all of them.
  const auto places = static_cast<uint32_t>(-unit.exponent());
  const auto modulus = [&](uint32_t j) {
    uint64_t rest = p;
    for (uint32_t i = j; i < places && std::gcd(rest, uint64_t{10}) > 1; ++i) {
      rest /= std::gcd(rest, uint64_t{10});
    }
    return static_cast<uint32_t>(rest);
  };
  const auto with_places = [&](uint32_t from, uint32_t to) {
    if (to == 0) return whole;
    const ExprId behind = store.concat(store.byte('.'), figures(store, std::max(from, 1U), to));
    return store.concat(whole, from == 0 ? store.optional(behind) : behind);
  };
  std::vector<ExprId> ways;
  for (uint32_t from = 0, to = 0; from <= places; from = to + 1) {
    for (to = from; to < places && modulus(to + 1) == modulus(from);) ++to;
    ways.push_back(store.both(with_places(from, to), store.multiple(modulus(from))));
  }
  const ExprId last =
      store.both(with_places(places, places), store.multiple(static_cast<uint32_t>(p)));
  ways.push_back(store.concat(last, store.repeat(store.byte('0'), 1, kMaxDigits)));
  return store.either(std::move(ways));
}

}  // namespace

std::optional<ExprId> number_expression(RegexStore& store, NumberSet set) {
  std::vector<ExprId> parts;
  if (set.values) {
    std::vector<std::string> whole, others;
    for (const Decimal& value : *set.values) {
      if (!within(set, value)) continue;
      (value.is_integer() && !set.integers ? whole : others).push_back(value.to_string());
    }
    parts.push_back(
        store.concat(store.literals(std::move(whole)), store.optional(store.literal(".0"))));
    parts.push_back(store.literals(std::move(others)));
    return store.either(std::move(parts));
  }
  if (set.integers) {  // closed bounds that are integers themselves
    if (set.lo) set.lo = set.lo_open ? set.lo->next_integer() : set.lo->rounded_up();
    if (set.hi) {
      set.hi = set.hi_open ? set.hi->negated().next_integer().negated() : set.hi->rounded_down();
    }
    set.lo_open = set.hi_open = false;
  }
  const bool plain = !set.lo && !set.hi && !set.fractions && set.multiples.empty() &&
                     set.no_multiples.empty() && set.excluded.empty() && !set.no_exponent;
  if (plain) return set.integers ? json_integer(store) : json_number(store);
  parts.push_back(!set.lo && !set.hi && set.integers ? json_integer(store)
                                                     : within_bounds(store, set));
  auto digits = static_cast<uint32_t>(kMaxDigits);
  for (const std::optional<Decimal>& bound : {set.lo, set.hi}) {
    if (bound) digits = std::max(digits, static_cast<uint32_t>(bound->whole().size()));
  }
  std::optional<Decimal> unit;
  for (const Decimal& one : set.multiples) {
    if (!has_few_digits(one) || (unit && !has_few_digits(*unit))) return std::nullopt;
    unit = unit ? common_unit(*unit, one) : one;
  }
  if (unit) {
    const auto expression = multiple_expression(store, *unit, digits);
    if (!expression) return std::nullopt;
    parts.push_back(*expression);
  }
  for (const Decimal& one : set.no_multiples) {
    const auto expression = multiple_expression(store, one, digits);
    if (!expression) return std::nullopt;
    parts.push_back(store.negation(*expression));
  }
  for (const Decimal& value : set.excluded) {
    parts.push_back(store.negation(number_spellings(store, value)));
  }
  if (set.fractions) {
    const ExprId whole =
        store.concat(store.optional(store.byte('-')), figures(store, 1, kUnbounded));
    const ExprId zeros =
        store.concat(store.byte('.'), store.repeat(store.byte('0'), 1, kUnbounded));
    parts.push_back(store.negation(store.concat(whole, store.optional(zeros))));
  }
  return store.both(std::move(parts));
}

}  // namespace skein::grammar
