#include "text/added_tokens.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "text/scan.h"

namespace skein {
namespace {

// Where the character that ends at `end` begins.
size_t char_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && end - at < 4 && (text[at] & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

Result<AddedTokens> AddedTokens::create(std::vector<AddedToken> tokens) {
  AddedTokens added;
  added.tokens_ = std::move(tokens);
  std::vector<Trie::Key> keys;
  for (size_t i = 0; i < added.tokens_.size(); ++i) {
    const std::string& text = added.tokens_[i].text;
    if (text.size() > kMaxPieceBytes) {
      return out_of_range("tokenizer: added token {} has {} bytes, at most {} are supported",
                          added.tokens_[i].id, text.size(), kMaxPieceBytes);
    }
    keys.emplace_back(text, static_cast<int32_t>(i));
  }
  added.trie_ = Trie(std::move(keys));
  return added;
}

bool AddedTokens::stands_alone(std::string_view text, size_t begin, size_t end) const {
  const Scan scan(text);
  if (begin > 0 && (scan.at(char_before(text, begin)).classes & unicode::kWord) != 0) return false;
  return (scan.at(end).classes & unicode::kWord) == 0;
}

void TrustedRanges::add(size_t begin, size_t end) {
  if (begin == end) return;
  if (!ranges_.empty() && ranges_.back().end == begin) {
    ranges_.back().end = end;
  } else {
    ranges_.push_back({begin, end});
  }
}

std::vector<TrustedRanges::Range>::const_iterator TrustedRanges::after(size_t at) const {
  return std::upper_bound(ranges_.begin(), ranges_.end(), at,
                          [](size_t place, const Range& range) { return place < range.begin; });
}

bool TrustedRanges::covers(size_t begin, size_t end) const {
  const auto next = after(begin);
  return next != ranges_.begin() && end <= std::prev(next)->end;
}

TrustedRanges TrustedRanges::within(size_t begin, size_t end) const {
  TrustedRanges out;
  auto range = after(begin);
  if (range != ranges_.begin()) --range;
  for (; range != ranges_.end() && range->begin < end; ++range) {
    const size_t from = std::max(range->begin, begin);
    const size_t to = std::min(range->end, end);
    if (from < to) out.add(from - begin, to - begin);
  }
  return out;
}

AddedTokens::Match AddedTokens::next(std::string_view text, size_t from,
                                     const TrustedRanges& trusted) const {
  for (size_t at = from; at < text.size(); ++at) {
    if (!trie_.may_start_with(text[at])) continue;
    size_t length = 0;
    size_t index = 0;
    trie_.prefixes(text.substr(at), [&](size_t matched, int32_t value) {
      if (tokens_[static_cast<size_t>(value)].special && !trusted.covers(at, at + matched)) return;
      length = matched;
      index = static_cast<size_t>(value);
    });
    if (length == 0) continue;
    const AddedToken& token = tokens_[index];
    Match match = {at, at + length, token.id};
    if (token.single_word && !stands_alone(text, match.begin, match.end)) {
      at = match.end - 1;
      continue;
    }
    const Scan scan(text);
    while (token.lstrip && match.begin > from) {
      const size_t before = char_before(text, match.begin);
      if (before < from || (scan.at(before).classes & unicode::kSpace) == 0) break;
      match.begin = before;
    }
    if (token.rstrip) match.end = scan.run(match.end, unicode::kSpace);
    return match;
  }
  return {text.size(), text.size(), kNoToken};
}

}  // namespace skein
