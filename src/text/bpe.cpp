#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <string>

#include "text/utf8.h"

namespace skein {
namespace {

// Up to here a scan for the best pair beats a heap.
constexpr size_t kShortWord = 48;
constexpr uint32_t kEnd = UINT32_MAX;

// Where the first U+2581 that follows another character is, or npos.
size_t inner_metaspace(std::string_view text) {
  for (size_t at = text.find(kMetaspace, 1); at != std::string_view::npos;
       at = text.find(kMetaspace, at + 1)) {
    if (at < kMetaspace.size() ||
        text.substr(at - kMetaspace.size(), kMetaspace.size()) != kMetaspace) {
      return at;
    }
  }
  return std::string_view::npos;
}

// Orders floats as unsigned integers, the greatest first, so that a score is a rank.
uint32_t rank_of_score(double score) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(score));
  const uint32_t ascending = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return std::min(~ascending, UINT32_MAX - 1);  // the greatest means no pair
}

}  // namespace

Bpe::Bpe(const TokenizerSpec& spec, const Vocabulary& vocabulary)
    : vocabulary_(&vocabulary),
      byte_level_(spec.byte_level),
      byte_fallback_(spec.byte_fallback),
      ignore_merges_(spec.ignore_merges),
      fuse_unknown_(spec.fuse_unknown),
      unknown_(spec.unknown),
      self_(std::make_unique<std::atomic<uint8_t>[]>(vocabulary.size())) {}

Result<Bpe> Bpe::create(const TokenizerSpec& spec, const Vocabulary& vocabulary) {
  Bpe bpe(spec, vocabulary);
  if (spec.model == TokenizerSpec::Model::kBpe) {
    SKEIN_TRY(bpe.add_listed_merges(spec.merges));
  } else {
    SKEIN_TRY(bpe.add_scored_merges(spec.scores));
  }
  bpe.cut_at_metaspace_ = !spec.byte_level;
  for (size_t i = 0; bpe.cut_at_metaspace_ && i < vocabulary.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (vocabulary.encodable(id) && inner_metaspace(vocabulary.key(id)) != std::string_view::npos) {
      bpe.cut_at_metaspace_ = false;
    }
  }
  return bpe;
}

Status Bpe::add_listed_merges(const FlatStrings& merges) {
  const size_t count = merges.size() / 2;
  if (count > kMaxMerges) {
    return out_of_range("tokenizer: {} merges, at most {} are supported", count, kMaxMerges);
  }
  reserve_merges(count);
  std::string joined;
  for (size_t i = 0; i < count; ++i) {
    const std::string_view left = merges[2 * i];
    const std::string_view right = merges[2 * i + 1];
    joined.assign(left);
    joined += right;
    const Merge merge = {vocabulary_->find(left), vocabulary_->find(right),
                         static_cast<uint32_t>(i), vocabulary_->find(joined)};
    if (merge.left == kNoToken || merge.right == kNoToken || merge.id == kNoToken) {
      return invalid_argument(
          "tokenizer: merge {} ('{}' with '{}') names a piece that is not there", i, left, right);
    }
    if (vocabulary_->encodable(merge.id)) add_merge(merge);
  }
  return {};
}

Status Bpe::add_scored_merges(std::span<const double> scores) {
  const size_t pieces = vocabulary_->size();
  size_t characters = 0;
  for (size_t i = 0; i < pieces; ++i) {
    const auto id = static_cast<TokenId>(i);
    if (!vocabulary_->encodable(id)) continue;
    if (vocabulary_->key(id).size() > kMaxPieceBytes) {
      return out_of_range("tokenizer: piece {} has {} bytes, at most {} are supported", i,
                          vocabulary_->key(id).size(), kMaxPieceBytes);
    }
    for (std::string_view rest = vocabulary_->key(id); !rest.empty(); ++characters) {
      const std::string_view character = rest.substr(0, utf8_next(rest).length);
      if (vocabulary_->find_encodable(character) == kNoToken)
        extra_characters_.push_back(character);
      rest.remove_prefix(character.size());
    }
  }
  extra_map_ = PieceMap(extra_characters_.size());
  for (size_t i = 0; i < extra_characters_.size(); ++i) {
    extra_map_.insert(extra_characters_, static_cast<TokenId>(i));
  }
  reserve_merges(characters);
  for (size_t i = 0; i < pieces; ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string_view key = vocabulary_->key(id);
    if (!vocabulary_->encodable(id) || vocabulary_->find_encodable(key) != id) continue;
    for (size_t at = utf8_next(key).length; at < key.size();
         at += utf8_next(key.substr(at)).length) {
      const TokenId left = symbol_of(key.substr(0, at));
      const TokenId right = symbol_of(key.substr(at));
      if (left != kNoToken && right != kNoToken)
        add_merge({left, right, rank_of_score(scores[i]), id});
    }
  }
  return {};
}

