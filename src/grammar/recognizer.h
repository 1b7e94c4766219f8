// Earley's algorithm over bytes, as an automaton that builds itself: rows (sets of items), sets of
// begun terminals (lexers) and states are interned, so that a state is a small number and a step
// from it by a byte is computed once.
//
// A state is a list of frames: a row, and what of its terminals has been read since. Where a
// terminal may end, the row is advanced and a new frame stands beside the old one; there is no
// longest match, so a grammar means exactly what it says. A rule in last place takes the place of
// its parent (it completes what the parent would), and what a row is made of stands behind all
// rules that have just been completed, so that lists do not grow rows. Distinct
// texts are added to a state by CompiledGrammar::exact_step. A state on its own is small (its rows
// and texts have kMaxStateBytes), so the automaton can be forgotten at any time and the states that
// are still needed made again: no text is read twice.
//
// What a frame allows does not depend on the frames beside it, and as long as a terminal goes on,
// not on its row either: LexerTokens rests on that.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "grammar/flat_table.h"
#include "grammar/rules.h"

namespace skein::grammar {

using StateId = uint32_t;
inline constexpr StateId kUnknownState = 0;
inline constexpr StateId kDeadState = 1;

inline constexpr uint32_t kMaxRowItems = 2000;   // also the frames of a state
inline constexpr uint32_t kPlainWidth = 64;      // wider expressions are charged by their width
inline constexpr uint32_t kAskedWidth = 1024;    // wider ones are not asked what they begin with
inline constexpr uint32_t kMaxRowWork = 50'000;  // items that are looked at to make a row
inline constexpr uint32_t kMaxStateBytes = 1 << 16;  // rows that are open inside each other
inline constexpr uint64_t kMaxMaskWork = 2'000'000;  // trie nodes, items and searches of one mask

// What a mask or a token may take. Tests have smaller ones.
struct WorkLimits {
  uint64_t mask = kMaxMaskWork;
  uint32_t expressions = 2 * kMaxExpressions;  // beside those of the form, and with them
};

class Recognizer {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Frame {
    uint32_t row, lexer;
    friend auto operator<=>(const Frame&, const Frame&) = default;
  };
  struct LexerStep {
    uint32_t lexer;                          // kNone: nothing goes on
    uint32_t accepted_from, accepted_count;  // the terminals that may end here
    SearchId searches;                       // that finding it takes
  };

  explicit Recognizer(Rules rules, const WorkLimits& limits = {});

  StateId start() const { return start_; }
  // kDeadState where the byte may not come.
  StateId step(StateId state, uint8_t byte) {
    const State& from = states_[state];
    const StateId known = transitions_[from.transitions + column_of_[from.fine][byte]];
    return known != kUnknownState ? known : compute_step(state, byte);
  }
  // Likewise for a control token, which can come only where no text has begun.
  StateId step_token(StateId state, TokenId token);
  // The control tokens that may come.
  void add_tokens(StateId state, std::vector<TokenId>& tokens) const;
  bool may_end(StateId state) const {
    const uint32_t top = states_[state].top;
    return top != kNone && rows_[top].accepting;
  }
  bool must_end(StateId state) const {
    return may_end(state) && states_[state].frame_count == 0 && !rows_[states_[state].top].tokens;
  }

  // A distinct terminal has ended right here; until its text is added, the state lets it come
  // again.
  bool pending(StateId state) const { return states_[state].pending; }
  // Two of them have ended since a text was added: what such a state allows is not all allowed.
  bool unsure(StateId state) const { return states_[state].unsure; }
  // The state with `spellings` (of the text that ended here) added to what its list has seen.
  StateId resolve(StateId state, ExprId spellings);

  // The state with counters opened that no text of `bytes` bytes can exhaust.
  StateId clamped(StateId state, uint32_t bytes);

  std::span<const Frame> frames(StateId state) const {
    return {frames_.data() + states_[state].frame_from, states_[state].frame_count};
  }
  LexerStep lexer_step(uint32_t lexer, uint8_t byte) {
    const LexerStep* known = known_steps(lexer).find(byte);
    return known != nullptr ? *known : compute_lexer_step(lexer, byte);
  }
  // The steps of a lexer that have been found by now; until the next one is.
  class KnownSteps {
   public:
    // Nothing goes on and nothing ends, and it takes no searches to know that.
    bool leads_nowhere(uint8_t byte) const { return of_column_[column_of_[byte]] == kNowhere; }
    const LexerStep* find(uint8_t byte) const {
      const uint32_t known = of_column_[column_of_[byte]];
      return known != 0 ? steps_ + (known - 1) : nullptr;
    }

