#include "grammar/recognizer.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace skein::grammar {
namespace {

constexpr uint32_t kRoot = UINT32_MAX;          // what completes the whole text
constexpr uint64_t kMaxHistory = kMaxMaskWork;  // of a row that is made again with all below it

}  // namespace

Recognizer::Recognizer(Rules rules, const WorkLimits& limits) : rules_(std::move(rules)), mark_{} {
  std::vector<uint8_t> empty;
  for (const Terminal& terminal : rules_.terminals) {
    empty.push_back(rules_.regex->nullable(terminal.expression) ? 1 : 0);
  }
  nullable_rule_ = rules_made_of(rules_, empty);
  make_positions();
  make_byte_groups();
  mark_ = rules_.regex->mark();
  rules_.regex->limit_expressions(
      std::min(rules_.regex->size() + limits.expressions, 2 * kMaxExpressions));
  // Of one step: those of a mask and a token are counted by who makes it.
  rules_.regex->limit_questions(static_cast<uint32_t>(limits.mask / kSearchStepWork));
  begin();
}

void Recognizer::make_positions() {
  of_rule_.resize(rules_.rules.size());
  for (uint32_t rule = 0; rule < rules_.rules.size(); ++rule) {
    for (Production& production : rules_.rules[rule]) {
      of_rule_[rule].push_back(static_cast<uint32_t>(productions_.size()));
      first_position_.push_back(static_cast<uint32_t>(positions_.size()));
      const size_t n = production.symbols.size();
      SKEIN_CHECK(n > 0 || production.least == 0, "what is empty cannot depend on a count");
      for (size_t i = 0; i < n; ++i) {
        SKEIN_CHECK(!production.symbols[i].inherit || i + 1 == n, "only the last symbol inherits");
        positions_.push_back({production.symbols[i], false, i + 1 == n});
      }
      positions_.push_back({Symbol::rule(0), true, false});
      productions_.push_back(std::move(production));
    }
  }
  rules_.rules.clear();
}

// Bytes that no expression tells apart are one group.
void Recognizer::make_byte_groups() {
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
  std::array<uint32_t, 1024> number{};  // and 1
  for (uint32_t b = 0; b < 256; ++b) {
    const bool alone = single.has(static_cast<uint8_t>(b)) || count >= 256;
    uint32_t& group = number[alone ? 512 + b : alike[b]];
    if (group == 0) group = ++groups_;
    column_of_[0][b] = static_cast<uint8_t>(group - 1);
    byte_of_[0][group - 1] = static_cast<uint8_t>(b);
    column_of_[1][b] = byte_of_[1][b] = static_cast<uint8_t>(b);
  }
}

void Recognizer::begin() {
  rows_.clear();
  items_.clear();
  lexers_.clear();
  begun_.clear();
  lexer_transitions_.clear();
  lexer_steps_.assign(1, {kNone, 0, 0, kNoSearch});
  accepted_.clear();
  frames_.clear();
  row_ids_.clear();
  lexer_ids_.clear();
  state_ids_.clear();
  seen_ids_.clear();
  clamped_.clear();
  step_works_.clear();
  seen_bytes_ = 0;
  failed_ = false;
  states_.assign(2, {0, 0, kNone, 0, 0, false, false, false, false});
  transitions_.assign(groups_, kDeadState);
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
  // What is only cleared keeps its memory, and bytes() would stay above the budget for ever.
  const auto release = [](auto&... vectors) {
    (std::decay_t<decltype(vectors)>().swap(vectors), ...);
  };
  release(rows_, items_, lexers_, begun_, lexer_transitions_, lexer_steps_, accepted_, states_,
          frames_, transitions_, seen_);
  begin();
}

uint64_t Recognizer::bytes() const {
  return rules_.regex->bytes() + seen_bytes_ + rows_.capacity() * sizeof(Row) +
         items_.capacity() * sizeof(Item) + lexers_.capacity() * sizeof(Lexer) +
         begun_.capacity() * sizeof(Begun) + lexer_transitions_.capacity() * sizeof(uint32_t) +
         lexer_steps_.capacity() * sizeof(LexerStep) + accepted_.capacity() * sizeof(accepted_[0]) +
         states_.capacity() * sizeof(State) + frames_.capacity() * sizeof(Frame) +
         transitions_.capacity() * sizeof(StateId) + row_ids_.bytes() + lexer_ids_.bytes() +
         state_ids_.bytes() + seen_ids_.bytes() + clamped_.bytes() + step_works_.bytes();
}

