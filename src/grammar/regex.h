// Regular expressions over bytes with intersection and complement, matched by derivatives.
//
//   RegexStore store;
//   ExprId e = store.concat(store.literal("ab"), store.repeat(digit, 1, 3));
//   e = store.derivative(e, 'a');      // what may follow after an 'a'
//   store.nullable(e);                 // whether the text may end here
//
// Expressions are hash-consed: equal ones have one id, and constructors normalize, so that the
// derivatives of an expression are few. A repetition keeps a counter instead of copies. Everything
// that user input can make large is counted: beyond the limit of expressions the store is `full()`,
// every constructor gives kNothing, and the caller refuses the input.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/resources.h"
#include "grammar/byte_set.h"
#include "grammar/flat_table.h"
#include "grammar/hurry.h"
#include "grammar/search_log.h"

namespace skein::grammar {

using ExprId = uint32_t;
inline constexpr ExprId kNothing = 0;    // no text at all
inline constexpr ExprId kEmptyText = 1;  // the empty text
inline constexpr ExprId kAnything = 2;   // every text
inline constexpr uint32_t kUnbounded = UINT32_MAX;

inline constexpr uint32_t kMaxExpressions = 200'000;
inline constexpr uint32_t kMaxRepeat = 1'000'000;
inline constexpr uint32_t kMaxWidth = 1 << 16;  // parts that a derivative may look at
// What questions may take, in derivatives and the parts that they look at: all of a form, and those
// of one step of the automaton.
inline constexpr uint32_t kSearchSteps = 100'000;
inline constexpr uint64_t kSearchStepWork = 3;  // of one, in the units of a mask

// The answer to a question about languages; unknown when the search met its limit.
enum class Answer : uint8_t { kNo, kYes, kUnknown };

class RegexStore {
  enum class Live : uint32_t { kNotAsked, kNo, kYes, kUnknown };
  struct KnownLive {
    Live live : 3;
    SearchId searches : 29;
  };
  struct Derivative {
    ExprId result;
    SearchId searches;
  };
  struct Begins {
    Answer answer;
    uint64_t work;
  };
  enum class Kind : uint8_t {
    kNothing,
    kEmpty,
    kAnything,
    kClass,    // a: set
    kLiteral,  // a: offset in text_, b: length
    kConcat,   // a: first, which is no concatenation, b: the rest
    kOr,       // a: offset in lists_, b: count
    kAnd,      // likewise
    kNot,      // a
    kRepeat,   // a, from b to c times
    kMultiple  // a: modulus, b: remainder
  };
  struct Node {
    Kind kind;
    bool nullable;
    bool extended;  // has an intersection or a complement inside
    uint32_t width;
    uint32_t shortest,
        longest;  // no text of it is shorter or longer; kUnbounded: that is not known
    uint32_t a, b, c;

    bool finite() const { return longest != kUnbounded; }  // it has but finitely many texts
  };

 public:
  explicit RegexStore(uint32_t max_expressions = kMaxExpressions);

  ExprId byte_class(const ByteSet& set);
  ExprId byte(char c) { return byte_class(ByteSet::of({&c, 1})); }
  ExprId literal(std::string_view text);
  ExprId literals(std::vector<std::string> texts);  // any of them, as a tree of prefixes
  ExprId concat(ExprId first, ExprId then);
  ExprId concat(std::span<const ExprId> parts);
  ExprId either(std::vector<ExprId> parts);
  ExprId either(ExprId a, ExprId b) { return either(std::vector<ExprId>{a, b}); }
  ExprId both(std::vector<ExprId> parts);
  ExprId both(ExprId a, ExprId b) { return both(std::vector<ExprId>{a, b}); }
  ExprId negation(ExprId a);
  ExprId repeat(ExprId a, uint32_t lo, uint32_t hi);
  ExprId optional(ExprId a) { return repeat(a, 0, 1); }
  // Digits, signs and points whose digits, read after `remainder`, are a multiple of `modulus`.
  ExprId multiple(uint32_t modulus, uint32_t remainder = 0);

  // The texts of an expression as they stand inside a JSON string, escaped where they must be.
  ExprId json_escaped(ExprId e);

