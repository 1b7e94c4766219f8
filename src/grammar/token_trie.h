// The tokens of a vocabulary as tries, so that a mask is one walk.
//
// The tokens are cut into slices. Most of a vocabulary is plain text that may stand inside a JSON
// string as it is: where a state takes all texts of a slice, its mask is used as a whole and its
// trie is not walked. Tokens without bytes and control tokens are in no trie.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace skein::grammar {

// One bit a token, in words of 64.
class TokenMask {
 public:
  explicit TokenMask(uint32_t tokens) : words_((tokens + 63) / 64, 0) {}
  void set(TokenId token) { words_[static_cast<uint32_t>(token) / 64] |= bit(token); }
  void clear(TokenId token) { words_[static_cast<uint32_t>(token) / 64] &= ~bit(token); }
  bool has(TokenId token) const {
    return (words_[static_cast<uint32_t>(token) / 64] & bit(token)) != 0;
  }
  void add(const TokenMask& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  uint64_t bytes() const { return words_.size() * 8; }
  const std::vector<uint64_t>& words() const { return words_; }
  friend bool operator==(const TokenMask&, const TokenMask&) = default;

 private:
  static uint64_t bit(TokenId token) { return uint64_t{1} << (static_cast<uint32_t>(token) % 64); }
  std::vector<uint64_t> words_;
};

class TokenTrie {
 public:
  // The bytes of every token, by id; empty for one that no form may use. Fails where a byte of
  // UTF-8 is no token by itself: a form could then stop in the middle.
  static Result<std::shared_ptr<const TokenTrie>> make(std::vector<std::string> tokens);

  struct Node {
    uint32_t first_child;  // children stand side by side
    TokenId token;         // that ends here, or kNoToken
    uint8_t byte;
    uint8_t unused = 0;
    uint16_t children;
  };
  struct Slice {
    // Bytes that a token of it may have; 0: the last slice, of tokens that are not plain text or
    // are longer.
    uint32_t longest;
    TokenMask mask;           // its tokens
    std::vector<Node> nodes;  // nodes[0] is the root
  };

  uint32_t size() const { return static_cast<uint32_t>(tokens_.size()); }
  std::string_view bytes_of(TokenId token) const { return tokens_[static_cast<size_t>(token)]; }
  uint32_t longest() const { return longest_; }
  const std::vector<Slice>& slices() const { return slices_; }
  // The next token with the same bytes, or kNoToken.
  TokenId same_bytes(TokenId token) const { return same_[static_cast<size_t>(token)]; }

 private:
  TokenTrie() = default;
  std::vector<std::string> tokens_;
  std::vector<TokenId> same_;
  std::vector<Slice> slices_;
  uint32_t longest_ = 0;
};

}  // namespace skein::grammar