uint32_t Recognizer::intern_seen(Seen seen) {
  std::sort(seen.spellings.begin(), seen.spellings.end());
  seen.spellings.erase(std::unique(seen.spellings.begin(), seen.spellings.end()),
                       seen.spellings.end());
  const uint64_t key = words_hash<ExprId>(
      seen.spellings, (seen.pending ? uint64_t{2} : 0) + (seen.unsure ? uint64_t{1} : 0));
  const auto known = seen_ids_.find(key, [&](uint32_t id) {
    const Seen& other = seen_[id];
    return other.spellings == seen.spellings && other.pending == seen.pending &&
           other.unsure == seen.unsure;
  });
  if (known) return *known;
  if (seen.excluded == kNothing) seen.excluded = rules_.regex->either(seen.spellings);
  uint64_t bytes = 0;
  for (const ExprId text : seen.spellings) bytes += 16 + rules_.regex->literal_length(text);
  seen.bytes = static_cast<uint32_t>(std::min<uint64_t>(bytes, kMaxStateBytes + 1));
  seen_bytes_ += sizeof(Seen) + seen.spellings.size() * sizeof(ExprId);
  seen_.push_back(std::move(seen));
  const auto id = static_cast<uint32_t>(seen_.size() - 1);
  seen_ids_.add(key, id);
  return id;
}

uint64_t Recognizer::seen_count(StateId state) const {
  const uint32_t top = states_[state].top;
  if (top == kNone) return 0;
  uint64_t count = 0;
  for (uint32_t i = 0; i < rows_[top].kernel_count; ++i) {
    count += seen_[items_[rows_[top].kernel_from + i].seen].spellings.size();
  }
  return count;
}

uint32_t Recognizer::with_pending(uint32_t seen) {
  Seen copy = seen_[seen];
  copy.unsure = copy.unsure || copy.pending;
  copy.pending = true;
  return intern_seen(std::move(copy));
}

void Recognizer::add_item(const Item& item) {
  if (!hurry().takes(1)) return;
  ++all_row_work_;
  if (++row_work_ > kMaxRowWork) {
    failed_ = true;
    return;
  }
  if (open_items_.size() * 2 >= item_table_.size()) {
    item_table_.assign(item_table_.size() * 4, 0);
    for (uint32_t i = 0; i < open_items_.size(); ++i) {
      size_t slot = words_hash<Item>({&open_items_[i], 1}) & (item_table_.size() - 1);
      while (item_table_[slot] != 0) slot = (slot + 1) & (item_table_.size() - 1);
      item_table_[slot] = i + 1;
    }
  }
  const size_t mask = item_table_.size() - 1;
  size_t at = words_hash<Item>({&item, 1}) & mask;
  for (; item_table_[at] != 0; at = (at + 1) & mask) {
    if (open_items_[item_table_[at] - 1] == item) return;
  }
  if (open_items_.size() >= kMaxRowItems) {
    failed_ = true;
    return;
  }
  open_items_.push_back(item);
  item_table_[at] = static_cast<uint32_t>(open_items_.size());
}

void Recognizer::predict(uint32_t row, const Item& item, const Symbol& symbol, bool last) {
  const uint32_t count = symbol.inherit ? item.count : 0;
  const uint32_t seen = symbol.inherit ? item.seen : 0;
  for (const uint32_t id : of_rule_[symbol.index]) {
    const Production& production = productions_[id];
    if (count < production.least || count > production.most) continue;
    const uint32_t raised =
        production.raise_to > 0 ? std::min(count + 1, production.raise_to) : count;
    add_item({first_position_[id], last ? item.completes : symbol.index, last ? item.origin : row,
              raised, seen});
  }
}

void Recognizer::complete(const Item& item) {
  const Row& origin = rows_[item.origin];
  const std::span<const Item> waiting = items(origin).subspan(origin.rules_from);
  auto at = std::lower_bound(
      waiting.begin(), waiting.end(), item.completes,
      [&](const Item& one, uint32_t rule) { return positions_[one.position].symbol.index < rule; });
  for (; at != waiting.end() && positions_[at->position].symbol.index == item.completes; ++at) {
    if (hurry().late()) return;
    Item next = *at;
    ++next.position;
    add_item(next);
  }
}

void Recognizer::sort_items() {
  std::erase_if(open_items_, [&](const Item& item) { return positions_[item.position].end; });
  std::sort(open_items_.begin(), open_items_.end(), [&](const Item& a, const Item& b) {
    const Symbol &x = positions_[a.position].symbol, &y = positions_[b.position].symbol;
    return std::tie(x.kind, x.index, a) < std::tie(y.kind, y.index, b);
  });
}

void Recognizer::begin_items() {
  open_items_.clear();
  item_table_.assign(64, 0);
  row_work_ = 0;
}

// Puts what waits for a rule in the place of items that complete it, unless these take less: a row
// that was begun for the sake of a rule alone is then not needed any more.
void Recognizer::settle(std::vector<Item>& kernel) {
  step_work_ = static_cast<uint32_t>(kernel.size());
  const auto completes_rule = [&](const Item& item) {
    return positions_[item.position].end && item.completes != kRoot;
  };
  if (std::none_of(kernel.begin(), kernel.end(), completes_rule)) return;
  begin_items();
  for (const Item& item : kernel) add_item(item);
  for (size_t i = 0; i < open_items_.size() && !failed_ && !hurry().late(); ++i) {
    if (const Item item = open_items_[i]; completes_rule(item)) complete(item);
  }
  if (hurry().late()) return;
  step_work_ += row_work_;
  std::vector<Item> settled(open_items_);
  std::erase_if(settled, completes_rule);
  if (row_bytes(settled) <= row_bytes(kernel)) kernel = std::move(settled);
}

