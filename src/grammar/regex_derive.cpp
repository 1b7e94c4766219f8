// Derivatives of expressions, and the questions about languages that are answered by walking them.
#include <algorithm>
#include <deque>
#include <unordered_set>

#include "grammar/regex.h"

namespace skein::grammar {
namespace {

bool is_digit_byte(uint8_t byte) {
  return byte >= '0' && byte <= '9';
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
  if (const ExprId* known = derivatives_.find(key)) return *known;
  const ExprId result = derive(e, byte);
  // A question on the way may have come here already.
  if (!full_ && derivatives_.find(key) == nullptr) derivatives_.add(key, result);
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
    case Kind::kAnd: {
      for (uint32_t i = 0; i < node.b; ++i) {
        parts.push_back(derivative(lists_[node.a + i], byte));
        if (parts.back() == kNothing) return kNothing;
      }
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

void RegexStore::keep_alike(ExprId e, uint8_t byte, ByteSet& alike) const {
  const auto keep = [&](const ByteSet& set) {
    alike = alike & (set.has(byte) ? set : set.complement());
  };
  for (;;) {
    const Node& node = nodes_[e];
    switch (node.kind) {
      case Kind::kNothing:
      case Kind::kEmpty:
      case Kind::kAnything:
        return;
      case Kind::kClass:
        return keep(sets_[node.a]);
      case Kind::kLiteral:
        return keep(ByteSet::of({&text_[node.a], 1}));
      case Kind::kMultiple:
        if (is_digit_byte(byte)) keep(ByteSet::range(byte, byte));
        keep(ByteSet::range('0', '9'));
        return keep(ByteSet::of(".-"));
      case Kind::kOr:
      case Kind::kAnd:
        for (const ExprId part : list(node)) keep_alike(part, byte, alike);
        return;
      case Kind::kNot:
      case Kind::kRepeat:
        e = node.a;
        continue;
      case Kind::kConcat:
        keep_alike(node.a, byte, alike);
        if (!nullable(node.a)) return;
        e = node.b;
        continue;
    }
  }
}

bool RegexStore::matches(ExprId e, std::string_view text) {
  for (const char c : text) {
    e = derivative(e, static_cast<uint8_t>(c));
    if (e == kNothing) return false;
  }
  return nullable(e);
}

// The byte sets that `e` can tell apart by its first byte.
void RegexStore::heads(ExprId e, std::vector<ByteSet>& sets, bool& digits) const {
  for (;;) {
    const Node& node = nodes_[e];
    switch (node.kind) {
      case Kind::kNothing:
      case Kind::kEmpty:
      case Kind::kAnything:
        return;
      case Kind::kClass:
        sets.push_back(sets_[node.a]);
        return;
      case Kind::kLiteral:
        sets.push_back(ByteSet::of({&text_[node.a], 1}));
        return;
      case Kind::kMultiple:
        digits = true;
        return;
      case Kind::kOr:
      case Kind::kAnd:
        for (const ExprId part : list(node)) heads(part, sets, digits);
        return;
      case Kind::kNot:
      case Kind::kRepeat:
        e = node.a;
        continue;
      case Kind::kConcat:
        heads(node.a, sets, digits);
        if (!nullable(node.a)) return;
        e = node.b;
        continue;
    }
  }
}

// One byte of every class of bytes that lead to the same derivatives of both.
std::vector<uint8_t> RegexStore::representatives(ExprId e, ExprId also) const {
  std::vector<ByteSet> sets;
  bool digits = false;
  heads(e, sets, digits);
  heads(also, sets, digits);
  if (digits) {
    for (char c = '0'; c <= '9'; ++c) sets.push_back(ByteSet::of({&c, 1}));
    sets.push_back(ByteSet::of(".-"));
  }
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

Answer RegexStore::live(ExprId e) {
  if (e == kNothing) return Answer::kNo;
  if (!nodes_[e].extended || nodes_[e].nullable) return Answer::kYes;
  switch (known_live(e)) {
    case Live::kNo:
      return Answer::kNo;
    case Live::kYes:
      return Answer::kYes;
    case Live::kUnknown:
      return Answer::kUnknown;
    case Live::kNotAsked:
      break;
  }
  const Answer answer = live_by_structure(e);
  if (answer == Answer::kUnknown) question_failed_ = true;
  remember_live(e, answer);
  return answer;
}

void RegexStore::remember_live(ExprId e, Answer answer) {
  if (e >= live_.size()) live_.resize(nodes_.size(), Live::kNotAsked);
  live_[e] = answer == Answer::kNo    ? Live::kNo
             : answer == Answer::kYes ? Live::kYes
                                      : Live::kUnknown;
}

Answer RegexStore::live_by_structure(ExprId e) {
  bool unknown = false;
  for (;;) {
    const Node node = nodes_[e];
    if (node.kind == Kind::kConcat) {
      const Answer first = live(node.a);
      if (first == Answer::kNo) return Answer::kNo;
      unknown = unknown || first == Answer::kUnknown;
      e = node.b;
      if (nodes_[e].kind == Kind::kConcat) continue;
      const Answer rest = live(e);
      return rest == Answer::kYes && unknown ? Answer::kUnknown : rest;
    }
    if (node.kind == Kind::kRepeat) return live(node.a);
    if (node.kind != Kind::kOr) return live_by_search(e);
    for (uint32_t i = 0; i < node.b; ++i) {
      const Answer part = live(lists_[node.a + i]);
      if (part == Answer::kYes) return part;
      unknown = unknown || part == Answer::kUnknown;
    }
    return unknown ? Answer::kUnknown : Answer::kNo;
  }
}

// Depth first to an expression that may end, over classes of bytes; what lies on the way to it is
// live as well.
Answer RegexStore::live_by_search(ExprId start) {
  struct Level {
    ExprId e;
    std::vector<uint8_t> bytes;
    size_t next = 0;
  };
  std::vector<Level> path;
  std::unordered_set<ExprId> seen{start};
  path.push_back({start, representatives(start)});
  const auto derived = [&](const Level& level) {
    const Node node = nodes_[level.e];
    const uint8_t byte = level.bytes[level.next];
    if (node.kind == Kind::kNot) return negation(derivative(node.a, byte));
    std::vector<ExprId> parts;
    if (node.kind != Kind::kAnd) return derivative(level.e, byte);
    for (uint32_t i = 0; i < node.b; ++i) parts.push_back(derivative(lists_[node.a + i], byte));
    return both(std::move(parts));
  };
  while (!path.empty()) {
    Level& level = path.back();
    if (level.next == level.bytes.size()) {
      path.pop_back();
      continue;
    }
    const ExprId next = derived(level);
    ++level.next;
    search_work_ += 1 + width(level.e) / 8;
    if (next == kNothing || !seen.insert(next).second) continue;
    const Live known = known_live(next);
    if (nullable(next) || !nodes_[next].extended || known == Live::kYes) {
      for (const Level& on_the_way : path) remember_live(on_the_way.e, Answer::kYes);
      return Answer::kYes;
    }
    if (known == Live::kNo) continue;
    if (full_ || seen.size() > kSearchLimit || search_work_ > kSearchWork) return Answer::kUnknown;
    path.push_back({next, representatives(next)});
  }
  if (full_) return Answer::kUnknown;
  for (const ExprId e : seen) remember_live(e, Answer::kNo);
  return Answer::kNo;
}

Answer RegexStore::disjoint(ExprId a, ExprId b) {
  const Answer live_both = live(both(a, b));
  if (full_ || live_both == Answer::kUnknown) return Answer::kUnknown;
  return live_both == Answer::kYes ? Answer::kNo : Answer::kYes;
}

Answer RegexStore::contains(ExprId big, ExprId small) {
  return disjoint(small, negation(big));
}

bool RegexStore::is_finite(Kind kind, uint32_t a, uint32_t b, uint32_t c) const {
  const auto finite = [&](ExprId part) { return nodes_[part].finite; };
  switch (kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
    case Kind::kClass:
    case Kind::kLiteral:
      return true;
    case Kind::kConcat:
      return finite(a) && finite(b);
    case Kind::kOr:
      return std::all_of(&lists_[a], &lists_[a] + b, finite);
    case Kind::kAnd:
      return std::any_of(&lists_[a], &lists_[a] + b, finite);
    case Kind::kRepeat:
      return c != kUnbounded && finite(a);
    case Kind::kAnything:
    case Kind::kNot:
    case Kind::kMultiple:
      return false;
  }
  return false;
}

// Whether every beginning of a text of `e` is the beginning of infinitely many: it ends with
// something that may come again and again.
bool RegexStore::endless(ExprId e) const {
  if (nodes_[e].extended) return false;
  while (nodes_[e].kind == Kind::kConcat) e = nodes_[e].b;
  return nodes_[e].kind == Kind::kAnything ||
         (nodes_[e].kind == Kind::kRepeat && nodes_[e].c == kUnbounded);
}

// What is endless has the same beginnings without finitely many exceptions. So the names that an
// object may have beside those it lists begin as any name does.
ExprId RegexStore::without_exceptions(ExprId e) const {
  const ExprId first = nodes_[e].kind == Kind::kConcat ? nodes_[e].a : e;
  if (nodes_[first].kind != Kind::kAnd) return e;
  ExprId rest = kNothing;
  for (const ExprId part : list(nodes_[first])) {
    if (nodes_[part].kind == Kind::kNot && nodes_[nodes_[part].a].finite) continue;
    if (rest != kNothing) return e;
    rest = part;
  }
  return rest != kNothing && endless(rest) ? rest : e;
}

void RegexStore::remember_begins_all(ExprId e, ExprId words) {
  const uint64_t key = uint64_t{e} << 32 | words;
  if (begins_.find(key) == nullptr) begins_.add(key, Answer::kYes);
}

Answer RegexStore::begins_all(ExprId e, ExprId words) {
  if (const ExprId simple = without_exceptions(e); simple != e) {
    if (begins_all(simple, words) == Answer::kYes) return Answer::kYes;
  }
  const uint64_t key = uint64_t{e} << 32 | words;
  if (const Answer* known = begins_.find(key)) return *known;
  std::unordered_set<uint64_t> seen{key};
  std::deque<std::pair<ExprId, ExprId>> open{{e, words}};
  Answer answer = Answer::kYes;
  while (!open.empty() && answer == Answer::kYes) {
    const auto [text, word] = open.front();
    open.pop_front();
    for (const uint8_t byte : representatives(text, word)) {
      const ExprId next_word = derivative(word, byte);
      if (next_word == kNothing) continue;
      const ExprId next_text = derivative(text, byte);
      if (next_text == kNothing) {
        answer = Answer::kNo;
        break;
      }
      if (next_text == kAnything) continue;
      if (seen.insert(uint64_t{next_text} << 32 | next_word).second) {
        open.emplace_back(next_text, next_word);
      }
    }
    if (seen.size() > 2000) answer = Answer::kUnknown;
  }
  begins_.add(key, answer);
  return answer;
}

bool RegexStore::leading_repeat(ExprId e, ExprId& body, uint32_t& hi) const {
  const Node& node = nodes_[nodes_[e].kind == Kind::kConcat ? nodes_[e].a : e];
  if (node.kind != Kind::kRepeat) return false;
  body = node.a;
  hi = node.c;
  return true;
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
