#include "engine/speculation/drafter.h"

#include <algorithm>
#include <utility>

namespace skein {
namespace {

// What is likely before anything is known of this text, in 1/1000.
constexpr std::array<uint32_t, 8> kAtFirst = {200, 350, 150, 350, 600, 800, 900, 960};
constexpr uint32_t kLikeliest = 985;
constexpr uint32_t kUnlikeliest = 10;
// A guess with worse odds pays nowhere.
constexpr uint32_t kLeastOdds = 20;
// A place is worth looking for once so much of it was followed, for so many tokens, so far ahead.
constexpr uint32_t kLeastFollowed = 3;
constexpr uint32_t kPatience = 8;
constexpr uint32_t kNearby = 16;

}  // namespace

Drafter::Drafter(std::span<const TokenId> prompt, std::shared_ptr<EarlierAnswers> earlier)
    : prompt_tokens_(prompt.size()), earlier_(std::move(earlier)), come_true_(kAtFirst) {
  text_.append(prompt);
  guess_.reserve(kMostDrafts);
}

size_t Drafter::kind_of(uint32_t length) {
  if (length <= 3) return length;
  if (length <= 5) return 4;
  if (length <= 8) return 5;
  return length <= 16 ? 6 : 7;
}

const TokenIndex& Drafter::text_of(const Source& source) const {
  return source.text != nullptr ? *source.text : text_;
}

void Drafter::follow(std::span<const TokenId> sampled, std::vector<TokenId>& drafts,
                     std::vector<uint16_t>& odds) {
  for (const TokenId token : sampled) {
    learn(token);
    go_on(token);
    text_.append(token);
  }
  look_up();
  write(drafts, odds);
}

void Drafter::learn(TokenId sampled) {
  if (learned_ >= guess_.size()) return;
  uint32_t& come_true = come_true_[kind_of(source_.match.length)];
  if (guess_[learned_] == sampled) {
    come_true = std::min(kLikeliest, come_true + (1000 - come_true + 7) / 8);
    ++learned_;
  } else {
    come_true = std::max(kUnlikeliest, come_true - come_true / 8);
    guess_.clear();
    learned_ = 0;
  }
}

// The place that was found goes on being one where it said the same: with a search alone it would
// be lost among many that are alike.
void Drafter::go_on(TokenId sampled) {
  TokenIndex::Match& match = source_.match;
  if (match.end == 0) return;
  const std::span<const TokenId> there = text_of(source_).tokens();
  if (match.end < there.size() && there[match.end] == sampled) {
    ++match.end;
    match.length = std::min(match.length + 1, TokenIndex::kLongestMatch);
    return;
  }
  if (match.length >= kLeastFollowed) patience_ = kPatience;
  look_nearby(sampled);
}

void Drafter::look_nearby(TokenId sampled) {
  if (patience_ == 0) {
    source_ = {};
    return;
  }
  --patience_;
  TokenIndex::Match& match = source_.match;
  const std::span<const TokenId> there = text_of(source_).tokens();
  const size_t last = std::min<size_t>(there.size(), size_t{match.end} + kNearby);
  for (size_t at = match.end; at < last && there[at] != kNoToken; ++at) {
    if (there[at] != sampled) continue;
    match = {static_cast<uint32_t>(at + 1), 1};
    return;
  }
  match = {match.end + 1, 0};  // one token in the place of another
}

void Drafter::look_up() {
  const auto consider = [&](const TokenIndex& text, std::shared_ptr<const TokenIndex> holder) {
    if (source_.match.length == TokenIndex::kLongestMatch) return;
    const TokenIndex::Match match = text.find(text_.tokens());
    if (match.length > source_.match.length) source_ = {std::move(holder), match};
  };
  // A place at the end of its text says nothing.
  if (source_.match.end >= text_of(source_).size()) source_ = {};
  consider(text_, nullptr);
  for (const std::shared_ptr<const TokenIndex>& half : earlier_->halves()) consider(*half, half);
}

// Its own text may be so near that the guess goes on with itself: then it repeats.
void Drafter::write(std::vector<TokenId>& drafts, std::vector<uint16_t>& odds) {
  guess_.clear();
  learned_ = 0;
  drafts.clear();
  odds.clear();
  if (source_.match.end == 0) return;
  const std::span<const TokenId> there = text_of(source_).tokens();
  uint32_t likely = 1000;
  for (uint32_t i = 0; i < kMostDrafts; ++i) {
    const size_t at = size_t{source_.match.end} + i;
    if (at >= there.size() && source_.text != nullptr) break;
    const TokenId token = at < there.size() ? there[at] : guess_[at - there.size()];
    if (token == kNoToken) break;
    guess_.push_back(token);
    likely = likely * come_true_[kind_of(source_.match.length + i)] / 1000;
    if (likely < kLeastOdds) continue;
    drafts.push_back(token);
    odds.push_back(static_cast<uint16_t>(likely));
  }
}

void Drafter::remember_answer() {
  const std::span<const TokenId> answer = text_.tokens().subspan(prompt_tokens_);
  if (!answer.empty()) earlier_->add(answer);
}

}  // namespace skein