// Predicts and completes until nothing is new. Rules that may be empty are passed as well as
// predicted, so that a completion within its own row is never looked for. A row that is late is
// left in the middle.
void Recognizer::close_row(uint32_t row, std::span<const Item> kernel) {
  begin_items();
  Row target = rows_[row];
  target.bytes = row_bytes(kernel);
  if (target.bytes > kMaxStateBytes) failed_ = true;
  for (const Item& item : kernel) {
    add_item(item);
    if (item.origin != kNone) {
      target.history = std::max(target.history, rows_[item.origin].history);
    }
    target.pending = target.pending || seen_[item.seen].pending;
    target.unsure = target.unsure || seen_[item.seen].unsure;
  }
  for (size_t i = 0; i < open_items_.size() && !hurry().late(); ++i) {
    const Item item = open_items_[i];
    const Position& position = positions_[item.position];
    if (position.end) {
      if (item.completes == kRoot) {
        target.accepting = true;
      } else if (item.origin != row) {
        complete(item);
      }
      continue;
    }
    bool empty = false;
    if (position.symbol.kind == Symbol::Kind::kRule) {
      predict(row, item, position.symbol, position.last);
      empty = nullable_rule_[position.symbol.index] != 0;
    } else {
      empty = rules_.regex->nullable(rules_.terminals[position.symbol.index].expression);
    }
    if (empty) {
      Item next = item;
      ++next.position;
      add_item(next);
    }
  }
  if (hurry().late()) return;
  sort_items();
  target.work = row_work_;
  target.history += row_work_;
  if (target.history > kMaxHistory) failed_ = true;
  target.items_from = static_cast<uint32_t>(items_.size());
  target.items_count = static_cast<uint32_t>(open_items_.size());
  for (const Item& item : open_items_) {
    const Symbol& symbol = positions_[item.position].symbol;
    if (symbol.kind == Symbol::Kind::kRule) break;
    ++target.rules_from;
    target.tokens = target.tokens || rules_.terminals[symbol.index].token != kNoToken;
    target.pending = target.pending || seen_[item.seen].pending;
    target.unsure = target.unsure || seen_[item.seen].unsure;
  }
  items_.insert(items_.end(), open_items_.begin(), open_items_.end());
  rows_[row] = target;
}

// What the longest chain of open rows and the texts that their lists have seen take.
uint32_t Recognizer::row_bytes(std::span<const Item> kernel) const {
  uint32_t below = 0;
  for (const Item& item : kernel) {
    const uint32_t origin = item.origin != kNone ? rows_[item.origin].bytes : 0;
    below = std::max(below, origin + seen_[item.seen].bytes);
  }
  return below + static_cast<uint32_t>(kernel.size() * sizeof(Item));
}

uint32_t Recognizer::intern_row(std::vector<Item>& kernel) {
  std::sort(kernel.begin(), kernel.end());
  kernel.erase(std::unique(kernel.begin(), kernel.end()), kernel.end());
  const uint64_t key = words_hash<Item>(kernel);
  const auto known = row_ids_.find(key, [&](uint32_t id) {
    const Row& other = rows_[id];
    return other.kernel_count == kernel.size() &&
           std::equal(kernel.begin(), kernel.end(), items_.begin() + other.kernel_from);
  });
  if (known) return *known;
  const auto id = static_cast<uint32_t>(rows_.size());
  rows_.push_back({.kernel_from = static_cast<uint32_t>(items_.size()),
                   .kernel_count = static_cast<uint32_t>(kernel.size())});
  items_.insert(items_.end(), kernel.begin(), kernel.end());
  close_row(id, kernel);
  if (hurry().late()) {
    items_.resize(rows_.back().kernel_from);
    rows_.pop_back();
    return kNone;
  }
  row_ids_.add(key, id);  // behind what may run out of memory: a row that is found is whole
  return id;
}

void Recognizer::advance_row(uint32_t row, uint32_t terminal, uint32_t seen,
                             std::vector<Item>& kernel) {
  const std::span<const Item> waiting = items(rows_[row]).first(rows_[row].rules_from);
  auto at = std::lower_bound(
      waiting.begin(), waiting.end(), terminal,
      [&](const Item& item, uint32_t t) { return positions_[item.position].symbol.index < t; });
  const bool distinct = rules_.terminals[terminal].distinct;
  for (; at != waiting.end() && positions_[at->position].symbol.index == terminal; ++at) {
    if (distinct && at->seen != seen) continue;
    Item next = *at;
    ++next.position;
    if (distinct) next.seen = with_pending(seen);
    kernel.push_back(next);
  }
  if (kernel.size() > kMaxRowWork) failed_ = true;
}

}  // namespace skein::grammar