  bool nullable(ExprId e) const { return nodes_[e].nullable; }
  // The parts that a derivative looks at, which is what it costs; counted up to kMaxWidth.
  uint32_t width(ExprId e) const { return nodes_[e].width; }
  ExprId derivative(ExprId e, uint8_t byte);
  // Takes out of `alike` the bytes whose derivatives of `e` may differ from that by `byte`.
  void keep_alike(ExprId e, uint8_t byte, ByteSet& alike) const;
  bool matches(ExprId e, std::string_view text);

  // Whether some text matches; derivatives that none matches are kNothing already where the
  // search could say so.
  Answer live(ExprId e);
  Answer contains(ExprId big, ExprId small);
  Answer disjoint(ExprId a, ExprId b);
  // Whether every text of `e` is texts of `one` behind each other, as far as its structure says so.
  bool is_row_of(ExprId e, ExprId one);
  // The same texts, without parts from which no text can be finished: after that, no derivative
  // leads where nothing matches.
  ExprId without_dead_ends(ExprId e);
  // Whether every text of `words` is the beginning of a text of `e`. What that takes is added to
  // `work`, as if it had not been asked before; a step of a search is kSearchStepWork.
  Answer begins_all(ExprId e, ExprId words, uint64_t& work);
  uint32_t most_times(ExprId e) const;
  ExprId with_at_most(ExprId e, uint32_t most);
  void remember_begins_all(ExprId e, ExprId words);  // where the answer is known to be yes
  bool question_failed() const { return question_failed_; }
  void limit_expressions(uint32_t most) { max_expressions_ = most; }
  // Steps that were really taken; beyond the limit, questions fail.
  void allow_more_questions() { search_work_ = 0; }
  uint32_t search_work() const { return search_work_; }  // since then
  void limit_questions(uint32_t steps) { max_search_work_ = steps; }
  // Of who asks. Once it is late, answers mean nothing, and none is remembered.
  Hurry& hurry() { return hurry_; }
  // What questions rest on, as if nothing were known but what was known at the mark.
  SearchLog& searches() { return searches_; }

  // The expression with every counter beyond `bytes` opened: no text of at most `bytes` bytes can
  // tell the two apart, neither by how it goes on nor by where it may end.
  ExprId clamp(ExprId e, uint32_t bytes);
  // Where `e` begins with a repetition: its body, how often it may still come, and what follows.
  struct Counted {
    ExprId body;
    uint32_t lo, hi;
    ExprId behind;
  };
  std::optional<Counted> counted(ExprId e) const;
  // The parts of which `e` is any one. None where it has no such parts, or an intersection or a
  // complement inside, so that some may have no text.
  std::vector<ExprId> plain_alternatives(ExprId e) const;

  bool full() const { return full_; }
  // What making expressions has taken, those that were there already as well.
  uint64_t work() const { return work_; }
  // Expressions that are asked for again and again: what `make` gives is kept.
  enum class Common : uint8_t { kJsonChar, kJsonFreeChar, kJsonNumber, kJsonInteger };
  template <class Make>
  ExprId common(Common which, const Make& make) {
    ExprId& known = common_[static_cast<size_t>(which)];
    if (known == kNothing) known = make();
    return known;
  }
  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }
  uint64_t bytes() const;
  const std::vector<ByteSet>& sets() const { return sets_; }
  const std::string& literal_bytes() const { return text_; }

  // Everything made and found out after `mark` is forgotten.
  struct Mark {
    size_t nodes, lists, text, sets;
    std::vector<KnownLive> live;
  };
  Mark mark();
  void forget_after(const Mark& mark);

  // Expressions that were made after a mark, on their own, so that they can be made again when they
  // have been forgotten. What is older keeps its id.
  class Saved {
   public:
    // Of an expression that was saved: what it is in `restored`.
    ExprId now(ExprId e, std::span<const ExprId> restored) const;

   private:
    friend class RegexStore;
    struct Part {
      Node node{};
      ByteSet set;                // of a class
      std::string text;           // of a literal: the text that it is a slice of, if that is new
      std::vector<ExprId> parts;  // of an alternative or an intersection
    };
    size_t first_ = 0;  // ids below are older
    std::vector<ExprId> ids_;
    std::vector<Part> parts_;
  };
  Saved save(std::vector<ExprId> wanted, const Mark& mark) const;
  std::vector<ExprId> restore(const Saved& saved);
  // The bytes of the literals in it.
  uint64_t literal_length(ExprId e) const;