   private:
    friend class Recognizer;
    static constexpr uint32_t kNowhere = 1;
    KnownSteps(const uint32_t* of_column, const uint8_t* column_of, const LexerStep* steps)
        : of_column_(of_column), column_of_(column_of), steps_(steps) {}
    const uint32_t* of_column_;
    const uint8_t* column_of_;
    const LexerStep* steps_;
  };
  KnownSteps known_steps(uint32_t lexer) const {
    const Lexer& from = lexers_[lexer];
    return {&lexer_transitions_[from.transitions], column_of_[from.fine].data(),
            lexer_steps_.data()};
  }
  uint64_t terminals_of(uint32_t lexer) const { return lexers_[lexer].count; }  // that have begun
  // `frame` as one frame for each terminal that has begun in it.
  void split(Frame frame, std::vector<Frame>& out);
  // What must follow where only one terminal has begun, else kNothing.
  ExprId only_rest(uint32_t lexer) const {
    return lexers_[lexer].count == 1 ? begun_[lexers_[lexer].from].rest : kNothing;
  }
  // Likewise: the step that ends it.
  LexerStep end_of_only(uint32_t lexer);
  bool same_accepted(const LexerStep& a, const LexerStep& b) const;
  // The state in which nothing counts but that terminals of `row` have ended as in `step`.
  StateId behind(uint32_t row, const LexerStep& step);
  // The items that the last behind() has looked at.
  uint32_t work_behind() const { return step_work_; }
  // Whether every text of `words` is the beginning of a terminal that has begun in `lexer`; `once`
  // is the same language without a limit on its length, and `longest` that limit.
  bool begins_all(uint32_t lexer, ExprId words, ExprId once, uint32_t longest, uint64_t& work);

  uint32_t state_cost(StateId state) const { return states_[state].cost; }
  // The work of the searches that a state, or a step from it, takes beside that, and of the items
  // that many of its terminals complete: most have none. Searches that `counted` has met are left
  // out.
  uint64_t search_work(StateId state, Once& counted) {
    const uint32_t top = states_[state].top;
    return top == kNone ? 0 : search_work_of(rows_[top].searches, counted);
  }
  uint64_t search_work(StateId state, uint8_t byte, Once& counted) {
    if (!states_[state].searches) return 0;
    const StepWork* step = step_works_.find(transition_key(state, byte));
    return step == nullptr ? 0 : step->items + search_work_of(step->searches, counted);
  }
  uint64_t search_work(const LexerStep& step, Once& counted) {
    return search_work_of(step.searches, counted);
  }
  // The texts that the lists of a state have seen.
  uint64_t seen_count(StateId state) const;
  uint32_t lexer_cost(uint32_t lexer) const { return lexers_[lexer].cost; }
  uint32_t lexer_count() const { return static_cast<uint32_t>(lexers_.size()); }
  RegexStore& regex() { return *rules_.regex; }
  // Once it is late, bytes that have not come before lead nowhere, which means nothing and is not
  // remembered.
  Hurry& hurry() { return regex().hurry(); }
  // A row outgrew its limit, or the expressions did: the states after it cannot be trusted.
  bool failed() const { return failed_ || rules_.regex->full() || rules_.regex->question_failed(); }
  uint64_t bytes() const;
  uint64_t row_work() const { return all_row_work_; }  // items that all rows have looked at
  // Forgets all states but those that a new start makes; ids from before mean nothing any more.
  void forget();

  // A state on its own: forget() does not reach it, and restore() makes it again.
  struct Saved;
  Saved save(StateId state) const;
  StateId restore(const Saved& saved);

 private:
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
  };
  struct Row {
    uint32_t items_from = 0, items_count = 0;    // in items_, sorted by what they wait for
    uint32_t rules_from = 0;                     // the first that waits for a rule
    uint32_t kernel_from = 0, kernel_count = 0;  // in items_: what it was made of
    uint32_t lexer = kNone;
    SearchId searches = kNoSearch;  // that finding its lexer takes
    bool begun = false;             // the lexer is known
    bool accepting = false;
    bool tokens = false;  // some wait for control tokens
    bool pending = false, unsure = false;
    uint32_t work = 0;     // items that were looked at to make it
    uint64_t history = 0;  // likewise, with the rows that its rules were begun in
    uint32_t bytes = 0;    // of it and of those rows
  };
  struct Begun {  // a terminal that has begun
    uint32_t terminal;
    uint32_t seen;  // only of a distinct one
    ExprId rest;
    friend auto operator<=>(const Begun&, const Begun&) = default;
  };
  struct Lexer {
    uint32_t from, count;  // in begun_
    uint32_t transitions;  // of its first column
    uint32_t cost;         // of all its transitions
    uint32_t width;        // of its expressions: about what one transition costs
    bool fine;             // see column_of_
  };
  struct State {
    uint32_t frame_from, frame_count, top, cost;
    uint32_t transitions;
    bool pending, unsure, fine;
    bool searches;  // some steps have, or complete many items
  };
  struct StepWork {
    SearchId searches;
    uint32_t items;
  };
  struct Seen {
    std::vector<ExprId> spellings;
    ExprId excluded = kNothing;
    uint32_t bytes = 0;
    bool pending = false, unsure = false;
  };

