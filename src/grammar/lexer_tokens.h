// What the tokens of a vocabulary do to a lexer, whatever row it stands in.
//
// A token inside which a begun terminal goes on is allowed in every row. Other tokens end a
// terminal on the way, and only what they have behind that end depends on the row. The first are
// kept here as a mask or a list, the others as the places in the trie where terminals end: so a
// string costs its walk once for a grammar and not once for every member of an object.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "grammar/recognizer.h"
#include "grammar/token_trie.h"

namespace skein::grammar {

class LexerTokens {
 public:
  struct Ending {  // where the same terminals end
    Recognizer::LexerStep step;
    std::vector<TokenId> tokens;  // that end there as well, while nothing goes on
    std::vector<uint32_t> nodes;  // whose children come behind it
  };
  struct Entry {
    uint32_t level = 0;           // of the trie; its plain tokens are all allowed
    uint32_t nodes_level = 0;     // of the trie that was walked
    bool mixed = false;           // terminals end in too many places: states are walked as a whole
    std::vector<TokenId> tokens;  // that are allowed, each for all with the same bytes,
    std::shared_ptr<const TokenMask> mask;  // and all of these, if any
    std::vector<Ending> endings;
    uint64_t work = 0;
  };

  // The trie must outlive it. Expressions go into `store`.
  LexerTokens(const TokenTrie& trie, RegexStore& store, uint64_t max_work = kMaxMaskWork);

  // nullptr where it takes more work than a mask may, or the recognizer failed, or is in a hurry
  // and late. Valid until the next call.
  const Entry* of(uint32_t lexer, Recognizer& recognizer);
  uint64_t bytes() const { return bytes_; }
  void forget();

 private:
  uint32_t level_of(uint32_t lexer, Recognizer& recognizer, uint64_t& work) const;
  bool walk(uint32_t lexer, Recognizer& recognizer, Entry& entry);
  void add_node(uint32_t index, const Recognizer::LexerStep& step, const Recognizer& recognizer,
                Entry& entry) const;
  void keep(Entry& entry) const;
  bool take_string(uint32_t lexer, Recognizer& recognizer, Entry& entry) const;
  void remember_strings();

  struct Words {
    ExprId some, once;  // plain texts of a level's length, and of any
  };
  struct Place {
    uint32_t next, end;
    uint32_t lexer;
  };
  const TokenTrie& trie_;
  RegexStore& store_;
  // A character of a string, the quote behind the last one, and what may follow the quote of any
  // string, with and without the second one, and of a name.
  ExprId character_, quote_, string_, characters_, name_characters_;
  std::vector<Words> words_;  // by level
  std::vector<std::unique_ptr<Entry>> entries_;
  uint64_t bytes_ = 0;
  std::vector<Place> path_;
  Once met_, searched_;  // lexers and searches of the walk
  uint64_t max_work_;
};

}  // namespace skein::grammar
