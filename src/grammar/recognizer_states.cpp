// The lexer's side of the recognizer, and its states.
#include <algorithm>

#include "grammar/recognizer.h"

namespace skein::grammar {
namespace {

constexpr size_t kFewAlternatives = 8;  // that are asked for each by itself
constexpr uint32_t kRoomBehind = 64;    // for what must come behind the words
constexpr uint32_t kPlainStep = 64;     // items of a step that are not charged for themselves
constexpr uint32_t kStepWork = 8;       // of a step that is found for the first time, at least

}  // namespace

// What finding its transitions takes. A derivative of many alternatives costs as many lookups: they
// are charged, and a text after which too many are open fails.
uint32_t Recognizer::lexer_cost(size_t count, uint64_t width, bool fine) {
  if (width > kMaxWidth) failed_ = true;
  const uint64_t wide = width > kPlainWidth ? (width - kPlainWidth) * columns(fine) / 2 : 0;
  return static_cast<uint32_t>(
      std::min<uint64_t>(1 + count + columns(fine) / 8 + wide, UINT32_MAX));
}

uint32_t Recognizer::intern_lexer(std::vector<Begun>& begun) {
  if (begun.empty()) return kNone;
  if (!std::is_sorted(begun.begin(), begun.end())) std::sort(begun.begin(), begun.end());
  begun.erase(std::unique(begun.begin(), begun.end()), begun.end());
  const uint64_t key = words_hash<Begun>(begun);
  const auto known = lexer_ids_.find(key, [&](uint32_t id) {
    return lexers_[id].count == begun.size() &&
           std::equal(begun.begin(), begun.end(), begun_.begin() + lexers_[id].from);
  });
  if (known) return *known;
  const bool fine = std::any_of(begun.begin(), begun.end(), [&](const Begun& one) {
    return seen_[one.seen].excluded != kNothing;
  });
  const auto id = static_cast<uint32_t>(lexers_.size());
  const auto count = static_cast<uint32_t>(begun.size());
  uint64_t width = 0;
  for (const Begun& one : begun) width += regex().width(one.rest);
  lexers_.push_back({static_cast<uint32_t>(begun_.size()), count,
                     static_cast<uint32_t>(lexer_transitions_.size()),
                     lexer_cost(count, width, fine), static_cast<uint32_t>(width), fine});
  begun_.insert(begun_.end(), begun.begin(), begun.end());
  lexer_transitions_.resize(lexer_transitions_.size() + columns(fine), 0);
  lexer_ids_.add(key, id);
  return id;
}

uint32_t Recognizer::row_lexer(uint32_t row) {
  if (rows_[row].begun) return rows_[row].lexer;
  begun_room_.clear();
  regex().allow_more_questions();
  const SearchLog::Outer outer = regex().searches().begin();
  for (uint32_t i = 0; i < rows_[row].rules_from; ++i) {
    const Item item = items_[rows_[row].items_from + i];
    const uint32_t terminal = positions_[item.position].symbol.index;
    const Terminal& t = rules_.terminals[terminal];
    if (t.expression == kNothing) continue;  // a control token
    if (!t.distinct) {
      if (begun_room_.empty() || begun_room_.back().terminal != terminal) {
        begun_room_.push_back({terminal, 0, t.expression});
      }
      continue;
    }
    const ExprId excluded = seen_[item.seen].excluded;
    ExprId rest = t.expression;
    if (excluded != kNothing) rest = regex().both(rest, regex().negation(excluded));
    if (regex().live(rest) != Answer::kNo) begun_room_.push_back({terminal, item.seen, rest});
  }
  const SearchId searches = regex().searches().end(outer);
  if (hurry().late()) return kNone;
  rows_[row].begun = true;
  rows_[row].lexer = intern_lexer(begun_room_);
  rows_[row].searches = searches;
  return rows_[row].lexer;
}

// For all bytes at once that do what this one does: most of them do nothing.
Recognizer::LexerStep Recognizer::compute_lexer_step(uint32_t lexer, uint8_t byte) {
  if (!hurry().takes(kStepWork + lexers_[lexer].width)) return {kNone, 0, 0, kNoSearch};
  const uint64_t expressions = regex().work();
  begun_room_.clear();
  regex().allow_more_questions();
  const SearchLog::Outer outer = regex().searches().begin();
  const auto accepted_from = static_cast<uint32_t>(accepted_.size());
  ByteSet alike = ByteSet::all();
  for (uint32_t i = 0; i < lexers_[lexer].count; ++i) {
    const Begun one = begun_[lexers_[lexer].from + i];
    regex().keep_alike(one.rest, byte, alike);
    const ExprId rest = regex().derivative(one.rest, byte);
    if (rest == kNothing) continue;
    if (regex().nullable(rest)) accepted_.emplace_back(one.terminal, one.seen);
    if (rest != kEmptyText) begun_room_.push_back({one.terminal, one.seen, rest});
  }
  const SearchId searches = regex().searches().end(outer);
  if (hurry().late()) {
    accepted_.resize(accepted_from);
    return {kNone, 0, 0, kNoSearch};
  }
  const auto accepted_count = static_cast<uint32_t>(accepted_.size()) - accepted_from;
  const LexerStep step{intern_lexer(begun_room_), accepted_from, accepted_count, searches};
  const bool leads_nowhere =
      step.lexer == kNone && accepted_count == 0 && step.searches == kNoSearch;
  if (!leads_nowhere) lexer_steps_.push_back(step);
  const Lexer& from = lexers_[lexer];
  const uint32_t known =
      leads_nowhere ? KnownSteps::kNowhere : static_cast<uint32_t>(lexer_steps_.size());
  for (uint32_t column = 0; column < columns(from.fine); ++column) {
    if (!alike.has(byte_of_[from.fine][column])) continue;
    lexer_transitions_[from.transitions + column] = known;
  }
  hurry().takes(regex().work() - expressions);
  return step;
}

void Recognizer::split(Frame frame, std::vector<Frame>& out) {
  for (uint32_t i = 0; i < lexers_[frame.lexer].count; ++i) {
    begun_room_.assign(1, begun_[lexers_[frame.lexer].from + i]);
    out.push_back({frame.row, intern_lexer(begun_room_)});
  }
}

Recognizer::LexerStep Recognizer::end_of_only(uint32_t lexer) {
  const Begun& only = begun_[lexers_[lexer].from];
  accepted_.emplace_back(only.terminal, only.seen);
  return {kNone, static_cast<uint32_t>(accepted_.size() - 1), 1, kNoSearch};
}

bool Recognizer::same_accepted(const LexerStep& a, const LexerStep& b) const {
  return a.accepted_count == b.accepted_count &&
         std::equal(accepted_.begin() + a.accepted_from,
                    accepted_.begin() + a.accepted_from + a.accepted_count,
                    accepted_.begin() + b.accepted_from);
}

StateId Recognizer::intern_state(std::span<const Frame> frames, uint32_t top) {
  if (frames.empty() && (top == kNone || !(rows_[top].accepting || rows_[top].tokens))) {
    return kDeadState;
  }
  const uint64_t key = words_hash<Frame>(frames, top);
  const auto known = state_ids_.find(key, [&](uint32_t id) {
    const State& other = states_[id];
    return other.top == top && other.frame_count == frames.size() &&
           std::equal(frames.begin(), frames.end(), frames_.begin() + other.frame_from);
  });
  if (known) return *known;
  if (frames.size() > kMaxRowItems) failed_ = true;
  State state{};
  state.frame_from = static_cast<uint32_t>(frames_.size());
  state.frame_count = static_cast<uint32_t>(frames.size());
  state.top = top;
  state.pending = top != kNone && rows_[top].pending;
  state.unsure = top != kNone && rows_[top].unsure;
  uint64_t cost = 1 + frames.size() + (top != kNone ? rows_[top].work : 0);
  for (const Frame& frame : frames) {
    cost += lexers_[frame.lexer].width;
    state.fine = state.fine || lexers_[frame.lexer].fine;
    // A second text has begun before the first was added.
    if (!rows_[frame.row].pending || frame.lexer == rows_[frame.row].lexer) continue;
    for (const Begun& one : begun(frame.lexer)) {
      state.unsure = state.unsure || seen_[one.seen].pending;
    }
  }
  cost += columns(state.fine) / 8;
  state.cost = static_cast<uint32_t>(std::min<uint64_t>(cost, UINT32_MAX));
  state.transitions = static_cast<uint32_t>(transitions_.size());
  transitions_.resize(transitions_.size() + columns(state.fine), kUnknownState);
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  states_.push_back(state);
  const auto id = static_cast<StateId>(states_.size() - 1);
  state_ids_.add(key, id);
  return id;
}

StateId Recognizer::with_new_row(std::vector<Frame>& frames, std::vector<Item>& kernel) {
  uint32_t top = kNone;
  settle(kernel);
  if (!kernel.empty() && !failed_ && !hurry().late()) {
    top = intern_row(kernel);
    const uint32_t lexer = top != kNone ? row_lexer(top) : kNone;
    if (lexer != kNone) frames.push_back({top, lexer});
  }
  if (hurry().late()) return kDeadState;
  if (frames.size() > 1) {
    std::sort(frames.begin(), frames.end());
    frames.erase(std::unique(frames.begin(), frames.end()), frames.end());
  }
  return intern_state(frames, top);
}

StateId Recognizer::compute_step(StateId state, uint8_t byte) {
  if (!hurry().takes(kStepWork)) return kDeadState;
  const uint64_t expressions = regex().work();
  frame_room_.clear();
  kernel_room_.clear();
  const State from = states_[state];
  const SearchLog::Outer outer = regex().searches().begin();
  for (uint32_t i = 0; i < from.frame_count; ++i) {
    const Frame frame = frames_[from.frame_from + i];
    const LexerStep step = lexer_step(frame.lexer, byte);
    regex().searches().add(step.searches);
    if (step.lexer != kNone) frame_room_.push_back({frame.row, step.lexer});
    for (uint32_t k = 0; k < step.accepted_count && !failed_; ++k) {
      const auto [terminal, seen] = accepted_[step.accepted_from + k];
      advance_row(frame.row, terminal, seen, kernel_room_);
    }
  }
  const SearchId searches = regex().searches().end(outer);
  if (hurry().late()) return kDeadState;
  step_work_ = 0;
  const StateId next = failed() ? kDeadState : with_new_row(frame_room_, kernel_room_);
  if (!hurry().takes(regex().work() - expressions)) return kDeadState;
  transitions_[from.transitions + column_of_[from.fine][byte]] = next;
  const uint32_t items = step_work_ > kPlainStep ? step_work_ : 0;
  if (searches != kNoSearch || items > 0) {
    states_[state].searches = true;
    step_works_.add(transition_key(state, byte), {searches, items});
  }
  return next;
}

StateId Recognizer::behind(uint32_t row, const LexerStep& step) {
  frame_room_.clear();
  kernel_room_.clear();
  for (uint32_t k = 0; k < step.accepted_count; ++k) {
    const auto [terminal, seen] = accepted_[step.accepted_from + k];
    advance_row(row, terminal, seen, kernel_room_);
  }
  return failed() ? kDeadState : with_new_row(frame_room_, kernel_room_);
}

StateId Recognizer::step_token(StateId state, TokenId token) {
  const uint32_t top = states_[state].top;
  if (top == kNone || !rows_[top].tokens) return kDeadState;
  frame_room_.clear();
  kernel_room_.clear();
  for (uint32_t i = 0; i < rows_[top].rules_from; ++i) {
    Item next = items_[rows_[top].items_from + i];
    if (rules_.terminals[positions_[next.position].symbol.index].token != token) continue;
    ++next.position;
    kernel_room_.push_back(next);
  }
  return failed() ? kDeadState : with_new_row(frame_room_, kernel_room_);
}

void Recognizer::add_tokens(StateId state, std::vector<TokenId>& tokens) const {
  const uint32_t top = states_[state].top;
  if (top == kNone || !rows_[top].tokens) return;
  for (const Item& item : items(rows_[top]).first(rows_[top].rules_from)) {
    const TokenId token = rules_.terminals[positions_[item.position].symbol.index].token;
    if (token != kNoToken) tokens.push_back(token);
  }
}

StateId Recognizer::resolve(StateId state, ExprId spellings) {
  const State from = states_[state];
  if (!from.pending) return state;
  const Row& top = rows_[from.top];
  std::vector<Item> kernel(items_.begin() + top.kernel_from,
                           items_.begin() + top.kernel_from + top.kernel_count);
  for (Item& item : kernel) {
    if (!seen_[item.seen].pending) continue;
    Seen seen = seen_[item.seen];
    seen.spellings.push_back(spellings);
    seen.excluded = kNothing;
    seen.pending = seen.unsure = false;
    item.seen = intern_seen(std::move(seen));
  }
  std::vector<Frame> frames;
  for (uint32_t i = 0; i < from.frame_count; ++i) {
    const Frame frame = frames_[from.frame_from + i];
    if (frame.row != from.top || frame.lexer != rows_[from.top].lexer) frames.push_back(frame);
  }
  return with_new_row(frames, kernel);
}

StateId Recognizer::clamped(StateId state, uint32_t bytes) {
  if (const StateId* known = clamped_.find(state)) return *known;
  const State from = states_[state];
  std::vector<Frame> frames;
  bool changed = false;
  for (uint32_t i = 0; i < from.frame_count; ++i) {
    Frame frame = frames_[from.frame_from + i];
    std::vector<Begun> opened(begun(frame.lexer).begin(), begun(frame.lexer).end());
    bool here = false;
    for (Begun& one : opened) {
      const ExprId open = regex().clamp(one.rest, bytes);
      here = here || open != one.rest;
      one.rest = open;
    }
    if (here) frame.lexer = intern_lexer(opened);
    changed = changed || here;
    frames.push_back(frame);
  }
  StateId result = state;
  if (changed) {
    std::sort(frames.begin(), frames.end());
    frames.erase(std::unique(frames.begin(), frames.end()), frames.end());
    result = intern_state(frames, from.top);
  }
  clamped_.add(state, result);
  return result;
}

// Whether what `e` begins with may come so often that every text of `once` with at most `longest`
// characters begins like it.
bool Recognizer::repeats_all(ExprId e, ExprId once, uint32_t longest, uint64_t& work) {
  const auto counted = regex().counted(e);
  if (!counted || counted->hi < longest) return false;
  // However often it must come, its texts begin as if it might come again and again.
  const ExprId open = regex().repeat(counted->body, 0, kUnbounded);
  return regex().begins_all(open, once, work) == Answer::kYes;
}

bool Recognizer::begins_all(uint32_t lexer, ExprId words, ExprId once, uint32_t longest,
                            uint64_t& work) {
  regex().allow_more_questions();
  for (uint32_t k = 0; k < lexers_[lexer].count; ++k) {
    ExprId rest = begun_[lexers_[lexer].from + k].rest;
    if (regex().width(rest) > kAskedWidth) continue;  // the questions below cost a derivative each
    // Most terminals take but a few bytes, and then nothing more needs to be asked.
    const SearchLog::Outer outer = regex().searches().begin();
    const bool takes_text =
        regex().derivative(rest, 'a') != kNothing && regex().derivative(rest, ' ') != kNothing;
    begins_searched_.begin();
    work += search_work_of(regex().searches().end(outer), begins_searched_);
    if (!takes_text) continue;
    if (const uint32_t most = regex().most_times(rest); most != kUnbounded) {
      if (most < longest || longest > kRoomBehind) continue;  // long words are few
      rest = regex().with_at_most(rest,
                                  most - longest < kRoomBehind ? longest : longest + kRoomBehind);
    }
    if (const auto counted = regex().counted(rest)) {
      if (counted->hi < longest) continue;
      if (repeats_all(rest, once, longest, work)) return true;
      if (counted->hi != kUnbounded) continue;
    }
    // A pattern that may be found anywhere is one that has not begun yet, or one that has.
    const std::vector<ExprId> parts = regex().plain_alternatives(rest);
    bool one_repeats = false;  // all are asked, as the order of parts must not matter
    for (size_t i = 0; i < parts.size() && parts.size() <= kFewAlternatives; ++i) {
      one_repeats = repeats_all(parts[i], once, longest, work) || one_repeats;
    }
    if (one_repeats) return true;
    if (regex().begins_all(rest, once, work) == Answer::kYes) return true;
    if (regex().begins_all(rest, words, work) == Answer::kYes) return true;
  }
  return false;
}

}  // namespace skein::grammar