void Bpe::reserve_merges(size_t count) {
  merges_.resize(std::bit_ceil(std::max<size_t>(count, 1) * 2));
  merge_shift_ = 64U - static_cast<unsigned>(std::countr_zero(merges_.size()));
}

size_t Bpe::slot_of(TokenId left, TokenId right) const {
  const uint64_t key = (static_cast<uint64_t>(left) << 32) | static_cast<uint32_t>(right);
  return static_cast<size_t>(((key ^ (key >> 29)) * 0x9e3779b97f4a7c15U) >> merge_shift_);
}

void Bpe::add_merge(const Merge& merge) {
  size_t i = slot_of(merge.left, merge.right);
  for (; merges_[i].left != kNoToken; i = (i + 1) & (merges_.size() - 1)) {
    if (merges_[i].left == merge.left && merges_[i].right == merge.right) return;
  }
  merges_[i] = merge;
}

const Bpe::Merge* Bpe::find_merge(TokenId left, TokenId right) const {
  if (left == kNoToken || right == kNoToken) return nullptr;
  for (size_t i = slot_of(left, right); merges_[i].left != kNoToken;
       i = (i + 1) & (merges_.size() - 1)) {
    if (merges_[i].left == left && merges_[i].right == right) return &merges_[i];
  }
  return nullptr;
}

void Bpe::encode(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const {
  while (cut_at_metaspace_) {
    const size_t at = inner_metaspace(text);
    if (at == std::string_view::npos) break;
    encode_word(text.substr(0, at), scratch, out);
    text.remove_prefix(at);
  }
  encode_word(text, scratch, out);
}

void Bpe::encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  if (word.empty()) return;
  // Most words are pieces, and most pieces are what their own characters merge to.
  const TokenId id = vocabulary_->find_encodable(word);
  if (id == kNoToken) return encode_merged(word, scratch, out);
  if (ignore_merges_) {
    out.push_back(id);
    return;
  }
  std::atomic<uint8_t>& self = self_[static_cast<size_t>(id)];
  // Relaxed: whoever sees kUnasked computes the same answer again.
  const uint8_t known = self.load(std::memory_order_relaxed);
  if (known == kYes) {
    out.push_back(id);
    return;
  }
  const size_t before = out.size();
  encode_merged(word, scratch, out);
  if (known == kUnasked) {
    const bool same = out.size() == before + 1 && out.back() == id;
    self.store(same ? kYes : kNo, std::memory_order_relaxed);
  }
}

TokenId Bpe::symbol_of(std::string_view character) const {
  const TokenId id = vocabulary_->find_encodable(character);
  if (id != kNoToken || extra_characters_.empty()) return id;
  const TokenId extra = extra_map_.find(extra_characters_, character);
  return extra == kNoToken ? kNoToken : static_cast<TokenId>(vocabulary_->size()) + extra;
}

void Bpe::cut(std::string_view word, std::vector<Scratch::Symbol>& symbols) const {
  symbols.clear();
  // A symbol that is no piece and cannot be called unknown is left out; its neighbours may merge.
  const bool keep_unknown = unknown_ != kNoToken || byte_fallback_;
  const auto add = [&](TokenId id, size_t begin) {
    if (id == kNoToken && !keep_unknown) return;
    const auto i = static_cast<uint32_t>(symbols.size());
    symbols.push_back({id, static_cast<uint32_t>(begin), i - 1, i + 1});
  };
  if (byte_level_) {
    for (size_t i = 0; i < word.size(); ++i) {
      add(vocabulary_->byte_piece(static_cast<uint8_t>(word[i])), i);
    }
  } else {
    for (size_t i = 0; i < word.size();) {
      const size_t length = utf8_next(word.substr(i, 4)).length;
      add(symbol_of(word.substr(i, length)), i);
      i += length;
    }
  }
  if (symbols.empty()) return;
  symbols.front().prev = kEnd;
  symbols.back().next = kEnd;
}

