// The lexer's side of the recognizer, and its states.
#include <algorithm>

#include "grammar/recognizer.h"

namespace skein::grammar {
namespace {

template <class T>
uint64_t words_hash(std::span<const T> values, uint64_t seed) {
  static_assert(sizeof(T) % 4 == 0 && std::has_unique_object_representations_v<T>);
  uint64_t h = seed + values.size() * 0x9e3779b97f4a7c15;
  const auto* words = reinterpret_cast<const uint32_t*>(values.data());
  for (size_t i = 0; i < values.size() * sizeof(T) / 4; ++i) {
    h = (h ^ words[i]) * 0xd6e8feb86659fd93;
    h ^= h >> 32;
  }
  return h;
}

}  // namespace

uint32_t Recognizer::intern_lexer(std::vector<Begun>& begun) {
  if (begun.empty()) return kNone;
  std::sort(begun.begin(), begun.end());
  begun.erase(std::unique(begun.begin(), begun.end()), begun.end());
  const uint64_t key = words_hash<Begun>(begun, 1);
  const auto [from, to] = lexer_ids_.equal_range(key);
  for (auto it = from; it != to; ++it) {
    if (lexers_[it->second] == begun) return it->second;
  }
  const auto id = static_cast<uint32_t>(lexers_.size());
  row_bytes_ += begun.size() * sizeof(Begun) + 64;
  lexers_.push_back(begun);
  coarse_lexer_.push_back(std::all_of(begun.begin(), begun.end(), [&](const Begun& one) {
    return seen_[one.seen].excluded == kNothing;
  }));
  lexer_transitions_.resize(lexers_.size() * size_t{classes_}, 0);
  lexer_ids_.emplace(key, id);
  return id;
}

uint32_t Recognizer::row_lexer(uint32_t row) {
  if (rows_[row].lexer != kNone) return rows_[row].lexer;
  std::vector<Begun> begun;
  const Row& from = rows_[row];
  for (uint32_t i = 0; i < from.rules_from; ++i) {
    const Item& item = from.items[i];
    const uint32_t terminal = positions_[item.position].symbol.index;
    const Terminal& t = rules_.terminals[terminal];
    if (!t.distinct) {
      if (begun.empty() || begun.back().terminal != terminal) {
        begun.push_back({terminal, 0, t.expression});
      }
      continue;
    }
    const ExprId excluded = seen_[item.seen].excluded;
    ExprId rest = t.expression;
    if (excluded != kNothing) rest = regex().both(rest, regex().negation(excluded));
    if (regex().live(rest) != Answer::kNo) begun.push_back({terminal, item.seen, rest});
  }
  const uint32_t lexer = intern_lexer(begun);
  rows_[row].lexer = lexer;
  return lexer;
}

const Recognizer::LexerStep& Recognizer::lexer_step(uint32_t lexer, uint32_t byte_class) {
  const size_t at = size_t{lexer} * classes_ + byte_class;
  if (lexer_transitions_[at] != 0) return lexer_steps_[lexer_transitions_[at] - 1];
  const uint8_t byte = byte_of_class_[byte_class];
  std::vector<Begun> next;
  const auto accepted_from = static_cast<uint32_t>(accepted_.size());
  const size_t count = lexers_[lexer].size();
  for (size_t i = 0; i < count; ++i) {
    const Begun begun = lexers_[lexer][i];
    const ExprId rest = regex().derivative(begun.rest, byte);
    if (rest == kNothing) continue;
    if (regex().nullable(rest)) accepted_.emplace_back(begun.terminal, begun.seen);
    if (rest != kEmptyText) next.push_back({begun.terminal, begun.seen, rest});
  }
  const auto accepted_count = static_cast<uint32_t>(accepted_.size()) - accepted_from;
  const uint32_t next_lexer = intern_lexer(next);
  lexer_steps_.push_back({next_lexer, accepted_from, accepted_count});
  const auto step = static_cast<uint32_t>(lexer_steps_.size());
  lexer_transitions_[at] = step;
  if (coarse_lexer_[lexer]) {
    for (const uint32_t alike : groups_[group_of_class_[byte_class]]) {
      lexer_transitions_[size_t{lexer} * classes_ + alike] = step;
    }
  }
  return lexer_steps_.back();
}

StateId Recognizer::intern_state(std::span<const Frame> frames, uint32_t top) {
  if (frames.empty() && (top == kNone || !rows_[top].accepting)) return kDeadState;
  const uint64_t key = words_hash<Frame>(frames, top);
  const auto [from, to] = state_ids_.equal_range(key);
  for (auto it = from; it != to; ++it) {
    const State& other = states_[it->second];
    if (other.top == top && other.frame_count == frames.size() &&
        std::equal(frames.begin(), frames.end(), frames_.begin() + other.frame_from)) {
      return it->second;
    }
  }
  uint32_t cost = 1 + static_cast<uint32_t>(frames.size());
  if (top != kNone) cost += static_cast<uint32_t>(rows_[top].items.size());
  for (const Frame& frame : frames) cost += static_cast<uint32_t>(lexers_[frame.lexer].size());
  const bool pending = top != kNone && rows_[top].pending;
  bool unsure = top != kNone && rows_[top].unsure;
  for (const Frame& frame : frames) {  // a second text has begun before the first was added
    if (!rows_[frame.row].pending || frame.lexer == rows_[frame.row].lexer) continue;
    for (const Begun& begun : lexers_[frame.lexer]) unsure = unsure || seen_[begun.seen].pending;
  }
  states_.push_back({static_cast<uint32_t>(frames_.size()), static_cast<uint32_t>(frames.size()),
                     top, cost, pending, unsure});
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  transitions_.resize(states_.size() * size_t{classes_}, kUnknownState);
  const auto id = static_cast<StateId>(states_.size() - 1);
  state_ids_.emplace(key, id);
  return id;
}

StateId Recognizer::with_new_row(std::vector<Frame>& frames, std::vector<Item>& kernel) {
  uint32_t top = kNone;
  if (!kernel.empty()) {
    top = intern_row(kernel);
    const uint32_t lexer = row_lexer(top);
    if (lexer != kNone) frames.push_back({top, lexer});
  }
  std::sort(frames.begin(), frames.end());
  frames.erase(std::unique(frames.begin(), frames.end()), frames.end());
  return intern_state(frames, top);
}

StateId Recognizer::compute_step(StateId state, uint32_t byte_class) {
  std::vector<Frame> frames;
  std::vector<Item> kernel;
  const State from = states_[state];
  bool coarse = true;
  for (uint32_t i = 0; i < from.frame_count; ++i) {
    const Frame frame = frames_[from.frame_from + i];
    coarse = coarse && coarse_lexer_[frame.lexer] != 0;
    const LexerStep step = lexer_step(frame.lexer, byte_class);
    if (step.lexer != kNone) frames.push_back({frame.row, step.lexer});
    for (uint32_t k = 0; k < step.accepted_count; ++k) {
      const auto [terminal, seen] = accepted_[step.accepted_from + k];
      advance_row(frame.row, terminal, seen, kernel);
    }
  }
  const StateId next = failed() ? kDeadState : with_new_row(frames, kernel);
  transitions_[size_t{state} * classes_ + byte_class] = next;
  if (coarse) {
    for (const uint32_t alike : groups_[group_of_class_[byte_class]]) {
      transitions_[size_t{state} * classes_ + alike] = next;
    }
  }
  return next;
}

StateId Recognizer::resolve(StateId state, ExprId spellings) {
  const State from = states_[state];
  if (!from.pending) return state;
  std::vector<Item> kernel = kernels_[from.top];
  for (Item& item : kernel) {
    if (!seen_[item.seen].pending) continue;
    Seen seen = seen_[item.seen];
    seen.spellings.push_back(spellings);
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
  if (const auto found = clamped_.find(state); found != clamped_.end()) return found->second;
  const State from = states_[state];
  std::vector<Frame> frames;
  bool changed = false;
  for (uint32_t i = 0; i < from.frame_count; ++i) {
    Frame frame = frames_[from.frame_from + i];
    std::vector<Begun> begun = lexers_[frame.lexer];
    bool here = false;
    for (Begun& one : begun) {
      const ExprId open = regex().clamp(one.rest, bytes);
      here = here || open != one.rest;
      one.rest = open;
    }
    if (here) frame.lexer = intern_lexer(begun);
    changed = changed || here;
    frames.push_back(frame);
  }
  StateId result = state;
  if (changed) {
    std::sort(frames.begin(), frames.end());
    result = intern_state(frames, from.top);
  }
  clamped_.emplace(state, result);
  return result;
}

bool Recognizer::begins_all(StateId state, ExprId words, ExprId once, uint32_t longest) {
  const State& from = states_[state];
  for (uint32_t i = 0; i < from.frame_count; ++i) {
    const uint32_t lexer = frames_[from.frame_from + i].lexer;
    for (size_t k = 0; k < lexers_[lexer].size(); ++k) {
      const ExprId rest = lexers_[lexer][k].rest;
      ExprId body = kNothing;
      uint32_t hi = 0;
      const bool counted = regex().leading_repeat(rest, body, hi) && hi != kUnbounded;
      const ExprId open = counted ? regex().repeat(body, 0, kUnbounded) : rest;
      if (hi >= longest || !counted) {
        if (regex().begins_all(open, once) == Answer::kYes) return true;
      }
      if (!counted && regex().begins_all(rest, words) == Answer::kYes) return true;
    }
  }
  return false;
}

}  // namespace skein::grammar
