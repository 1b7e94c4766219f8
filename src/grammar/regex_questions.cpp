// Questions about languages, which are answered by walking derivatives.
#include <algorithm>
#include <deque>
#include <unordered_set>

#include "grammar/regex.h"

namespace skein::grammar {
namespace {

constexpr size_t kBeginsLimit = 2'000;    // pairs of expressions
constexpr uint64_t kBeginsWork = 40'000;  // in the units of a mask
constexpr uint64_t kDerivativeWork = 1;   // likewise, of one derivative
constexpr uint32_t kFewTimes = 64;
constexpr size_t kMaxRowParts = 256;
constexpr size_t kMaxRowOnes = 64;  // a character has fewer spellings
constexpr int kCharacterBytes = 4;
constexpr uint32_t kMaxPruneDepth = 1'000;

}  // namespace

Answer RegexStore::live(ExprId e) {
  if (e == kNothing) return Answer::kNo;
  if (!nodes_[e].extended || nodes_[e].nullable) return Answer::kYes;
  const KnownLive known = known_live(e);
  searches_.add(known.searches);
  switch (known.live) {
    case Live::kNo:
      return Answer::kNo;
    case Live::kYes:
      return Answer::kYes;
    case Live::kUnknown:
      return Answer::kUnknown;
    case Live::kNotAsked:
      break;
  }
  const SearchLog::Outer outer = searches_.begin();
  const Answer answer = live_by_structure(e);
  const SearchId searches = searches_.end(outer);
  searches_.add(searches);
  if (hurry_.late()) return Answer::kUnknown;
  if (answer == Answer::kUnknown) question_failed_ = true;
  remember_live(e,
                answer == Answer::kYes  ? Live::kYes
                : answer == Answer::kNo ? Live::kNo
                                        : Live::kUnknown,
                searches);
  return answer;
}

void RegexStore::remember_live(ExprId e, Live live, SearchId searches) {
  if (e >= live_.size()) live_.resize(nodes_.size());
  live_[e].live = live;
  live_[e].searches = searches;
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
    const std::vector<ExprId> parts(list(node).begin(), list(node).end());
    const auto is_plain = [&](ExprId part) { return !nodes_[part].extended; };
    if (std::any_of(parts.begin(), parts.end(), is_plain)) return Answer::kYes;
    bool some = false;  // all are asked, as the order of parts must not matter
    for (const ExprId part : parts) {
      const Answer answer = live(part);
      some = some || answer == Answer::kYes;
      unknown = unknown || answer == Answer::kUnknown;
    }
    return unknown ? Answer::kUnknown : some ? Answer::kYes : Answer::kNo;
  }
}

// Without a question on the way.
ExprId RegexStore::plain_derivative(ExprId e, uint8_t byte) {
  const Node node = nodes_[e];
  if (node.kind == Kind::kNot) return negation(derivative(node.a, byte));
  if (node.kind != Kind::kAnd) return derivative(e, byte);
  std::vector<ExprId> parts;
  for (uint32_t i = 0; i < node.b; ++i) parts.push_back(derivative(lists_[node.a + i], byte));
  return both(std::move(parts));
}

struct RegexStore::LiveSearch {
  struct Level {
    ExprId e;
    SearchId searches;         // of looking at it
    std::vector<ExprId> open;  // what may follow, the best one last
  };
  std::vector<Level> path;
  std::vector<SearchId> searches;  // of all that were looked at
  std::unordered_set<ExprId> seen;
  bool straight = true;  // it has not turned back
};

// Looks at what may follow `e`, over classes of bytes. Whether that ends the search.
bool RegexStore::expand(LiveSearch& search, ExprId e) {
  std::vector<ExprId>& open = search.path.emplace_back(LiveSearch::Level{e, kNoSearch, {}}).open;
  take_steps(1 + width(e) / 2);
  for (const uint8_t byte : representatives(e)) {
    const ExprId next = plain_derivative(e, byte);
    take_steps(1 + width(e) / 8);
    if (too_many_steps()) return true;
    if (next == kNothing || next == e) continue;
    if (nullable(next) || !nodes_[next].extended) return true;
    open.push_back(next);
  }
  std::stable_sort(open.begin(), open.end(),
                   [&](ExprId a, ExprId b) { return nodes_[a].shortest > nodes_[b].shortest; });
  if (!open.empty() && search.seen.contains(open.back())) search.straight = false;
  return false;
}

