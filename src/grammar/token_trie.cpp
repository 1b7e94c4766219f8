#include "grammar/token_trie.h"

#include <algorithm>
#include <array>
#include <deque>

#include "grammar/string_tokens.h"

namespace skein::grammar {
namespace {

// A string that may have 20 more bytes takes plain tokens of up to 10 as they are.
constexpr std::array<uint32_t, 5> kPlainBytes = {0, 4, 10, 30, 128};

// Vocabularies have some three million bytes. A node is 12 bytes, and there may be one for every
// byte of every level: a file of long tokens that nobody needs must not take all memory.
constexpr size_t kMaxTokenBytes = size_t{1} << 23;
// Every form walks as deep as its longest token.
constexpr size_t kLongestToken = 4096;

// `sorted` has tokens by their bytes; each stands for all with the same bytes.
std::vector<TokenTrie::Node> trie_of(const std::vector<std::string>& tokens,
                                     const std::vector<TokenId>& sorted) {
  struct Open {
    uint32_t node;
    uint32_t from, to, depth;
  };
  std::vector<TokenTrie::Node> nodes{{0, kNoToken, 0, 0, 0}};
  std::vector<Open> open{{0, 0, static_cast<uint32_t>(sorted.size()), 0}};
  const auto byte_at = [&](uint32_t i, uint32_t depth) {
    return static_cast<uint8_t>(tokens[static_cast<size_t>(sorted[i])][depth]);
  };
  while (!open.empty()) {
    const Open at = open.back();
    open.pop_back();
    nodes[at.node].first_child = static_cast<uint32_t>(nodes.size());
    const size_t first_open = open.size();
    for (uint32_t i = at.from; i < at.to;) {
      uint32_t end = i + 1;
      while (end < at.to && byte_at(end, at.depth) == byte_at(i, at.depth)) ++end;
      TokenId token = kNoToken;
      uint32_t rest = i;
      if (tokens[static_cast<size_t>(sorted[i])].size() == at.depth + 1) token = sorted[rest++];
      if (rest < end) {
        open.push_back({static_cast<uint32_t>(nodes.size()), rest, end, at.depth + 1});
      }
      nodes.push_back({0, token, byte_at(i, at.depth), 0, 0});
      ++nodes[at.node].children;
      i = end;
    }
    std::reverse(open.begin() + static_cast<std::ptrdiff_t>(first_open), open.end());
  }
  return nodes;
}

}  // namespace

// Each of `different` stands for all with the same bytes, which hang behind it in a list.
void TokenTrie::link_same_bytes(const std::vector<TokenId>& sorted,
                                std::vector<TokenId>& different) {
  same_.assign(tokens_.size(), kNoToken);
  for (const TokenId token : sorted) {
    if (different.empty() || bytes_of(different.back()) != bytes_of(token)) {
      different.push_back(token);
      continue;
    }
    const auto first = static_cast<size_t>(different.back());
    same_[static_cast<size_t>(token)] = same_[first];
    same_[first] = token;
  }
}

// `plain` has one of those with the same bytes, and gets the others.
void TokenTrie::add_level(uint32_t longest, const std::vector<TokenId>& different,
                          TokenMask plain) {
  std::vector<TokenId> others;
  for (const TokenId first : different) {
    if (!plain.has(first)) {
      others.push_back(first);
      continue;
    }
    for (TokenId token = first; token != kNoToken; token = same_bytes(token)) plain.set(token);
  }
  levels_.push_back({longest, std::move(plain), trie_of(tokens_, others)});
}

void TokenTrie::add_string_level(const std::vector<TokenId>& different) {
  const std::shared_ptr<const TokenMask> inside = tokens_inside_string(*this);
  if (inside == nullptr) return;
  add_level(longest_, different, *inside);
  levels_.back().in_string = true;
}

Result<std::shared_ptr<const TokenTrie>> TokenTrie::make(std::vector<std::string> tokens) {
  std::shared_ptr<TokenTrie> trie(new TokenTrie(static_cast<uint32_t>(tokens.size())));
  std::vector<TokenId> sorted;
  std::array<bool, 256> starts{};
  size_t bytes = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].empty()) continue;
    bytes += tokens[i].size();
    if (tokens[i].size() > kLongestToken) {
      return unimplemented("a token of this vocabulary has {} bytes, forms take at most {}",
                           tokens[i].size(), kLongestToken);
    }
    if (tokens[i].size() == 1) starts[static_cast<uint8_t>(tokens[i][0])] = true;
    const auto token = static_cast<TokenId>(i);
    sorted.push_back(token);
    trie->all_.set(token);
    if (tokens[i][0] == ' ') trie->leading_space_.set(token);
    trie->longest_ = std::max(trie->longest_, static_cast<uint32_t>(tokens[i].size()));
  }
  if (bytes > kMaxTokenBytes) {
    return unimplemented("the tokens of this vocabulary have {} bytes, forms take at most {}",
                         bytes, kMaxTokenBytes);
  }
  for (uint32_t b = 0; b < 256; ++b) {
    // A vocabulary may lack control characters and the first bytes of rare scripts: there is
    // another way on wherever a form allows any text, and one that insists on them says that it
    // cannot.
    if (starts[b] || b < 0x20 || b == 0x7F || b >= 0xC0) continue;
    return unimplemented("no token of this vocabulary is the byte 0x{:02x} alone", b);
  }
  std::sort(sorted.begin(), sorted.end(), [&](TokenId a, TokenId b) {
    const int order = tokens[static_cast<size_t>(a)].compare(tokens[static_cast<size_t>(b)]);
    return order != 0 ? order < 0 : a < b;
  });
  trie->tokens_ = std::move(tokens);
  std::vector<TokenId> different;
  trie->link_same_bytes(sorted, different);
  std::vector<TokenMask> plain(kPlainBytes.size(), TokenMask(trie->size()));
  for (const TokenId token : different) {
    if (!plain_characters(trie->bytes_of(token))) continue;
    for (size_t i = 0; i < plain.size(); ++i) {
      if (trie->bytes_of(token).size() <= kPlainBytes[i]) plain[i].set(token);
    }
  }
  for (size_t i = 0; i < plain.size(); ++i) {
    trie->add_level(kPlainBytes[i], different, std::move(plain[i]));
  }
  trie->add_string_level(different);
  trie->json_string_ = string_tokens(*trie);
  return std::shared_ptr<const TokenTrie>(trie);
}

uint64_t TokenTrie::memory_bytes() const {
  uint64_t bytes = tokens_.size() * (sizeof(std::string) + sizeof(TokenId)) + 2 * all_.bytes();
  for (const std::string& token : tokens_) bytes += token.capacity();
  for (const Level& level : levels_) {
    bytes += level.plain.bytes() + level.nodes.size() * sizeof(Node);
  }
  if (json_string_ != nullptr) {
    bytes +=
        json_string_->within.size() * (sizeof(StringTokens::Within) + all_.bytes()) +
        (json_string_->tokens.size() + json_string_->nodes.size()) * sizeof(StringTokens::Quote);
  }
  return bytes;
}

}  // namespace skein::grammar
