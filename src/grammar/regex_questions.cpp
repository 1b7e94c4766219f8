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

}  // namespace

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

// Without a question on the way.
ExprId RegexStore::plain_derivative(ExprId e, uint8_t byte) {
  const Node node = nodes_[e];
  if (node.kind == Kind::kNot) return negation(derivative(node.a, byte));
  if (node.kind != Kind::kAnd) return derivative(e, byte);
  std::vector<ExprId> parts;
  for (uint32_t i = 0; i < node.b; ++i) parts.push_back(derivative(lists_[node.a + i], byte));
  return both(std::move(parts));
}

// Depth first to an expression that may end, over classes of bytes, those first that leave the
// least to be read; what lies on the way to it is live as well.
Answer RegexStore::live_by_search(ExprId start) {
  struct Level {
    ExprId e;
    std::vector<ExprId> open;  // the best one last
  };
  std::vector<Level> path;
  std::unordered_set<ExprId> seen{start};
  const auto push = [&](ExprId e) {  // whether that ends the search
    path.push_back({e, {}});
    std::vector<ExprId>& open = path.back().open;
    search_work_ += 1 + width(e) / 2;
    for (const uint8_t byte : representatives(e)) {
      const ExprId next = plain_derivative(e, byte);
      search_work_ += 1 + width(e) / 8;
      if (next == kNothing || seen.count(next) > 0) continue;
      const Live known = known_live(next);
      if (nullable(next) || !nodes_[next].extended || known == Live::kYes) return true;
      if (known != Live::kNo) open.push_back(next);
    }
    std::stable_sort(open.begin(), open.end(),
                     [&](ExprId a, ExprId b) { return nodes_[a].shortest > nodes_[b].shortest; });
    return false;
  };
  bool found = push(start);
  while (!found && !path.empty()) {
    if (full_ || seen.size() > kSearchLimit || search_work_ > max_search_work_)
      return Answer::kUnknown;
    std::vector<ExprId>& open = path.back().open;
    if (open.empty()) {
      path.pop_back();
      continue;
    }
    const ExprId next = open.back();
    open.pop_back();
    if (seen.insert(next).second) found = push(next);
  }
  if (full_) return Answer::kUnknown;
  if (!found) {
    for (const ExprId e : seen) remember_live(e, Answer::kNo);
    return Answer::kNo;
  }
  for (const Level& on_the_way : path) remember_live(on_the_way.e, Answer::kYes);
  return Answer::kYes;
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
    if (nodes_[part].kind == Kind::kNot && nodes_[nodes_[part].a].finite) continue;
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
  if (const ExprId simple = without_exceptions(e); simple != e) {
    if (begins_all(simple, words, work) == Answer::kYes) return Answer::kYes;
  }
  const uint64_t key = uint64_t{e} << 32 | words;
  if (const Begins* known = begins_.find(key)) return work += known->work, known->answer;
  const Begins found = search_begins(e, words);
  begins_.add(key, found);
  work += found.work;
  return found.answer;
}

RegexStore::Begins RegexStore::search_begins(ExprId e, ExprId words) {
  Begins result{Answer::kYes, 0};
  std::unordered_set<uint64_t> seen{uint64_t{e} << 32 | words};
  std::deque<std::pair<ExprId, ExprId>> open{{e, words}};
  while (!open.empty()) {
    const auto [text, word] = open.front();
    open.pop_front();
    for (const uint8_t byte : representatives(text, word)) {
      result.work += kDerivativeWork + (width(text) + width(word)) / 64;
      const ExprId next_word = derivative(word, byte);
      if (next_word == kNothing) continue;
      const ExprId next_text = derivative(text, byte);
      if (next_text == kNothing) return {Answer::kNo, result.work};
      if (next_text == kAnything) continue;
      if (seen.insert(uint64_t{next_text} << 32 | next_word).second) {
        open.emplace_back(next_text, next_word);
      }
    }
    if (seen.size() > kBeginsLimit || result.work > kBeginsWork || full_) {
      return {Answer::kUnknown, result.work};
    }
  }
  return result;
}

}  // namespace skein::grammar
