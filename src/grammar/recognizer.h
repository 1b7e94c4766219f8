// Earley's algorithm over bytes, as an automaton that builds itself: rows (sets of items), sets of
// begun terminals and states are interned, so that a state is a small number and a step from it by
// a byte is computed once.
//
// A state is a list of frames: a row, and what of its terminals has been read since. Where a
// terminal may end, the row is advanced and a new frame stands beside the old one; there is no
// longest match, so a grammar means exactly what it says. A rule in last place takes the place of
// its parent (it completes what the parent would), so that lists do not grow rows. Distinct
// texts are added to a state by CompiledGrammar::exact_step.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/rules.h"

namespace skein::grammar {

using StateId = uint32_t;
inline constexpr StateId kUnknownState = 0;
inline constexpr StateId kDeadState = 1;

inline constexpr uint32_t kMaxRowItems = 2000;
inline constexpr uint32_t kMaxSeenTexts = 4096;  // distinct texts in one list

class Recognizer {
 public:
  explicit Recognizer(Rules rules);

  StateId start() const { return start_; }
  // kDeadState where the byte may not come.
  StateId step(StateId state, uint8_t byte) {
    const StateId known = transitions_[size_t{state} * classes_ + class_of_[byte]];
    return known != kUnknownState ? known : compute_step(state, class_of_[byte]);
  }
  bool may_end(StateId state) const {
    const uint32_t top = states_[state].top;
    return top != kNone && rows_[top].accepting;
  }
  bool must_end(StateId state) const { return may_end(state) && states_[state].frame_count == 0; }

  // A distinct terminal has ended right here; until its text is added, the state lets it come
  // again.
  bool pending(StateId state) const { return states_[state].pending; }
  // Two of them have ended since a text was added: what such a state allows is not all allowed.
  bool unsure(StateId state) const { return states_[state].unsure; }
  // The state with `spellings` (of the text that ended here) added to what its list has seen.
  StateId resolve(StateId state, ExprId spellings);

  // The state with counters opened that no text of `bytes` bytes can exhaust.
  StateId clamped(StateId state, uint32_t bytes);
  // Whether every text of `words` is the beginning of a terminal that has begun in `state`; `once`
  // is the same language without a limit on its length, and `longest` that limit.
  bool begins_all(StateId state, ExprId words, ExprId once, uint32_t longest);

  uint32_t state_cost(StateId state) const { return states_[state].cost; }
  RegexStore& regex() { return *rules_.regex; }
  // A row outgrew its limit, or the expressions did: the states after it cannot be trusted.
  bool failed() const { return failed_ || rules_.regex->full() || rules_.regex->question_failed(); }
  uint64_t bytes() const;
  // Forgets all states but those that a new start makes; ids from before mean nothing any more.
  void forget();

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Item {
    uint32_t position;   // in positions_
    uint32_t completes;  // the rule that its end completes
    uint32_t origin;     // the row where that rule was begun
    uint32_t count;
    uint32_t seen;
    friend auto operator<=>(const Item&, const Item&) = default;
  };
  struct Position {  // a dot in a production
    Symbol symbol;
    bool end;   // behind the last symbol
    bool last;  // the symbol is the last one
    uint32_t production;
  };
  struct Row {
    std::vector<Item> items;             // sorted by what they wait for
    std::vector<uint32_t> terminals_of;  // the first item of each group waiting for one terminal
    uint32_t rules_from = 0;             // items from here on wait for rules
    bool accepting = false;
    bool pending = false, unsure = false;
    uint32_t lexer = kNone;
  };
  struct Begun {  // a terminal that has begun
    uint32_t terminal;
    uint32_t seen;  // only of a distinct one
    ExprId rest;
    friend auto operator<=>(const Begun&, const Begun&) = default;
  };
  struct LexerStep {
    uint32_t lexer;                          // kNone: nothing goes on
    uint32_t accepted_from, accepted_count;  // in accepted_
  };
  struct Frame {
    uint32_t row, lexer;
    friend auto operator<=>(const Frame&, const Frame&) = default;
  };
  struct State {
    uint32_t frame_from, frame_count, top, cost;
    bool pending, unsure;
  };
  struct Seen {
    std::vector<ExprId> spellings;
    ExprId excluded = kNothing;
    bool pending = false, unsure = false;
  };

  void make_positions();
  void make_byte_classes();
  void make_nullable();
  void begin();
  uint32_t intern_row(std::vector<Item>& kernel);
  void close_row(uint32_t row, const std::vector<Item>& kernel);
  void predict(uint32_t row, const Item& item, const Symbol& symbol, bool last,
               std::vector<Item>& items);
  void complete(const Item& item, std::vector<Item>& items);
  void add_item(const Item& item, std::vector<Item>& items);
  void advance_row(uint32_t row, uint32_t terminal, uint32_t seen, std::vector<Item>& kernel);
  uint32_t row_lexer(uint32_t row);
  uint32_t intern_lexer(std::vector<Begun>& begun);
  const LexerStep& lexer_step(uint32_t lexer, uint32_t byte_class);
  StateId intern_state(std::span<const Frame> frames, uint32_t top);
  StateId compute_step(StateId state, uint32_t byte_class);
  StateId with_new_row(std::vector<Frame>& frames, std::vector<Item>& kernel);
  uint32_t intern_seen(Seen seen);
  uint32_t with_pending(uint32_t seen);

  Rules rules_;
  RegexStore::Mark mark_;
  bool failed_ = false;
  std::vector<Production> productions_;
  std::vector<Position> positions_;
  std::vector<uint32_t> first_position_;        // of a production
  std::vector<std::vector<uint32_t>> of_rule_;  // productions
  std::vector<char> nullable_rule_;
  std::array<uint16_t, 256> class_of_{};
  std::vector<uint8_t> byte_of_class_;
  uint32_t classes_ = 0;
  // Until a list has seen a text, bytes that the grammar itself does not tell apart act alike.
  std::vector<uint32_t> group_of_class_;
  std::vector<std::vector<uint32_t>> groups_;
  std::vector<char> coarse_lexer_;

  std::vector<Row> rows_;
  std::vector<std::vector<Begun>> lexers_;
  std::vector<uint32_t> lexer_transitions_;  // lexer x class: index in lexer_steps_ + 1
  std::vector<LexerStep> lexer_steps_;
  std::vector<std::pair<uint32_t, uint32_t>> accepted_;  // terminal, seen
  std::vector<State> states_;
  std::vector<Frame> frames_;
  std::vector<StateId> transitions_;  // state x class
  std::vector<Seen> seen_;
  std::unordered_multimap<uint64_t, uint32_t> row_ids_, lexer_ids_, state_ids_, seen_ids_;
  std::unordered_map<uint32_t, std::vector<Item>> kernels_;
  std::unordered_map<uint64_t, StateId> clamped_;
  std::vector<uint32_t> item_table_;  // finds duplicates while a row is closed
  uint64_t row_bytes_ = 0;
  StateId start_ = kDeadState;
};

}  // namespace skein::grammar