// Depth first to an expression that may end, those first that leave the least to be read. Not found
// if it must not turn back, and would have to.
//
// What this takes must not depend on what was asked before, so answers to other questions are no
// help, with one exception. A search that never turns back goes from each expression to the one
// that is best by itself: from any that it meets it would have gone the same way. So all of them
// are known then, and one that is known so ends a search that has not turned back either.
bool RegexStore::find_end(ExprId start, bool may_turn_back) {
  LiveSearch search;
  search.seen.insert(start);
  SearchId behind = kNoSearch;  // of what was known at the end of the path
  const auto push = [&](ExprId e) {
    if (const SearchId* known = straight_.find(e); search.straight && known != nullptr) {
      behind = *known;
      return true;
    }
    const SearchLog::Outer outer = searches_.begin();
    const bool found = expand(search, e);
    search.path.back().searches = searches_.end(outer);
    search.searches.push_back(search.path.back().searches);
    return found;
  };
  bool found = push(start);
  while (!found && !search.path.empty() && (search.straight || may_turn_back)) {
    std::vector<ExprId>& open = search.path.back().open;
    if (open.empty()) {
      search.straight = false;
      search.path.pop_back();
      continue;
    }
    const ExprId next = open.back();
    open.pop_back();
    if (search.seen.insert(next).second) found = push(next);
  }
  if (!found || !search.straight || too_many_steps()) {
    for (const SearchId one : search.searches) searches_.add(one);
    return found;
  }
  for (size_t i = search.path.size(); i-- > 0;) {
    const LiveSearch::Level& level = search.path[i];
    behind = behind == kNoSearch ? level.searches : searches_.make(0, {level.searches, behind});
    if (straight_.find(level.e) == nullptr) straight_.add(level.e, behind);
  }
  searches_.add(behind);
  return true;
}

// Of an intersection that `e` begins with: where its parts end with something that is counted, the
// least of these counts.
uint32_t RegexStore::most_times(ExprId e) const {
  const Node& node = nodes_[nodes_[e].kind == Kind::kConcat ? nodes_[e].a : e];
  uint32_t most = kUnbounded;
  if (node.kind != Kind::kAnd) return most;
  for (ExprId part : list(node)) {
    for (int i = 0; i < kCharacterBytes && nodes_[part].kind == Kind::kConcat; ++i) {
      part = nodes_[part].b;
    }
    if (nodes_[part].kind == Kind::kRepeat) most = std::min(most, nodes_[part].c);
  }
  return most;
}

// Likewise, with fewer texts: what may come more often comes at most `most` times. So the texts of
// a bounded string are asked for once, and not once for every length that is left.
ExprId RegexStore::with_at_most(ExprId e, uint32_t most) {
  const Node whole = nodes_[e];
  if (whole.kind == Kind::kConcat) return concat(with_at_most(whole.a, most), whole.b);
  if (whole.kind != Kind::kAnd || whole.shortest > most) return e;
  std::vector<ExprId> parts(list(whole).begin(), list(whole).end());
  bool changed = false;
  for (ExprId& part : parts) {
    std::vector<ExprId> chain;  // in the middle of a character, its rest stands in front
    ExprId last = part;
    for (; nodes_[last].kind == Kind::kConcat && chain.size() < size_t{kCharacterBytes};
         last = nodes_[last].b) {
      chain.push_back(nodes_[last].a);
    }
    const Node times = nodes_[last];
    if (times.kind != Kind::kRepeat || times.b > most || times.c <= most || times.c == kUnbounded) {
      continue;
    }
    chain.push_back(repeat(times.a, times.b, most));
    part = concat(chain);
    changed = true;
  }
  return changed ? both(std::move(parts)) : e;
}

Answer RegexStore::live_by_search(ExprId e) {
  const ExprId fewer = nodes_[e].kind == Kind::kAnd ? with_at_most(e, kFewTimes) : e;
  bool found = fewer != e && fewer != kNothing &&
               (nullable(fewer) || !nodes_[fewer].extended || find_end(fewer, false));
  if (!found) found = find_end(e, true);
  if (too_many_steps()) return Answer::kUnknown;
  return found ? Answer::kYes : Answer::kNo;
}

// An intersection or a complement without a text is found out by a question, and derivatives ask it
// of what they make. What stands behind other texts or in an alternative has never been asked.
ExprId RegexStore::without_dead_ends(ExprId e) {
  Pruned known;
  return prune(e, known, 0);
}

ExprId RegexStore::prune(ExprId e, Pruned& known, uint32_t depth) {
  if (!nodes_[e].extended) return e;
  if (const auto found = known.find(e); found != known.end()) return found->second;
  if (depth > kMaxPruneDepth) {
    question_failed_ = true;
    return e;
  }
  ExprId result = prune_parts(e, known, depth + 1);
  const Kind kind = nodes_[result].kind;
  const bool is_asked = kind == Kind::kAnd || kind == Kind::kNot;
  if (is_asked && live(result) == Answer::kNo) result = kNothing;
  known.emplace(e, result);
  return result;
}

ExprId RegexStore::prune_parts(ExprId e, Pruned& known, uint32_t depth) {
  const Node node = nodes_[e];
  std::vector<ExprId> parts;
  if (node.kind == Kind::kOr || node.kind == Kind::kAnd) {
    parts.assign(list(node).begin(), list(node).end());
  } else if (node.kind == Kind::kConcat) {
    ExprId last = e;
    for (; nodes_[last].kind == Kind::kConcat; last = nodes_[last].b) {
      parts.push_back(nodes_[last].a);
    }
    parts.push_back(last);
  } else {
    parts.push_back(node.a);
  }
  bool changed = false;
  for (ExprId& part : parts) {
    const ExprId pruned = prune(part, known, depth);
    changed = changed || pruned != part;
    part = pruned;
  }
  if (!changed) return e;
  switch (node.kind) {
    case Kind::kOr:
      return either(std::move(parts));
    case Kind::kAnd:
      return both(std::move(parts));
    case Kind::kNot:
      return negation(parts[0]);
    case Kind::kRepeat:
      return repeat(parts[0], node.b, node.c);
    default:
      return concat(parts);
  }
}

