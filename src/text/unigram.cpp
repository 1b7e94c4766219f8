#include "text/unigram.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "text/utf8.h"

namespace skein {
namespace {

constexpr uint32_t kNowhere = UINT32_MAX;
constexpr double kUnknownPenalty = 10.0;

}  // namespace

Result<Unigram> Unigram::create(const TokenizerSpec& spec, const Vocabulary& vocabulary) {
  Unigram model(spec, vocabulary);
  std::vector<Trie::Key> keys;
  double lowest = 0;
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (!std::isfinite(spec.scores[i])) {
      return invalid_argument("tokenizer: the score of piece {} is {}", i, spec.scores[i]);
    }
    if (!vocabulary.encodable(id)) continue;
    const std::string_view key = vocabulary.key(id);
    if (key.size() > kMaxPieceBytes) {
      return out_of_range("tokenizer: piece {} has {} bytes, at most {} are supported", i,
                          key.size(), kMaxPieceBytes);
    }
    keys.emplace_back(key, id);
    if (vocabulary.type(id) == TokenType::kNormal) lowest = std::min(lowest, spec.scores[i]);
  }
  model.trie_ = Trie(std::move(keys));
  model.unknown_score_ = lowest - kUnknownPenalty;
  return model;
}

void Unigram::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  if (word.empty()) return;
  find_best(word, scratch.nodes);
  // Back from the end; path[i].begin is where its piece starts.
  scratch.path.clear();
  for (auto at = static_cast<uint32_t>(word.size()); at > 0; at = scratch.nodes[at].begin) {
    scratch.path.push_back(scratch.nodes[at]);
  }
  std::vector<Scratch::Node>& path = scratch.path;
  size_t unknown_from = word.size();  // unknown characters side by side are one unknown
  for (size_t i = path.size(); i-- > 0;) {
    const size_t end = i == 0 ? word.size() : path[i - 1].begin;
    if (path[i].id == kNoToken) {
      unknown_from = std::min<size_t>(unknown_from, path[i].begin);
      if (i == 0 || path[i - 1].id != kNoToken) {
        emit_unknown(word.substr(unknown_from, end - unknown_from), out);
        unknown_from = word.size();
      }
    } else {
      out.push_back(path[i].id);
    }
  }
}

void Unigram::find_best(std::string_view word, std::vector<Scratch::Node>& nodes) const {
  nodes.assign(word.size() + 1, {0, kNowhere, kNoToken});
  nodes[0].begin = 0;
  const auto offer = [&](size_t begin, size_t end, double score, TokenId id) {
    Scratch::Node& node = nodes[end];
    if (node.begin == kNowhere || score > node.score) {
      node = {score, static_cast<uint32_t>(begin), id};
    }
  };
  for (size_t at = 0; at < word.size();) {
    const size_t length = utf8_next(word.substr(at, 4)).length;
    bool covered = false;  // by a piece of this one character
    const double score = nodes[at].score;
    trie_.prefixes(word.substr(at), [&](size_t matched, TokenId id) {
      offer(at, at + matched, score + scores_[static_cast<size_t>(id)], id);
      covered |= matched == length;
    });
    if (!covered) offer(at, at + length, score + unknown_score_, kNoToken);
    at += length;
  }
}

void Unigram::emit_unknown(std::string_view text, std::vector<TokenId>& out) const {
  const auto has_piece = [&](char c) {
    return vocabulary_->byte_piece(static_cast<uint8_t>(c)) != kNoToken;
  };
  if (byte_fallback_ && std::all_of(text.begin(), text.end(), has_piece)) {
    for (const char c : text) out.push_back(vocabulary_->byte_piece(static_cast<uint8_t>(c)));
  } else if (unknown_ != kNoToken) {
    out.push_back(unknown_);
  }
}

}  // namespace skein
