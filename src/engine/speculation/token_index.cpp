#include "engine/speculation/token_index.h"

#include <algorithm>

namespace skein {

uint32_t TokenIndex::hash_of(const TokenId* gram) {
  uint64_t hash = 0;
  for (uint32_t i = 0; i < kLeastMatch; ++i) {
    hash = (hash ^ static_cast<uint32_t>(gram[i])) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 29;
  }
  return static_cast<uint32_t>(hash >> 16);
}

bool TokenIndex::ends_gram(uint32_t end) const {
  if (end < kLeastMatch) return false;
  const TokenId* const gram = tokens_.data() + end - kLeastMatch;
  return std::all_of(gram, gram + kLeastMatch, [](TokenId token) { return token != kNoToken; });
}

void TokenIndex::append(TokenId token) {
  const uint32_t end = size();
  tokens_.push_back(token);
  earlier_.push_back(0);
  if (size() > heads_.size()) grow();
  // Of the end alone nothing is known that follows, so it is linked with the token behind it.
  if (token != kNoToken && ends_gram(end)) link(end);
}

void TokenIndex::append(std::span<const TokenId> tokens) {
  tokens_.reserve(tokens_.size() + tokens.size());
  earlier_.reserve(earlier_.size() + tokens.size());
  for (const TokenId token : tokens) append(token);
}

void TokenIndex::link(uint32_t end) {
  uint32_t& head = heads_[hash_of(tokens_.data() + end - kLeastMatch) & (heads_.size() - 1)];
  earlier_[end] = head;
  head = end;
}

void TokenIndex::grow() {
  heads_.assign(std::max<size_t>(256, 2 * heads_.size()), 0);
  for (uint32_t end = 0; end + 1 < size(); ++end) {
    if (tokens_[end] != kNoToken && ends_gram(end)) link(end);
  }
}

uint32_t TokenIndex::length_at(std::span<const TokenId> text, uint32_t end) const {
  const auto most =
      static_cast<uint32_t>(std::min<size_t>({end, text.size(), size_t{kLongestMatch}}));
  uint32_t length = 0;
  while (length < most && tokens_[end - 1 - length] == text[text.size() - 1 - length] &&
         tokens_[end - 1 - length] != kNoToken) {
    ++length;
  }
  return length;
}

TokenIndex::Match TokenIndex::find(std::span<const TokenId> text) const {
  Match best;
  if (text.size() < kLeastMatch || heads_.empty()) return best;
  const TokenId* const gram = text.data() + text.size() - kLeastMatch;
  uint32_t end = heads_[hash_of(gram) & (heads_.size() - 1)];
  for (uint32_t places = 0; end != 0 && places < kMostPlaces; ++places) {
    const uint32_t length = length_at(text, end);
    if (length >= kLeastMatch && length > best.length) best = {end, length};
    if (best.length == kLongestMatch) break;
    end = earlier_[end];
  }
  return best;
}

}  // namespace skein
