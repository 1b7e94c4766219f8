// Byte-pair encoding of one word: the best-ranked adjacent pair is merged, the leftmost first,
// until none is left. Both kinds are here: merges listed by rank (byte-level or over characters)
// and SentencePiece's, where any pair that makes a piece may merge and the piece's score is the
// rank.
//
// Immutable once made; any thread may encode. A word of n characters takes O(n log n).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/tokenizer_spec.h"
#include "text/vocabulary.h"

namespace skein {

class Bpe {
 public:
  // `vocabulary` must outlive the model. Reads merges, scores and flags of the spec.
  static Result<Bpe> create(const TokenizerSpec& spec, const Vocabulary& vocabulary);

  // Buffers that encode() reuses from word to word; one per thread.
  struct Scratch {
    struct Symbol {
      TokenId id;      // of a piece or of a character outside the vocabulary; kNoToken: neither
      uint32_t begin;  // in the word
      uint32_t prev;
      uint32_t next;
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;  // rank and position of pairs
  };

  // Appends the ids of `text`, which has less than 2^32 bytes and is one word as far as the
  // pre-tokenizer is concerned.
  void encode(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  // The token that two neighbours merge into.
  struct Merge {
    TokenId left = kNoToken;
    TokenId right = kNoToken;
    uint32_t rank = kNoRank;
    TokenId id = kNoToken;
  };
  // Whether merging the characters of a piece gives that piece: found out when first asked.
  enum Self : uint8_t { kUnasked, kYes, kNo };

  Bpe(const TokenizerSpec& spec, const Vocabulary& vocabulary);
  Status add_listed_merges(const FlatStrings& merges);
  Status add_scored_merges(std::span<const double> scores);
  void reserve_merges(size_t count);
  void add_merge(const Merge& merge);
  const Merge* find_merge(TokenId left, TokenId right) const;
  uint32_t rank_of(TokenId left, TokenId right) const {
    const Merge* merge = find_merge(left, right);
    return merge == nullptr ? kNoRank : merge->rank;
  }
  size_t slot_of(TokenId left, TokenId right) const;

  void encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;
  void encode_merged(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;
  void cut(std::string_view word, std::vector<Scratch::Symbol>& symbols) const;
  TokenId symbol_of(std::string_view character) const;
  void merge_short(std::vector<Scratch::Symbol>& symbols) const;
  void merge_long(Scratch& scratch) const;
  void emit(std::string_view text, TokenId id, bool& after_unknown,
            std::vector<TokenId>& out) const;

  const Vocabulary* vocabulary_;
  bool byte_level_;
  bool byte_fallback_;
  bool ignore_merges_;
  bool fuse_unknown_;
  TokenId unknown_;
  // SentencePiece hands over whole texts. When no piece has a U+2581 behind another character, no
  // merge crosses such a place, and the text may be cut there into words.
  bool cut_at_metaspace_ = false;
  std::vector<Merge> merges_;  // open addressing; the size is a power of two
  unsigned merge_shift_ = 0;
  // Characters that occur in pieces without being pieces: they may merge, so they need ids, which
  // follow those of the vocabulary.
  FlatStrings extra_characters_;
  PieceMap extra_map_;
  std::unique_ptr<std::atomic<uint8_t>[]> self_;
};

}  // namespace skein