void Bpe::encode_merged(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  std::vector<Scratch::Symbol>& symbols = scratch.symbols;
  cut(word, symbols);
  if (symbols.empty()) return;
  if (symbols.size() <= kShortWord) {
    merge_short(symbols);
  } else {
    merge_long(scratch);
  }
  bool after_unknown = false;
  for (uint32_t i = 0; i != kEnd; i = symbols[i].next) {
    const size_t begin = symbols[i].begin;
    const size_t end = symbols[i].next == kEnd ? word.size() : symbols[symbols[i].next].begin;
    emit(word.substr(begin, end - begin), symbols[i].id, after_unknown, out);
  }
}

// Finds the best pair by looking at all of them.
void Bpe::merge_short(std::vector<Scratch::Symbol>& symbols) const {
  const Merge* pairs[kShortWord];  // pairs[i]: of symbols i and i + 1
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = find_merge(symbols[i].id, symbols[i + 1].id);
  while (count > 1) {
    uint32_t best_rank = kNoRank;
    size_t best = 0;
    for (size_t i = 0; i + 1 < count; ++i) {
      if (pairs[i] != nullptr && pairs[i]->rank < best_rank) {
        best_rank = pairs[i]->rank;
        best = i;
      }
    }
    if (best_rank == kNoRank) break;
    symbols[best].id = pairs[best]->id;
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      symbols[i].id = symbols[i + 1].id;
      symbols[i].begin = symbols[i + 1].begin;
    }
    for (size_t i = best; i + 1 < count; ++i) pairs[i] = pairs[i + 1];
    if (best > 0) pairs[best - 1] = find_merge(symbols[best - 1].id, symbols[best].id);
    if (best + 1 < count) pairs[best] = find_merge(symbols[best].id, symbols[best + 1].id);
  }
  symbols[count - 1].next = kEnd;
}

// Keeps the pairs in a heap; an entry whose pair is gone is recognised by its rank.
void Bpe::merge_long(Scratch& scratch) const {
  std::vector<Scratch::Symbol>& symbols = scratch.symbols;
  std::vector<uint64_t>& heap = scratch.heap;
  heap.clear();
  const auto entry = [&](uint32_t at) -> uint64_t {
    const uint32_t rank = rank_of(symbols[at].id, symbols[symbols[at].next].id);
    return (static_cast<uint64_t>(rank) << 32) | at;
  };
  for (uint32_t i = 0; i + 1 < symbols.size(); ++i) {
    if (const uint64_t e = entry(i); e >> 32 != kNoRank) heap.push_back(e);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](uint32_t at) {
    const uint64_t e = entry(at);
    if (e >> 32 == kNoRank) return;
    heap.push_back(e);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto at = static_cast<uint32_t>(top);
    Scratch::Symbol& left = symbols[at];
    if (left.begin == kEnd || left.next == kEnd) continue;
    Scratch::Symbol& right = symbols[left.next];
    const Merge* merge = find_merge(left.id, right.id);
    if (merge == nullptr || merge->rank != top >> 32) continue;
    left.id = merge->id;
    left.next = right.next;
    right.begin = kEnd;  // gone
    if (left.next != kEnd) {
      symbols[left.next].prev = at;
      push(at);
    }
    if (left.prev != kEnd) push(left.prev);
  }
}

void Bpe::emit(std::string_view text, TokenId id, bool& after_unknown,
               std::vector<TokenId>& out) const {
  if (vocabulary_->contains(id)) {
    out.push_back(id);
    after_unknown = false;
    return;
  }
  const auto has_piece = [&](char c) {
    return vocabulary_->byte_piece(static_cast<uint8_t>(c)) != kNoToken;
  };
  if (byte_fallback_ && std::all_of(text.begin(), text.end(), has_piece)) {
    for (const char c : text) out.push_back(vocabulary_->byte_piece(static_cast<uint8_t>(c)));
    after_unknown = false;
    return;
  }
  if (unknown_ == kNoToken) return;
  if (!(fuse_unknown_ && after_unknown)) out.push_back(unknown_);
  after_unknown = true;
}

}  // namespace skein
