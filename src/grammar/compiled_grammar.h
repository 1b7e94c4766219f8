// A form, compiled for a vocabulary, and a request's place in it.
//
//   FormResult<std::shared_ptr<CompiledGrammar>> grammar = compile(rules, trie);
//   Matcher matcher(*grammar);
//   const TokenMask* mask = matcher.mask();   // the tokens that may come next
//   matcher.advance(token);
//
// Control tokens, which have no bytes, are allowed where a rule names them.
//
// Masks are pure functions of the grammar, the text so far and the vocabulary: caches change only
// the time. Their sizes are bounded; when the automaton outgrows its budget it is forgotten but for
// the states that matchers stand in, which are small. A form that needs more work than a mask or a
// token may take makes its matcher fail (mask() is nullptr), and no other; work is counted as if
// nothing were cached, so it is the form and the text that fail and not the company. Matchers of
// one grammar may be on different threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "grammar/lexer_tokens.h"
#include "grammar/recognizer.h"
#include "grammar/token_trie.h"

namespace skein::grammar {

inline constexpr uint64_t kGrammarCacheBytes = uint64_t{8} << 20;

struct GrammarOptions {
  uint64_t automaton_bytes = kGrammarCacheBytes;
  uint64_t mask_bytes = kGrammarCacheBytes;
  WorkLimits limits = {};
};

class CompiledGrammar {
 public:
  CompiledGrammar(Rules rules, std::shared_ptr<const TokenTrie> trie,
                  const GrammarOptions& options);

  const TokenTrie& trie() const { return *trie_; }
  // For tests: how often the automaton was forgotten, what the masks hold, and what its expressions
  // and its rows have taken in all.
  uint64_t times_forgotten() const { return times_forgotten_; }
  uint64_t mask_bytes() const { return mask_bytes_; }
  uint64_t expression_work() { return recognizer_.regex().work(); }
  uint64_t row_work() const { return recognizer_.row_work(); }
  void forget_all();

 private:
  friend class Matcher;
  friend class HurriedQuestions;
  // Where a matcher stands: a state of the automaton, or what was saved of it.
  struct Place {
    StateId state = kUnknownState;  // at the beginning, and nothing has been asked yet
    std::unique_ptr<const Recognizer::Saved> saved;
  };
  // The tokens that may follow in `state`, whatever has led there, and those that may or may not,
  // depending on the text: they end a distinct scalar and have more of its list behind it.
  struct CachedMask {
    StateId state;
    std::shared_ptr<const TokenMask> mask;
    std::vector<TokenId> unsure;
    uint64_t work;

    uint64_t bytes() const { return mask->bytes() + unsure.capacity() * sizeof(TokenId); }
  };
  // One that is being made.
  struct Making {
    StateId state;
    TokenMask& mask;
    std::vector<TokenId> unsure = {};
    uint64_t work = 0;
  };

  // All of these under the lock.
  const CachedMask* find_mask(StateId state);
  const CachedMask* mask_of_state(StateId state);
  std::shared_ptr<const TokenMask> make_mask(StateId state, std::string_view text);
  std::shared_ptr<const TokenMask> make_first_mask(StateId state, std::string_view text);
  bool add_frame(Recognizer::Frame frame, Making& making);
  bool add_all_frames(Making& making);
  bool walk(const std::vector<TokenTrie::Node>& nodes, uint32_t from, StateId state,
            Making& making);
  bool charge(StateId state, Making& making);
  void allow(TokenId token, TokenMask& mask) const;
  bool allow_exact(StateId state, std::string_view text, std::span<const TokenId> tokens,
                   uint32_t dropped_bytes, uint64_t work, TokenMask& mask);
  StateId exact_step(StateId state, std::string_view text, std::string_view bytes, size_t at,
                     uint64_t& work);
  StateId exact_steps(StateId state, std::string_view text, std::string_view bytes, uint64_t& work);
  void add_place(const std::shared_ptr<Place>& place);
  void forget();
  void make_room();
  bool may_forget();
  bool late() { return recognizer_.hurry().late(); }

