#include "grammar/recognizer.h"

#include <algorithm>

#include "base/check.h"

namespace skein::grammar {
namespace {

constexpr uint32_t kRoot = UINT32_MAX;  // what completes the whole text

uint64_t mix_words(std::span<const uint32_t> words) {
  uint64_t h = words.size() * 0x9e3779b97f4a7c15;
  for (const uint32_t word : words) {
    h = (h ^ word) * 0xd6e8feb86659fd93;
    h ^= h >> 32;
  }
  return h;
}

template <class T>
uint64_t hash_of(std::span<const T> values) {
  static_assert(sizeof(T) % 4 == 0 && std::has_unique_object_representations_v<T>);
  return mix_words(
      {reinterpret_cast<const uint32_t*>(values.data()), values.size() * sizeof(T) / 4});
}

}  // namespace

Recognizer::Recognizer(Rules rules) : rules_(std::move(rules)), mark_{} {
  make_positions();
  make_nullable();
  make_byte_classes();
  mark_ = rules_.regex->mark();
  rules_.regex->allow_more_expressions(kMaxExpressions);  // for derivatives
  begin();
}

void Recognizer::make_positions() {
  of_rule_.resize(rules_.rules.size());
  for (uint32_t rule = 0; rule < rules_.rules.size(); ++rule) {
    for (Production& production : rules_.rules[rule]) {
      const auto id = static_cast<uint32_t>(productions_.size());
      of_rule_[rule].push_back(id);
      first_position_.push_back(static_cast<uint32_t>(positions_.size()));
      const size_t n = production.symbols.size();
      SKEIN_CHECK(n > 0 || production.least == 0, "what is empty cannot depend on a count");
      for (size_t i = 0; i < n; ++i) {
        SKEIN_CHECK(!production.symbols[i].inherit || i + 1 == n, "only the last symbol inherits");
        positions_.push_back({production.symbols[i], false, i + 1 == n, id});
      }
      positions_.push_back({Symbol::rule(0), true, false, id});
      productions_.push_back(std::move(production));
    }
  }
  rules_.rules.clear();
}

void Recognizer::make_nullable() {
  nullable_rule_.assign(of_rule_.size(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t rule = 0; rule < of_rule_.size(); ++rule) {
      if (nullable_rule_[rule]) continue;
      for (const uint32_t production : of_rule_[rule]) {
        const auto& symbols = productions_[production].symbols;
        const bool empty = std::all_of(symbols.begin(), symbols.end(), [&](const Symbol& s) {
          return s.kind == Symbol::Kind::kTerminal
                     ? rules_.regex->nullable(rules_.terminals[s.index].expression)
                     : nullable_rule_[s.index] != 0;
        });
        if (!empty) continue;
        nullable_rule_[rule] = 1;
        changed = true;
        break;
      }
    }
  }
}

// Bytes that no expression tells apart are one class. Distinct texts bring expressions of their own
// later, so with them every byte is a class, and those that are alike until then are a group.
void Recognizer::make_byte_classes() {
  const bool distinct = std::any_of(rules_.terminals.begin(), rules_.terminals.end(),
                                    [](const Terminal& t) { return t.distinct; });
  ByteSet single = ByteSet::of("0123456789");  // multiples look at digits
  for (const char c : rules_.regex->literal_bytes()) single.add(static_cast<uint8_t>(c));
  std::array<uint32_t, 256> alike{};
  uint32_t count = 1;
  for (const ByteSet& set : rules_.regex->sets()) {
    std::array<uint32_t, 512> inside{}, total{}, moved{};
    for (uint32_t b = 0; b < 256; ++b) {
      ++total[alike[b]];
      if (set.has(static_cast<uint8_t>(b))) ++inside[alike[b]];
    }
    for (uint32_t b = 0; b < 256; ++b) {
      const uint32_t c = alike[b];
      if (!set.has(static_cast<uint8_t>(b)) || inside[c] == total[c]) continue;
      if (moved[c] == 0) moved[c] = count++;
      alike[b] = moved[c];
    }
    if (count >= 256) break;  // every byte stands alone, or will by the line below
  }
  std::vector<int32_t> number(1024, -1);
  for (uint32_t b = 0; b < 256; ++b) {
    const bool alone = single.has(static_cast<uint8_t>(b)) || count >= 256;
    int32_t& id = number[alone ? 512 + b : alike[b]];
    const bool first = id < 0;
    if (first) {
      id = static_cast<int32_t>(groups_.size());
      groups_.emplace_back();
    }
    if (first || distinct) {
      groups_[static_cast<size_t>(id)].push_back(classes_);
      group_of_class_.push_back(static_cast<uint32_t>(id));
      byte_of_class_.push_back(static_cast<uint8_t>(b));
      class_of_[b] = static_cast<uint16_t>(classes_++);
    } else {
      class_of_[b] = static_cast<uint16_t>(groups_[static_cast<size_t>(id)][0]);
    }
  }
}

void Recognizer::begin() {
  rows_.clear();
  lexers_.clear();
  coarse_lexer_.clear();
  lexer_transitions_.clear();
  lexer_steps_.clear();
  accepted_.clear();
  frames_.clear();
  row_ids_.clear();
  lexer_ids_.clear();
  state_ids_.clear();
  seen_ids_.clear();
  kernels_.clear();
  clamped_.clear();
  row_bytes_ = 0;
  failed_ = false;
  states_.assign(2, {0, 0, kNone, 0, false, false});
  transitions_.assign(size_t{2} * classes_, kDeadState);
  seen_.clear();
  intern_seen({});
  std::vector<Item> kernel;
  for (const uint32_t production : of_rule_[rules_.start]) {
    if (productions_[production].least > 0) continue;
    kernel.push_back({first_position_[production], kRoot, kNone,
                      productions_[production].raise_to > 0 ? 1u : 0u, 0});
  }
  std::vector<Frame> frames;
  start_ = with_new_row(frames, kernel);
}

void Recognizer::forget() {
  rules_.regex->forget_after(mark_);
  begin();
}

uint64_t Recognizer::bytes() const {
  return rules_.regex->bytes() + row_bytes_ + lexer_transitions_.capacity() * 4 +
         transitions_.capacity() * 4 + states_.capacity() * sizeof(State) +
         frames_.capacity() * sizeof(Frame) + lexer_steps_.capacity() * sizeof(LexerStep) +
         (row_ids_.size() + lexer_ids_.size() + state_ids_.size() + clamped_.size()) * 40;
}

uint32_t Recognizer::intern_seen(Seen seen) {
  std::sort(seen.spellings.begin(), seen.spellings.end());
  seen.spellings.erase(std::unique(seen.spellings.begin(), seen.spellings.end()),
                       seen.spellings.end());
  const uint64_t key = hash_of<ExprId>(seen.spellings) * 4 + seen.pending * 2 + seen.unsure;
  const auto [from, to] = seen_ids_.equal_range(key);
  for (auto it = from; it != to; ++it) {
    const Seen& other = seen_[it->second];
    if (other.spellings == seen.spellings && other.pending == seen.pending &&
        other.unsure == seen.unsure) {
      return it->second;
    }
  }
  if (seen.spellings.size() > kMaxSeenTexts) failed_ = true;
  seen.excluded = rules_.regex->either(seen.spellings);
  row_bytes_ += sizeof(Seen) + seen.spellings.size() * 4;
  seen_.push_back(std::move(seen));
  const auto id = static_cast<uint32_t>(seen_.size() - 1);
  seen_ids_.emplace(key, id);
  return id;
}

uint32_t Recognizer::with_pending(uint32_t seen) {
  Seen copy = seen_[seen];
  copy.unsure = copy.unsure || copy.pending;
  copy.pending = true;
  return intern_seen(std::move(copy));
}

void Recognizer::add_item(const Item& item, std::vector<Item>& items) {
  if (items.size() * 2 >= item_table_.size()) {
    item_table_.assign(item_table_.size() * 4, 0);
    for (uint32_t i = 0; i < items.size(); ++i) {
      size_t slot = hash_of<Item>({&items[i], 1}) & (item_table_.size() - 1);
      while (item_table_[slot] != 0) slot = (slot + 1) & (item_table_.size() - 1);
      item_table_[slot] = i + 1;
    }
  }
  const size_t mask = item_table_.size() - 1;
  size_t at = hash_of<Item>({&item, 1}) & mask;
  for (; item_table_[at] != 0; at = (at + 1) & mask) {
    if (items[item_table_[at] - 1] == item) return;
  }
  if (items.size() >= kMaxRowItems) {
    failed_ = true;
    return;
  }
  items.push_back(item);
  item_table_[at] = static_cast<uint32_t>(items.size());
}

void Recognizer::predict(uint32_t row, const Item& item, const Symbol& symbol, bool last,
                         std::vector<Item>& items) {
  const uint32_t count = symbol.inherit ? item.count : 0;
  const uint32_t seen = symbol.inherit ? item.seen : 0;
  for (const uint32_t id : of_rule_[symbol.index]) {
    const Production& production = productions_[id];
    if (count < production.least || count > production.most) continue;
    const uint32_t raised =
        production.raise_to > 0 ? std::min(count + 1, production.raise_to) : count;
    add_item({first_position_[id], last ? item.completes : symbol.index, last ? item.origin : row,
              raised, seen},
             items);
  }
}

void Recognizer::complete(const Item& item, std::vector<Item>& items) {
  const Row& origin = rows_[item.origin];
  const auto waits_for = [&](const Item& waiting, uint32_t rule) {
    return positions_[waiting.position].symbol.index < rule;
  };
  auto at = std::lower_bound(origin.items.begin() + origin.rules_from, origin.items.end(),
                             item.completes, waits_for);
  for (; at != origin.items.end() && positions_[at->position].symbol.index == item.completes;
       ++at) {
    Item next = *at;
    ++next.position;
    add_item(next, items);
  }
}

// Predicts and completes until nothing is new. Rules that may be empty are passed as well as
// predicted, so that a completion within its own row is never looked for.
void Recognizer::close_row(uint32_t row, const std::vector<Item>& kernel) {
  std::vector<Item> items;
  item_table_.assign(64, 0);
  for (const Item& item : kernel) add_item(item, items);
  bool accepting = false;
  for (size_t i = 0; i < items.size(); ++i) {
    const Item item = items[i];
    const Position& position = positions_[item.position];
    if (position.end) {
      if (item.completes == kRoot) {
        accepting = true;
      } else if (item.origin != row) {
        complete(item, items);
      }
      continue;
    }
    bool empty = false;
    if (position.symbol.kind == Symbol::Kind::kRule) {
      predict(row, item, position.symbol, position.last, items);
      empty = nullable_rule_[position.symbol.index] != 0;
    } else {
      empty = rules_.regex->nullable(rules_.terminals[position.symbol.index].expression);
    }
    if (empty) {
      Item next = item;
      ++next.position;
      add_item(next, items);
    }
  }
  std::erase_if(items, [&](const Item& item) { return positions_[item.position].end; });
  const auto order = [&](const Item& a, const Item& b) {
    const Symbol &x = positions_[a.position].symbol, &y = positions_[b.position].symbol;
    return std::tie(x.kind, x.index, a) < std::tie(y.kind, y.index, b);
  };
  std::sort(items.begin(), items.end(), order);
  Row& target = rows_[row];
  target.accepting = accepting;
  for (uint32_t i = 0; i < items.size(); ++i) {
    const Symbol& symbol = positions_[items[i].position].symbol;
    if (symbol.kind == Symbol::Kind::kRule) break;
    target.rules_from = i + 1;
    if (i == 0 || positions_[items[i - 1].position].symbol.index != symbol.index) {
      target.terminals_of.push_back(i);
    }
    target.pending = target.pending || seen_[items[i].seen].pending;
    target.unsure = target.unsure || seen_[items[i].seen].unsure;
  }
  for (const Item& item : kernel) {
    target.pending = target.pending || seen_[item.seen].pending;
    target.unsure = target.unsure || seen_[item.seen].unsure;
  }
  target.items = std::move(items);
  row_bytes_ +=
      sizeof(Row) + target.items.capacity() * sizeof(Item) + kernel.size() * sizeof(Item) + 80;
}

uint32_t Recognizer::intern_row(std::vector<Item>& kernel) {
  std::sort(kernel.begin(), kernel.end());
  kernel.erase(std::unique(kernel.begin(), kernel.end()), kernel.end());
  const uint64_t key = hash_of<Item>(kernel);
  const auto [from, to] = row_ids_.equal_range(key);
  for (auto it = from; it != to; ++it) {
    if (kernels_[it->second] == kernel) return it->second;
  }
  const auto id = static_cast<uint32_t>(rows_.size());
  rows_.emplace_back();
  row_ids_.emplace(key, id);
  kernels_[id] = kernel;
  close_row(id, kernel);
  return id;
}

void Recognizer::advance_row(uint32_t row, uint32_t terminal, uint32_t seen,
                             std::vector<Item>& kernel) {
  const Row& from = rows_[row];
  const auto begin = std::lower_bound(
      from.items.begin(), from.items.begin() + from.rules_from, terminal,
      [&](const Item& item, uint32_t t) { return positions_[item.position].symbol.index < t; });
  const bool distinct = rules_.terminals[terminal].distinct;
  for (auto it = begin; it != from.items.begin() + from.rules_from; ++it) {
    if (positions_[it->position].symbol.index != terminal) break;
    if (distinct && it->seen != seen) continue;
    Item next = *it;
    ++next.position;
    if (distinct) next.seen = with_pending(seen);
    kernel.push_back(next);
  }
}

}  // namespace skein::grammar
