// Drafter: guesses what a request samples next, from what its text said before.
//
// Where the end of the text stood earlier, in the prompt, in the answer or in the tenant's earlier
// answers, what followed there is the guess. An answer that follows an earlier text leaves out,
// puts in or changes a little: the place it was at is not given up at once, but looked for nearby.
// How likely a guess comes true is learned by the length of the match, from all guesses: those that
// nobody computed show whether they were right as well. So one that does not pay is not computed,
// and goes on being watched.
//
// A function of the tokens alone, in integers. Nothing it says changes a token: the sampler has the
// last word. Single-threaded; may throw std::bad_alloc, after which it is of no use.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "engine/speculation/draft_memory.h"
#include "engine/speculation/token_index.h"

namespace skein {

class Drafter {
 public:
  static constexpr uint32_t kMostDrafts = 31;

  // `earlier`: of the same tenant.
  Drafter(std::span<const TokenId> prompt, std::shared_ptr<EarlierAnswers> earlier);

  // These were sampled since the last call. Writes what may follow, and the odds of each: that it
  // and all before it come true, in 1/1000, never quite certain.
  void follow(std::span<const TokenId> sampled, std::vector<TokenId>& drafts,
              std::vector<uint16_t>& odds);

  // The prompt, and what was sampled.
  std::span<const TokenId> text() const { return text_.tokens(); }

  // The answer is whole: the tenant's next ones may be guessed from it.
  void remember_answer();

 private:
  // Lengths of matches that are told apart: 0 to 3 each (shorter ones than a search finds are of a
  // place that was lost and looked for nearby), 4 to 5, 6 to 8, 9 to 16, longer.
  static constexpr size_t kKinds = 8;
  struct Source {
    std::shared_ptr<const TokenIndex> text;  // nullptr: the request's own
    TokenIndex::Match match;                 // what ends at 0: none
  };

  static size_t kind_of(uint32_t length);
  const TokenIndex& text_of(const Source& source) const;
  void learn(TokenId sampled);
  void go_on(TokenId sampled);
  void look_nearby(TokenId sampled);
  void look_up();
  void write(std::vector<TokenId>& drafts, std::vector<uint16_t>& odds);

  TokenIndex text_;
  size_t prompt_tokens_;
  std::shared_ptr<EarlierAnswers> earlier_;
  Source source_;                           // of the guess
  uint32_t patience_ = 0;                   // tokens for which a lost place is still looked for
  std::vector<TokenId> guess_;              // at what follows the text
  uint32_t learned_ = 0;                    // of the guess: what was sampled in its place is known
  std::array<uint32_t, kKinds> come_true_;  // in 1/1000, by kind
};

}  // namespace skein