  std::recursive_mutex mutex_;
  std::atomic<bool> is_hurried_ = false;  // who has the lock is soon done
  std::shared_ptr<const TokenTrie> trie_;
  GrammarOptions options_;
  LexerTokens lexer_tokens_;
  Recognizer recognizer_;  // made behind lexer_tokens_, whose expressions it must know
  uint64_t bytes_at_first_;
  uint64_t times_forgotten_ = 0;
  std::vector<std::weak_ptr<Place>> places_;
  size_t places_sweep_ = 16;  // from so many on, those that are gone are taken out
  Once met_, searched_;       // states and searches of the mask or the token
  struct Level {
    uint32_t next, end;
    StateId state;
    bool unsure;
  };
  std::vector<Level> path_;
  std::vector<Recognizer::Frame> parts_;  // of the state whose mask is being made
  std::list<CachedMask> masks_;           // the most recently used first
  uint64_t mask_bytes_ = 0;               // of all of them
  std::unordered_map<StateId, std::list<CachedMask>::iterator> mask_of_;
};

// From any thread; no exception. The first mask is not made yet.
FormResult<std::shared_ptr<CompiledGrammar>> compile(Rules rules,
                                                     std::shared_ptr<const TokenTrie> trie,
                                                     const GrammarOptions& options = {});

// For a thread that many wait for. While it lives, its thread has the grammar, and all questions to
// matchers of it take no more than `work` together, of what is really done, and what `more` has
// left. Once they are late(), answers mean nothing (no token is allowed, no mask is made), nor were
// they any where another thread had the grammar; the same questions may be asked again at another
// time.
class HurriedQuestions {
 public:
  HurriedQuestions(CompiledGrammar& grammar, uint64_t work, SharedWork* more = nullptr);
  ~HurriedQuestions();
  HurriedQuestions(const HurriedQuestions&) = delete;
  HurriedQuestions& operator=(const HurriedQuestions&) = delete;

  bool late() const;

 private:
  CompiledGrammar& grammar_;
  std::unique_lock<std::recursive_mutex> lock_;
};

// What a form says about the next token.
enum class Zone : uint8_t {
  kFree,   // every token that has bytes is allowed: a mask of them need not be applied
  kBound,  // some are not
  kEnded,  // nothing but the end can follow
};

// A copy is a fork. One thread at a time; several matchers may share their grammar.
class Matcher {
 public:
  // `strips_leading_space`: a space at the very beginning of the answer is no part of its text, as
  // SentencePiece's tokenizers and the text assembler have it.
  explicit Matcher(std::shared_ptr<CompiledGrammar> grammar, bool strips_leading_space = false);
  Matcher(const Matcher& other);
  Matcher(Matcher&& other) noexcept = default;
  Matcher& operator=(const Matcher& other) {
    if (this != &other) *this = Matcher(other);
    return *this;
  }
  Matcher& operator=(Matcher&& other) noexcept = default;
  ~Matcher() = default;

  bool allows(TokenId token) const;  // without a mask
  // Valid until the next advance(). nullptr where the form needs more work than a mask may take.
  const TokenMask* mask();
  bool advance(TokenId token);  // false: not allowed, and nothing has changed
  bool advance_bytes(std::string_view bytes);
  bool may_end() const;
  bool must_end() const;  // nothing but the end can follow
  Zone zone();
  bool failed() const { return failed_; }
  const std::string& text() const { return text_; }

 private:
  // Under the lock.
  StateId state() const;  // in the automaton as it is now
  template <class Question>
  auto answer(const Question& question) const;
  StateId behind(TokenId token) const;
  StateId behind_bytes(std::string_view bytes) const;
  std::string_view text_of(TokenId token) const;

  std::shared_ptr<CompiledGrammar> grammar_;
  std::string text_;
  bool strip_space_;  // the next byte, if it is a space, is no part of the text
  std::shared_ptr<CompiledGrammar::Place> place_;
  mutable bool failed_ = false;
  std::shared_ptr<const TokenMask> mask_;
};

}  // namespace skein::grammar
