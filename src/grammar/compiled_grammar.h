// A form, compiled for a vocabulary, and a request's place in it.
//
//   FormResult<std::shared_ptr<CompiledGrammar>> grammar = compile(rules, trie);
//   Matcher matcher(*grammar);
//   const TokenMask* mask = matcher.mask();   // the tokens that may come next
//   matcher.advance(token);
//
// Masks are pure functions of the grammar, the text so far and the vocabulary: caches change only
// the time. Their sizes are bounded; when the automaton outgrows its budget it is forgotten, and
// matchers read their text again. A form that needs more work than a mask may take makes its
// matcher fail (mask() is nullptr), and no other. Matchers of one grammar may be on different
// threads.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "grammar/recognizer.h"
#include "grammar/token_trie.h"

namespace skein::grammar {

inline constexpr uint64_t kGrammarCacheBytes = 8 * 1024 * 1024;
inline constexpr uint64_t kMaxMaskWork = 2'000'000;  // trie nodes and items of one mask

struct GrammarOptions {
  uint64_t automaton_bytes = kGrammarCacheBytes;
  uint64_t mask_bytes = kGrammarCacheBytes;
};

class CompiledGrammar {
 public:
  CompiledGrammar(Rules rules, std::shared_ptr<const TokenTrie> trie,
                  const GrammarOptions& options);

  const TokenTrie& trie() const { return *trie_; }

 private:
  friend class Matcher;
  struct CachedMask {
    StateId state;
    std::shared_ptr<const TokenMask> mask;
  };

  // All of these under the lock.
  std::shared_ptr<const TokenMask> find_mask(StateId state);
  std::shared_ptr<const TokenMask> make_mask(StateId state, std::string_view text);
  bool walk(const TokenTrie::Slice& slice, StateId state, std::string_view text, TokenMask& mask,
            uint64_t& work);
  bool exactly_allowed(StateId state, std::string_view text, std::string_view bytes);
  StateId exact_step(StateId state, std::string_view text, uint8_t byte);
  void forget();
  void make_room();

  std::mutex mutex_;
  std::shared_ptr<const TokenTrie> trie_;
  GrammarOptions options_;
  struct SliceWords {
    ExprId words, once;  // texts of the slice's length, and of any
  };
  std::vector<SliceWords> slice_words_;
  Recognizer recognizer_;  // made behind slice_words_, whose expressions it must know
  uint64_t bytes_at_first_;
  uint64_t epoch_ = 0;             // states of earlier epochs are forgotten
  std::vector<uint32_t> visited_;  // by state: the walk that met it last
  uint32_t walk_ = 0;
  std::list<CachedMask> masks_;  // the most recently used first
  std::unordered_map<StateId, std::list<CachedMask>::iterator> mask_of_;
};

// From any thread; no exception. The first mask is not made yet.
FormResult<std::shared_ptr<CompiledGrammar>> compile(Rules rules,
                                                     std::shared_ptr<const TokenTrie> trie,
                                                     const GrammarOptions& options = {});

// A copy is a fork. One thread at a time; several matchers may share their grammar.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<CompiledGrammar> grammar);

  bool allows(TokenId token) const;  // without a mask
  // Valid until the next advance(). nullptr where the form needs more work than a mask may take.
  const TokenMask* mask();
  bool advance(TokenId token);  // false: not allowed, and nothing has changed
  bool advance_bytes(std::string_view bytes);
  bool may_end() const;
  bool must_end() const;  // nothing but the end can follow
  bool failed() const { return failed_; }
  const std::string& text() const { return text_; }

 private:
  void catch_up() const;  // under the lock: the state in the grammar's present epoch

  std::shared_ptr<CompiledGrammar> grammar_;
  std::string text_;
  mutable StateId state_ = kDeadState;
  mutable uint64_t epoch_ = 0;
  mutable bool failed_ = false;
  std::shared_ptr<const TokenMask> mask_;
};

}  // namespace skein::grammar