 private:
  ExprId escaped_class(const ByteSet& set);
  uint32_t width_of(Kind kind, uint32_t a, uint32_t b) const;
  uint32_t shortest_of(Kind kind, uint32_t a, uint32_t b) const;
  ExprId intern(Kind kind, uint32_t a, uint32_t b, uint32_t c, bool nullable, bool extended);
  ExprId intern_list(Kind kind, std::span<const ExprId> parts);
  Saved::Part saved_part(ExprId e, const Mark& mark) const;
  bool same(const Node& node, Kind kind, uint32_t a, uint32_t b, uint32_t c) const;
  uint64_t hash(Kind kind, uint32_t a, uint32_t b, uint32_t c) const;
  void grow_table();
  std::span<const ExprId> list(const Node& node) const { return {&lists_[node.a], node.b}; }
  ExprId literal_slice(uint32_t offset, uint32_t length);
  ExprId literal_tree(std::span<const std::string> sorted, size_t depth);
  void flatten(Kind kind, std::vector<ExprId>& parts) const;
  void merge_classes(Kind kind, std::vector<ExprId>& parts);
  void merge_tails(std::vector<ExprId>& parts);
  void merge_repeats(std::vector<ExprId>& parts);
  void drop_rows(std::vector<ExprId>& parts);
  bool has_opposite(const std::vector<ExprId>& sorted) const;
  uint32_t longest_of(Kind kind, uint32_t a, uint32_t b, uint32_t c) const;
  bool has_common_length(std::span<const ExprId> parts) const;
  bool endless(ExprId e) const;
  ExprId without_exceptions(ExprId e) const;

  ExprId derive(ExprId e, uint8_t byte);
  ExprId derive_concat(ExprId e, uint8_t byte);
  template <class Visit>
  void visit_heads(ExprId e, const Visit& visit) const;
  std::vector<uint8_t> representatives(ExprId e, ExprId also = kNothing) const;
  KnownLive known_live(ExprId e) const { return e < live_.size() ? live_[e] : KnownLive{}; }
  void remember_live(ExprId e, Live live, SearchId searches);
  struct LiveSearch;
  bool find_end(ExprId start, bool may_turn_back);
  bool expand(LiveSearch& search, ExprId e);
  void take_steps(uint32_t steps) {
    search_work_ += steps;
    searches_.add_steps(steps);
    hurry_.takes(steps * kSearchStepWork);
  }
  // Long work is done in short turns, where its thread gives way to others.
  void count_work(uint64_t work) {
    work_ += work;
    if (work_ < next_turn_) return;
    next_turn_ = work_ + kTurnWork;
    give_turn();
  }
  bool too_many_steps() const { return full_ || search_work_ > max_search_work_ || hurry_.late(); }
  Answer live_by_structure(ExprId e);
  Answer live_by_search(ExprId e);
  using Pruned = std::unordered_map<ExprId, ExprId>;
  ExprId prune(ExprId e, Pruned& known, uint32_t depth);
  ExprId prune_parts(ExprId e, Pruned& known, uint32_t depth);
  Begins search_begins(ExprId e, ExprId words);
  ExprId plain_derivative(ExprId e, uint8_t byte);

  uint32_t max_expressions_;
  bool full_ = false;
  bool question_failed_ = false;
  uint32_t depth_ = 0;
  uint32_t search_work_ = 0, max_search_work_ = kSearchSteps;
  SearchLog searches_;
  Hurry hurry_;
  static constexpr uint64_t kTurnWork = 2048;  // some tenths of a millisecond
  uint64_t work_ = 0, next_turn_ = kTurnWork;
  std::array<ExprId, 4> common_{};  // kNothing: not made yet
  std::vector<Node> nodes_;
  std::vector<ExprId> lists_;
  std::string text_;
  std::vector<ByteSet> sets_;
  std::vector<uint32_t> table_;  // open addressing, id + 1
  std::unordered_map<uint64_t, uint32_t> set_ids_;
  std::unordered_map<std::string, uint32_t> texts_;
  std::vector<uint32_t> text_starts_;  // in text_
  FlatMap<Derivative> derivatives_;
  FlatMap<Begins> begins_;
  Once begins_searched_;         // of the question that is being answered
  std::vector<KnownLive> live_;  // by expression, as far as it was asked
  FlatMap<SearchId> straight_;   // those from which a search for an end need not turn back
};

}  // namespace skein::grammar