bool RegexStore::is_row_of(ExprId e, ExprId one) {
  const Node& whole = nodes_[one];
  std::vector<ExprId> ones{one};
  if (whole.kind == Kind::kOr && whole.b <= kMaxRowOnes) {
    ones.insert(ones.end(), list(whole).begin(), list(whole).end());
  }
  ByteSet bytes;  // that are texts of `one` by themselves
  for (const ExprId part : ones) {
    if (nodes_[part].kind == Kind::kClass) bytes = bytes | sets_[nodes_[part].a];
  }
  const auto has_byte = [&](char c) { return bytes.has(static_cast<uint8_t>(c)); };
  std::vector<ExprId> open{e};
  size_t looked_at = 0;
  bool holds = true;
  while (holds && !open.empty()) {
    holds = ++looked_at <= kMaxRowParts;
    const ExprId part = open.back();
    open.pop_back();
    if (part == kEmptyText || std::find(ones.begin(), ones.end(), part) != ones.end()) continue;
    const Node& node = nodes_[part];
    if (node.kind == Kind::kClass) {
      holds = holds && (sets_[node.a] & bytes) == sets_[node.a];
    } else if (node.kind == Kind::kLiteral) {
      const std::string_view text = std::string_view(text_).substr(node.a, node.b);
      holds = holds && std::all_of(text.begin(), text.end(), has_byte);
    } else if (node.kind == Kind::kOr) {
      open.insert(open.end(), list(node).begin(), list(node).end());
    } else if (node.kind == Kind::kRepeat || node.kind == Kind::kConcat) {
      open.push_back(node.a);
      if (node.kind == Kind::kConcat) open.push_back(node.b);
    } else {
      holds = false;
    }
  }
  count_work(looked_at);
  return holds;
}

Answer RegexStore::disjoint(ExprId a, ExprId b) {
  const Answer live_both = live(both(a, b));
  if (full_ || live_both == Answer::kUnknown) return Answer::kUnknown;
  return live_both == Answer::kYes ? Answer::kNo : Answer::kYes;
}

Answer RegexStore::contains(ExprId big, ExprId small) {
  return disjoint(small, negation(big));
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
    if (nodes_[part].kind == Kind::kNot && nodes_[nodes_[part].a].finite()) continue;
    if (rest != kNothing) return e;
    rest = part;
  }
  return rest != kNothing && endless(rest) ? rest : e;
}

void RegexStore::remember_begins_all(ExprId e, ExprId words) {
  const uint64_t key = uint64_t{e} << 32 | words;
  if (begins_.find(key) == nullptr) begins_.add(key, {Answer::kYes, 0});
}

Answer RegexStore::begins_all(ExprId e, ExprId words, uint64_t& work) {
  if (nodes_[e].finite() && endless(words)) return Answer::kNo;
  if (const ExprId simple = without_exceptions(e); simple != e) {
    if (begins_all(simple, words, work) == Answer::kYes) return Answer::kYes;
  }
  const uint64_t key = uint64_t{e} << 32 | words;
  if (const Begins* known = begins_.find(key)) return work += known->work, known->answer;
  const Begins found = search_begins(e, words);
  if (!hurry_.late()) begins_.add(key, found);
  work += found.work;
  return found.answer;
}

RegexStore::Begins RegexStore::search_begins(ExprId e, ExprId words) {
  uint64_t work = 0;
  begins_searched_.begin();
  const auto derived = [&](ExprId from, uint8_t byte) {
    const SearchLog::Outer outer = searches_.begin();
    const ExprId next = derivative(from, byte);
    work += searches_.steps(searches_.end(outer), begins_searched_) * kSearchStepWork;
    return next;
  };
  std::unordered_set<uint64_t> seen{uint64_t{e} << 32 | words};
  std::deque<std::pair<ExprId, ExprId>> open{{e, words}};
  while (!open.empty()) {
    const auto [text, word] = open.front();
    open.pop_front();
    for (const uint8_t byte : representatives(text, word)) {
      work += kDerivativeWork + (width(text) + width(word)) / 64;
      const ExprId next_word = derived(word, byte);
      if (next_word == kNothing) continue;
      const ExprId next_text = derived(text, byte);
      if (next_text == kNothing) return {Answer::kNo, work};
      if (next_text == kAnything) continue;
      if (seen.insert(uint64_t{next_text} << 32 | next_word).second) {
        open.emplace_back(next_text, next_word);
      }
    }
    if (seen.size() > kBeginsLimit || work > kBeginsWork || full_) {
      return {Answer::kUnknown, work};
    }
  }
  return {Answer::kYes, work};
}

}  // namespace skein::grammar