  void make_positions();
  void make_byte_groups();
  void begin();
  uint32_t columns(bool fine) const { return fine ? 256 : groups_; }
  std::span<const Item> items(const Row& row) const {
    return {items_.data() + row.items_from, row.items_count};
  }
  std::span<const Begun> begun(uint32_t lexer) const {
    return {begun_.data() + lexers_[lexer].from, lexers_[lexer].count};
  }
  uint32_t intern_row(std::vector<Item>& kernel);  // kNone: it is late
  void begin_items();
  void settle(std::vector<Item>& kernel);
  void close_row(uint32_t row, std::span<const Item> kernel);
  void sort_items();
  void predict(uint32_t row, const Item& item, const Symbol& symbol, bool last);
  void complete(const Item& item);
  void add_item(const Item& item);
  void advance_row(uint32_t row, uint32_t terminal, uint32_t seen, std::vector<Item>& kernel);
  uint32_t row_lexer(uint32_t row);
  bool repeats_all(ExprId e, ExprId once, uint32_t longest, uint64_t& work);
  uint64_t search_work_of(SearchId searches, Once& counted) {
    return searches == kNoSearch ? 0
                                 : regex().searches().steps(searches, counted) * kSearchStepWork;
  }
  uint64_t transition_key(StateId state, uint8_t byte) const {
    const State& from = states_[state];
    return uint64_t{from.transitions} + column_of_[from.fine][byte] + 1;
  }
  uint32_t lexer_cost(size_t count, uint64_t width, bool fine);
  uint32_t intern_lexer(std::vector<Begun>& begun);
  LexerStep compute_lexer_step(uint32_t lexer, uint8_t byte);
  StateId intern_state(std::span<const Frame> frames, uint32_t top);
  StateId compute_step(StateId state, uint8_t byte);
  StateId with_new_row(std::vector<Frame>& frames, std::vector<Item>& kernel);
  uint32_t intern_seen(Seen seen);
  uint32_t row_bytes(std::span<const Item> kernel) const;
  uint32_t with_pending(uint32_t seen);

  Rules rules_;
  RegexStore::Mark mark_;
  bool failed_ = false;
  std::vector<Production> productions_;
  std::vector<Position> positions_;
  std::vector<uint32_t> first_position_;        // of a production
  std::vector<std::vector<uint32_t>> of_rule_;  // productions
  std::vector<uint8_t> nullable_rule_;
  // Bytes that the grammar does not tell apart are a group, and a column of most tables. Where a
  // list has seen a text, every byte is a column of its own: tables are `fine` there.
  uint32_t groups_ = 0;
  std::array<std::array<uint8_t, 256>, 2> column_of_{};  // by `fine` and byte
  std::array<std::array<uint8_t, 256>, 2> byte_of_{};    // one byte of a column

  std::vector<Row> rows_;
  std::vector<Item> items_;
  std::vector<Lexer> lexers_;
  std::vector<Begun> begun_;
  std::vector<uint32_t> lexer_transitions_;              // index in lexer_steps_ + 1
  std::vector<LexerStep> lexer_steps_;                   // the first is KnownSteps::kNowhere
  std::vector<std::pair<uint32_t, uint32_t>> accepted_;  // terminal, seen
  std::vector<State> states_;
  std::vector<Frame> frames_;
  std::vector<StateId> transitions_;
  std::vector<Seen> seen_;
  uint64_t seen_bytes_ = 0;
  IdTable row_ids_, lexer_ids_, state_ids_, seen_ids_;
  FlatMap<StateId> clamped_;
  FlatMap<StepWork> step_works_;  // by transition, where there is any
  StateId start_ = kDeadState;

  // Room for what is being made, kept from one to the next.
  std::vector<Item> open_items_;  // of the row that is being closed
  uint32_t row_work_ = 0;         // that it has taken
  uint64_t all_row_work_ = 0;
  uint32_t step_work_ = 0;            // that the kernel of the last step has taken
  std::vector<uint32_t> item_table_;  // finds duplicates among them
  std::vector<Item> kernel_room_;
  std::vector<Frame> frame_room_;
  std::vector<Begun> begun_room_;
  Once begins_searched_;  // of a terminal that is asked what it begins with
};

// Rows and seen texts by the numbers that they had.
struct Recognizer::Saved {
  RegexStore::Saved expressions;
  std::vector<uint32_t> seen_ids, row_ids;
  std::vector<Seen> seen;
  std::vector<std::vector<Item>> kernels;  // of the rows
  std::vector<uint32_t> frame_rows;
  std::vector<std::vector<Begun>> frame_lexers;
  uint32_t top = kNone;
};

}  // namespace skein::grammar
