#include "grammar/regex.h"

#include <algorithm>

namespace skein::grammar {
namespace {

constexpr size_t kMaxRowPairs = 1024;

uint64_t mixed(uint64_t h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15 + (h << 6) + (h >> 2);
  h ^= h >> 32;
  h *= 0xd6e8feb86659fd93;
  h ^= h >> 29;
  return h;
}

uint64_t set_hash(const ByteSet& set) {
  uint64_t h = 1;
  for (const uint64_t word : set.words) h = mixed(h, word);
  return h;
}

}  // namespace

RegexStore::RegexStore(uint32_t max_expressions) : max_expressions_(max_expressions) {
  table_.assign(1024, 0);
  intern(Kind::kNothing, 0, 0, 0, false, false);
  intern(Kind::kEmpty, 0, 0, 0, true, false);
  intern(Kind::kAnything, 0, 0, 0, true, false);
}

uint64_t RegexStore::hash(Kind kind, uint32_t a, uint32_t b, uint32_t c) const {
  uint64_t h = static_cast<uint64_t>(kind);
  if (kind == Kind::kOr || kind == Kind::kAnd) {
    for (uint32_t i = 0; i < b; ++i) h = mixed(h, lists_[a + i]);
    return h;
  }
  return mixed(mixed(mixed(h, a), b), c);
}

bool RegexStore::same(const Node& node, Kind kind, uint32_t a, uint32_t b, uint32_t c) const {
  if (node.kind != kind) return false;
  if (kind == Kind::kOr || kind == Kind::kAnd) {
    return node.b == b && std::equal(&lists_[node.a], &lists_[node.a] + b, &lists_[a]);
  }
  return node.a == a && node.b == b && node.c == c;
}

void RegexStore::grow_table() {
  std::vector<uint32_t> larger(table_.size() * 2, 0);
  for (uint32_t id = 0; id < nodes_.size(); ++id) {
    const Node& n = nodes_[id];
    size_t at = hash(n.kind, n.a, n.b, n.c) & (larger.size() - 1);
    while (larger[at] != 0) at = (at + 1) & (larger.size() - 1);
    larger[at] = id + 1;
  }
  table_ = std::move(larger);
}

ExprId RegexStore::intern(Kind kind, uint32_t a, uint32_t b, uint32_t c, bool nullable,
                          bool extended) {
  count_work(kind == Kind::kOr || kind == Kind::kAnd ? 1 + b / 16 : 1);
  size_t at = hash(kind, a, b, c) & (table_.size() - 1);
  for (; table_[at] != 0; at = (at + 1) & (table_.size() - 1)) {
    if (same(nodes_[table_[at] - 1], kind, a, b, c)) return table_[at] - 1;
  }
  if (nodes_.size() >= max_expressions_) {
    full_ = true;
    return kNothing;
  }
  nodes_.push_back({kind, nullable, extended, width_of(kind, a, b), shortest_of(kind, a, b),
                    longest_of(kind, a, b, c), a, b, c});
  const auto id = static_cast<ExprId>(nodes_.size() - 1);
  table_[at] = id + 1;
  if (nodes_.size() * 2 > table_.size()) grow_table();
  return id;
}

ExprId RegexStore::intern_list(Kind kind, std::span<const ExprId> parts) {
  bool nullable = kind == Kind::kAnd;
  bool extended = kind == Kind::kAnd;
  for (const ExprId part : parts) {
    nullable =
        kind == Kind::kAnd ? nullable && nodes_[part].nullable : nullable || nodes_[part].nullable;
    extended = extended || nodes_[part].extended;
  }
  const size_t before = lists_.size();
  lists_.insert(lists_.end(), parts.begin(), parts.end());
  const size_t count = nodes_.size();
  const ExprId id = intern(kind, static_cast<uint32_t>(before), static_cast<uint32_t>(parts.size()),
                           0, nullable, extended);
  if (nodes_.size() == count) lists_.resize(before);  // it was there
  return id;
}

ExprId RegexStore::byte_class(const ByteSet& set) {
  if (set.empty()) return kNothing;
  uint64_t key = set_hash(set);
  for (;; ++key) {  // a collision goes on to the next key
    const auto found = set_ids_.find(key);
    if (found == set_ids_.end()) break;
    if (sets_[found->second] == set) return intern(Kind::kClass, found->second, 0, 0, false, false);
  }
  const auto id = static_cast<uint32_t>(sets_.size());
  if (nodes_.size() >= max_expressions_) {
    full_ = true;
    return kNothing;
  }
  sets_.push_back(set);
  set_ids_.emplace(key, id);
  return intern(Kind::kClass, id, 0, 0, false, false);
}

ExprId RegexStore::literal_slice(uint32_t offset, uint32_t length) {
  if (length == 0) return kEmptyText;
  if (length == 1) return byte(text_[offset]);
  return intern(Kind::kLiteral, offset, length, 0, false, false);
}

ExprId RegexStore::literal(std::string_view text) {
  if (text.size() == 1) return byte(text[0]);
  if (text.empty()) return kEmptyText;
  if (nodes_.size() >= max_expressions_) {
    full_ = true;
    return kNothing;
  }
  count_work(2 + text.size() / 16);
  const auto [found, added] =
      texts_.try_emplace(std::string(text), static_cast<uint32_t>(text_.size()));
  if (added) {
    text_starts_.push_back(found->second);
    text_ += text;
  }
  return literal_slice(found->second, static_cast<uint32_t>(text.size()));
}

ExprId RegexStore::literals(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return literal_tree(texts, 0);
}

// The texts share their first `depth` bytes. Recursion goes one level deeper per branching, which a
// text cannot have more of than bytes, so long chains of prefixes are left as plain alternatives.
ExprId RegexStore::literal_tree(std::span<const std::string> sorted, size_t depth) {
  std::vector<ExprId> parts;
  if (depth_ > 200) {
    for (const std::string& text : sorted) {
      parts.push_back(literal(std::string_view(text).substr(depth)));
    }
    return either(std::move(parts));
  }
  ++depth_;
  for (size_t i = 0; i < sorted.size();) {
    if (sorted[i].size() == depth) {
      parts.push_back(kEmptyText);
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < sorted.size() && sorted[end][depth] == sorted[i][depth]) ++end;
    size_t common = sorted[i].size();
    const std::string& last = sorted[end - 1];
    if (end - i > 1) {
      common = depth + 1;
      while (common < sorted[i].size() && common < last.size() && sorted[i][common] == last[common])
        ++common;
    }
    const ExprId head = literal(std::string_view(sorted[i]).substr(depth, common - depth));
    parts.push_back(end - i == 1 ? head
                                 : concat(head, literal_tree(sorted.subspan(i, end - i), common)));
    i = end;
  }
  --depth_;
  return either(std::move(parts));
}

ExprId RegexStore::concat(ExprId first, ExprId then) {
  if (first == kNothing || then == kNothing) return kNothing;
  if (first == kEmptyText) return then;
  if (then == kEmptyText) return first;
  if (first == kAnything && then == kAnything) return kAnything;
  std::vector<ExprId> chain;
  ExprId at = first;
  for (; nodes_[at].kind == Kind::kConcat; at = nodes_[at].b) chain.push_back(nodes_[at].a);
  chain.push_back(at);
  ExprId result = then;
  for (size_t i = chain.size(); i-- > 0;) {
    const ExprId head = chain[i];
    result =
        intern(Kind::kConcat, head, result, 0, nodes_[head].nullable && nodes_[result].nullable,
               nodes_[head].extended || nodes_[result].extended);
    if (result == kNothing) break;  // full
  }
  return result;
}

ExprId RegexStore::concat(std::span<const ExprId> parts) {
  ExprId result = kEmptyText;
  for (size_t i = parts.size(); i-- > 0;) result = concat(parts[i], result);
  return result;
}

// What is inside a part of the same kind is of another.
void RegexStore::flatten(Kind kind, std::vector<ExprId>& parts) const {
  for (size_t i = 0, n = parts.size(); i < n; ++i) {
    const Node& node = nodes_[parts[i]];
    if (node.kind != kind) continue;
    const std::span<const ExprId> inner = list(node);
    parts[i] = inner[0];
    parts.insert(parts.end(), inner.begin() + 1, inner.end());
  }
}

void RegexStore::merge_classes(Kind kind, std::vector<ExprId>& parts) {
  ByteSet merged = kind == Kind::kOr ? ByteSet{} : ByteSet::all();
  uint32_t count = 0;
  for (const ExprId part : parts) {
    if (nodes_[part].kind != Kind::kClass) continue;
    const ByteSet& set = sets_[nodes_[part].a];
    merged = kind == Kind::kOr ? merged | set : merged & set;
    ++count;
  }
  if (count < 2) return;
  std::erase_if(parts, [&](ExprId part) { return nodes_[part].kind == Kind::kClass; });
  parts.push_back(byte_class(merged));
}

// x·t | y·t becomes (x | y)·t, which keeps the derivatives of one text in one expression.
void RegexStore::merge_tails(std::vector<ExprId>& parts) {
  std::vector<std::pair<ExprId, ExprId>> tails;  // (tail, head)
  for (const ExprId part : parts) {
    if (nodes_[part].kind == Kind::kConcat) tails.emplace_back(nodes_[part].b, nodes_[part].a);
  }
  std::sort(tails.begin(), tails.end());
  bool merged = false;
  for (size_t i = 0; i < tails.size();) {
    size_t end = i + 1;
    while (end < tails.size() && tails[end].first == tails[i].first) ++end;
    if (end - i > 1) {
      if (!merged) {
        std::erase_if(parts, [&](ExprId part) { return nodes_[part].kind == Kind::kConcat; });
        for (size_t k = 0; k < i; ++k) parts.push_back(concat(tails[k].second, tails[k].first));
        merged = true;
      }
      std::vector<ExprId> heads;
      for (size_t k = i; k < end; ++k) heads.push_back(tails[k].second);
      parts.push_back(concat(either(std::move(heads)), tails[i].first));
    } else if (merged) {
      parts.push_back(concat(tails[i].second, tails[i].first));
    }
    i = end;
  }
}

// a{0,4} | a{2,9} becomes a{0,9}: counters that overlap are one counter.
void RegexStore::merge_repeats(std::vector<ExprId>& parts) {
  std::vector<ExprId> repeats;
  for (const ExprId part : parts) {
    if (nodes_[part].kind == Kind::kRepeat) repeats.push_back(part);
  }
  if (repeats.size() < 2) return;
  std::erase_if(parts, [&](ExprId part) { return nodes_[part].kind == Kind::kRepeat; });
  std::sort(repeats.begin(), repeats.end(), [&](ExprId x, ExprId y) {
    const Node &n = nodes_[x], &m = nodes_[y];
    return std::tie(n.a, n.b, n.c) < std::tie(m.a, m.b, m.c);
  });
  Node open = nodes_[repeats[0]];
  for (size_t i = 1; i < repeats.size(); ++i) {
    const Node next = nodes_[repeats[i]];
    if (next.a == open.a && (open.c == kUnbounded || next.b <= open.c + 1)) {
      open.c = std::max(open.c, next.c);
    } else {
      parts.push_back(repeat(open.a, open.b, open.c));
      open = next;
    }
  }
  parts.push_back(repeat(open.a, open.b, open.c));
}

// Where any number of texts of an expression may come, nothing needs to be remembered of those that
// are such texts: a pattern that has been found may be found again, and that says nothing new.
// Of many pairs it is not asked: they would take longer than all else that is done with the parts.
void RegexStore::drop_rows(std::vector<ExprId>& parts) {
  const auto is_any = [&](ExprId part) {
    const Node& node = nodes_[part];
    return node.kind == Kind::kRepeat && node.b == 0 && node.c == kUnbounded;
  };
  const auto any_parts = static_cast<size_t>(std::count_if(parts.begin(), parts.end(), is_any));
  if (any_parts * parts.size() > kMaxRowPairs) return;
  for (size_t i = 0; i < parts.size() && parts.size() > 1; ++i) {
    if (!is_any(parts[i])) continue;
    const ExprId all = parts[i];
    const ExprId one = nodes_[all].a;
    std::erase_if(parts, [&](ExprId part) { return part != all && is_row_of(part, one); });
    i = static_cast<size_t>(std::find(parts.begin(), parts.end(), all) - parts.begin());
  }
}

bool RegexStore::has_opposite(const std::vector<ExprId>& sorted) const {
  return std::any_of(sorted.begin(), sorted.end(), [&](ExprId part) {
    return nodes_[part].kind == Kind::kNot &&
           std::binary_search(sorted.begin(), sorted.end(), nodes_[part].a);
  });
}

ExprId RegexStore::either(std::vector<ExprId> parts) {
  flatten(Kind::kOr, parts);
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  std::erase(parts, kNothing);
  if (std::binary_search(parts.begin(), parts.end(), kAnything)) return kAnything;
  if (parts.empty()) return kNothing;
  if (parts.size() == 1) return parts[0];
  drop_rows(parts);
  if (++depth_ < 64) {  // the heads of tails are merged likewise, one level deeper each
    merge_classes(Kind::kOr, parts);
    merge_tails(parts);
    merge_repeats(parts);
  }
  --depth_;
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  if (parts.size() > 1 && parts[0] == kEmptyText &&
      std::any_of(parts.begin() + 1, parts.end(), [&](ExprId p) { return nullable(p); })) {
    parts.erase(parts.begin());
  }
  if (std::binary_search(parts.begin(), parts.end(), kAnything) || has_opposite(parts)) {
    return kAnything;
  }
  if (parts.size() == 1) return parts[0];
  return intern_list(Kind::kOr, parts);
}

ExprId RegexStore::both(std::vector<ExprId> parts) {
  flatten(Kind::kAnd, parts);
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  std::erase(parts, kAnything);
  if (parts.empty()) return kAnything;
  if (parts[0] == kNothing) return kNothing;
  if (parts.size() == 1) return parts[0];
  if (parts[0] == kEmptyText) {
    return std::all_of(parts.begin(), parts.end(), [&](ExprId p) { return nullable(p); })
               ? kEmptyText
               : kNothing;
  }
  const auto is_text = [&](ExprId e) {
    return nodes_[e].kind == Kind::kLiteral && nodes_[e].b <= 256;
  };
  if (const auto at = std::find_if(parts.begin(), parts.end(), is_text); at != parts.end()) {
    if (std::any_of(at + 1, parts.end(), is_text)) return kNothing;  // no text is two
    const ExprId only = *at;
    const std::string text = text_.substr(nodes_[only].a, nodes_[only].b);
    bool in_all = true;  // all are asked, as the order of parts must not matter
    for (const ExprId other : parts) in_all = (other == only || matches(other, text)) && in_all;
    return in_all ? only : kNothing;
  }
  merge_classes(Kind::kAnd, parts);
  std::sort(parts.begin(), parts.end());
  if (parts[0] == kNothing || has_opposite(parts)) return kNothing;
  if (parts.size() == 1) return parts[0];
  return has_common_length(parts) ? intern_list(Kind::kAnd, parts) : kNothing;
}

ExprId RegexStore::negation(ExprId a) {
  if (a == kNothing) return kAnything;
  if (a == kAnything) return kNothing;
  if (nodes_[a].kind == Kind::kNot) return nodes_[a].a;
  return intern(Kind::kNot, a, 0, 0, !nodes_[a].nullable, true);
}

ExprId RegexStore::repeat(ExprId a, uint32_t lo, uint32_t hi) {
  if (hi == 0 || a == kEmptyText) return kEmptyText;
  if (a == kNothing) return lo == 0 ? kEmptyText : kNothing;
  if (a == kAnything) return kAnything;
  if (lo == 1 && hi == 1) return a;
  const Node& node = nodes_[a];
  if (node.nullable) lo = 0;
  if (lo > hi) return kNothing;
  if (node.kind == Kind::kRepeat && node.b <= 1 && node.c == kUnbounded && lo <= 1) {
    return repeat(node.a, std::min(lo, node.b), kUnbounded);
  }
  if (node.kind == Kind::kClass && lo == 0 && hi == kUnbounded && sets_[node.a].size() == 256) {
    return kAnything;
  }
  return intern(Kind::kRepeat, a, lo, hi, lo == 0, node.extended);
}

ExprId RegexStore::multiple(uint32_t modulus, uint32_t remainder) {
  if (modulus <= 1) return kAnything;
  return intern(Kind::kMultiple, modulus, remainder % modulus, 0, remainder % modulus == 0, false);
}

}  // namespace skein::grammar
