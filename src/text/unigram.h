// SentencePiece's unigram model: the segmentation of a word with the greatest sum of scores.
// Immutable once made; any thread may encode. Time is linear in the word times the longest piece.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_spec.h"
#include "text/trie.h"
#include "text/vocabulary.h"

namespace skein {

class Unigram {
 public:
  // `vocabulary` must outlive the model.
  static Result<Unigram> create(const TokenizerSpec& spec, const Vocabulary& vocabulary);

  // Buffers that encode() reuses from word to word; one per thread.
  struct Scratch {
    struct Node {
      double score;    // of the best way to get here
      uint32_t begin;  // where its last piece starts; kNowhere: not reached
      TokenId id;
    };
    std::vector<Node> nodes;
    std::vector<Node> path;
  };

  // Appends the ids of `word`, which has less than 2^32 bytes.
  void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  Unigram(const TokenizerSpec& spec, const Vocabulary& vocabulary)
      : vocabulary_(&vocabulary),
        scores_(spec.scores),
        byte_fallback_(spec.byte_fallback),
        unknown_(spec.unknown) {}
  void find_best(std::string_view word, std::vector<Scratch::Node>& nodes) const;
  void emit_unknown(std::string_view text, std::vector<TokenId>& out) const;

  const Vocabulary* vocabulary_;
  std::vector<double> scores_;
  bool byte_fallback_;
  TokenId unknown_;
  Trie trie_;
  double unknown_score_ = 0;
};

}  // namespace skein
