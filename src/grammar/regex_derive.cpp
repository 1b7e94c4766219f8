// Derivatives of expressions, and what is known of an expression as such.
#include <algorithm>

#include "grammar/regex.h"

namespace skein::grammar {
namespace {

bool is_digit_byte(uint8_t byte) {
  return byte >= '0' && byte <= '9';
}

// How many digits it takes at least, read after `remainder`, to make a multiple of `modulus`. It is
// never more than its own digits. A search that goes where this is least goes straight there.
uint32_t digits_to_multiple(uint32_t modulus, uint32_t remainder) {
  uint32_t digits = 0;
  uint64_t rest = remainder;
  for (uint64_t texts = 1; rest != 0 && modulus - rest >= texts; texts *= 10) {
    rest = rest * 10 % modulus;
    ++digits;
  }
  return digits;
}

}  // namespace

ExprId RegexStore::derivative(ExprId e, uint8_t byte) {
  const Node& node = nodes_[e];
  switch (node.kind) {  // what needs no memory
    case Kind::kNothing:
    case Kind::kEmpty:
      return kNothing;
    case Kind::kAnything:
      return kAnything;
    case Kind::kClass:
      return sets_[node.a].has(byte) ? kEmptyText : kNothing;
    case Kind::kLiteral:
      return static_cast<uint8_t>(text_[node.a]) == byte ? literal_slice(node.a + 1, node.b - 1)
                                                         : kNothing;
    case Kind::kMultiple:
      if (is_digit_byte(byte)) {
        return multiple(node.a,
                        static_cast<uint32_t>((uint64_t{node.b} * 10 + byte - '0') % node.a));
      }
      return byte == '.' || byte == '-' ? e : kNothing;
    default:
      break;
  }
  const uint64_t key = uint64_t{e} << 8 | byte;
  if (const Derivative* known = derivatives_.find(key)) {
    searches_.add(known->searches);
    return known->result;
  }
  const SearchLog::Outer outer = searches_.begin();
  const ExprId result = derive(e, byte);
  const SearchId searches = searches_.end(outer);
  searches_.add(searches);
  // A question on the way may have come here already.
  if (!full_ && !hurry_.late() && derivatives_.find(key) == nullptr)
    derivatives_.add(key, {result, searches});
  return result;
}

ExprId RegexStore::derive(ExprId e, uint8_t byte) {
  const Node node = nodes_[e];  // a copy: what is made below may move it
  std::vector<ExprId> parts;
  switch (node.kind) {
    case Kind::kConcat:
      return derive_concat(e, byte);
    case Kind::kOr:
      for (uint32_t i = 0; i < node.b; ++i) parts.push_back(derivative(lists_[node.a + i], byte));
      return either(std::move(parts));
    case Kind::kRepeat:
      return concat(derivative(node.a, byte),
                    repeat(node.a, node.b == 0 ? 0 : node.b - 1,
                           node.c == kUnbounded ? kUnbounded : node.c - 1));
    case Kind::kAnd: {  // all of them: the order of parts is by age and must not matter
      for (uint32_t i = 0; i < node.b; ++i) parts.push_back(derivative(lists_[node.a + i], byte));
      const ExprId result = both(std::move(parts));
      return live(result) == Answer::kNo ? kNothing : result;
    }
    case Kind::kNot: {
      const ExprId result = negation(derivative(node.a, byte));
      return live(result) == Answer::kNo ? kNothing : result;
    }
    default:
      return kNothing;
  }
}

// Along the chain as far as what stands in front may be left out.
ExprId RegexStore::derive_concat(ExprId e, uint8_t byte) {
  std::vector<ExprId> parts;
  ExprId at = e;
  for (;;) {
    const Node node = nodes_[at];
    if (node.kind != Kind::kConcat) {
      parts.push_back(derivative(at, byte));
      break;
    }
    const ExprId first = derivative(node.a, byte);
    if (first != kNothing) parts.push_back(concat(first, node.b));
    if (!nullable(node.a)) break;
    at = node.b;
  }
  if (parts.empty()) return kNothing;
  return parts.size() == 1 ? parts[0] : either(std::move(parts));
}

// The byte sets that `e` can tell apart by its first byte.
template <class Visit>
void RegexStore::visit_heads(ExprId e, const Visit& visit) const {
  for (;;) {
    const Node& node = nodes_[e];
    switch (node.kind) {
      case Kind::kNothing:
      case Kind::kEmpty:
      case Kind::kAnything:
        return;
      case Kind::kClass:
        return visit(sets_[node.a]);
      case Kind::kLiteral:
        return visit(ByteSet::of({&text_[node.a], 1}));
      case Kind::kMultiple:
        for (uint8_t digit = '0'; digit <= '9'; ++digit) visit(ByteSet::range(digit, digit));
        return visit(ByteSet::of(".-"));
      case Kind::kOr:
      case Kind::kAnd:
        for (const ExprId part : list(node)) visit_heads(part, visit);
        return;
      case Kind::kNot:
      case Kind::kRepeat:
        e = node.a;
        continue;
      case Kind::kConcat:
        visit_heads(node.a, visit);
        if (!nullable(node.a)) return;
        e = node.b;
        continue;
    }
  }
}

void RegexStore::keep_alike(ExprId e, uint8_t byte, ByteSet& alike) const {
  visit_heads(
      e, [&](const ByteSet& set) { alike = alike & (set.has(byte) ? set : set.complement()); });
}

bool RegexStore::matches(ExprId e, std::string_view text) {
  for (const char c : text) {
    e = derivative(e, static_cast<uint8_t>(c));
    if (e == kNothing) return false;
  }
  return nullable(e);
}

// One byte of every class of bytes that lead to the same derivatives of both.
std::vector<uint8_t> RegexStore::representatives(ExprId e, ExprId also) const {
  std::vector<ByteSet> sets;
  const auto add = [&](const ByteSet& set) { sets.push_back(set); };
  visit_heads(e, add);
  visit_heads(also, add);
  std::sort(sets.begin(), sets.end());
  sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
  std::vector<ByteSet> classes{ByteSet::all()};
  for (const ByteSet& set : sets) {
    for (size_t i = 0, n = classes.size(); i < n; ++i) {
      const ByteSet inside = classes[i] & set;
      if (inside.empty() || inside == classes[i]) continue;
      classes[i] = classes[i] & set.complement();
      classes.push_back(inside);
    }
  }
  std::vector<uint8_t> result;
  for (const ByteSet& set : classes) {
    for (uint32_t w = 0; w < 4; ++w) {
      if (set.words[w] == 0) continue;
      result.push_back(static_cast<uint8_t>(w * 64 + std::countr_zero(set.words[w])));
      break;
    }
  }
  return result;
}

// No text of it is longer; kUnbounded where that is not known.
uint32_t RegexStore::longest_of(Kind kind, uint32_t a, uint32_t b, uint32_t c) const {
  const auto longest = [&](ExprId part) { return uint64_t{nodes_[part].longest}; };
  const auto bounded = [](uint64_t length) {
    return static_cast<uint32_t>(std::min<uint64_t>(length, kUnbounded - 1));
  };
  uint64_t length = 0;
  switch (kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      return 0;
    case Kind::kClass:
      return 1;
    case Kind::kLiteral:
      return b;
    case Kind::kConcat:
      if (!nodes_[a].finite() || !nodes_[b].finite()) return kUnbounded;
      return bounded(longest(a) + longest(b));
    case Kind::kOr:
      for (uint32_t i = 0; i < b; ++i) length = std::max(length, longest(lists_[a + i]));
      return static_cast<uint32_t>(length);
    case Kind::kAnd:
      length = kUnbounded;
      for (uint32_t i = 0; i < b; ++i) length = std::min(length, longest(lists_[a + i]));
      return static_cast<uint32_t>(length);
    case Kind::kRepeat:
      return c != kUnbounded && nodes_[a].finite() ? bounded(longest(a) * c) : kUnbounded;
    case Kind::kAnything:
    case Kind::kNot:
    case Kind::kMultiple:
      break;
  }
  return kUnbounded;
}

// Whether texts of all of them may have the same length.
bool RegexStore::has_common_length(std::span<const ExprId> parts) const {
  uint32_t least = 0, most = kUnbounded;
  for (const ExprId part : parts) {
    least = std::max(least, nodes_[part].shortest);
    most = std::min(most, nodes_[part].longest);
  }
  return least <= most;
}

std::optional<RegexStore::Counted> RegexStore::counted(ExprId e) const {
  const bool alone = nodes_[e].kind != Kind::kConcat;
  const Node& node = nodes_[alone ? e : nodes_[e].a];
  if (node.kind != Kind::kRepeat) return std::nullopt;
  return Counted{node.a, node.b, node.c, alone ? kEmptyText : nodes_[e].b};
}

std::vector<ExprId> RegexStore::plain_alternatives(ExprId e) const {
  if (nodes_[e].kind != Kind::kOr || nodes_[e].extended) return {};
  return {list(nodes_[e]).begin(), list(nodes_[e]).end()};
}

ExprId RegexStore::clamp(ExprId e, uint32_t bytes) {
  const Node node = nodes_[e];
  if (node.extended) return e;  // what is empty depends on the counts there
  if (node.kind == Kind::kRepeat && !nullable(node.a)) {
    const uint32_t hi = node.c > bytes ? kUnbounded : node.c;
    return repeat(node.a, std::min(node.b, bytes + 1), hi);
  }
  if (node.kind == Kind::kConcat) {
    const ExprId first = clamp(node.a, bytes);
    return first == node.a ? e : concat(first, node.b);
  }
  if (node.kind == Kind::kOr && node.b <= 16) {
    std::vector<ExprId> parts;
    for (uint32_t i = 0; i < node.b; ++i) parts.push_back(clamp(lists_[node.a + i], bytes));
    return either(std::move(parts));
  }
  return e;
}

// No text of it is shorter; not more than that is known.
uint32_t RegexStore::shortest_of(Kind kind, uint32_t a, uint32_t b) const {
  uint64_t length = 0;
  if (kind == Kind::kClass) length = 1;
  if (kind == Kind::kLiteral) length = b;
  if (kind == Kind::kMultiple) length = digits_to_multiple(a, b);
  if (kind == Kind::kConcat) length = uint64_t{nodes_[a].shortest} + nodes_[b].shortest;
  if (kind == Kind::kRepeat) length = uint64_t{nodes_[a].shortest} * b;
  if (kind == Kind::kOr) {
    length = UINT32_MAX;
    for (uint32_t i = 0; i < b; ++i) {
      length = std::min<uint64_t>(length, nodes_[lists_[a + i]].shortest);
    }
  }
  if (kind == Kind::kAnd) {
    for (uint32_t i = 0; i < b; ++i) {
      length = std::max<uint64_t>(length, nodes_[lists_[a + i]].shortest);
    }
  }
  return static_cast<uint32_t>(std::min<uint64_t>(length, UINT32_MAX));
}

// How many parts a derivative looks at; it is bounded, as sums of it are taken.
uint32_t RegexStore::width_of(Kind kind, uint32_t a, uint32_t b) const {
  uint64_t parts = 1;
  if (kind == Kind::kOr || kind == Kind::kAnd) {
    for (uint32_t i = 0; i < b; ++i) parts += nodes_[lists_[a + i]].width;
  }
  if (kind == Kind::kConcat || kind == Kind::kNot || kind == Kind::kRepeat) parts += width(a);
  if (kind == Kind::kConcat && nodes_[a].nullable) parts += width(b);
  return static_cast<uint32_t>(std::min<uint64_t>(parts, kMaxWidth + 1));
}

}  // namespace skein::grammar
