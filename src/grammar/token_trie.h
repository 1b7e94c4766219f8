// The tokens of a vocabulary as tries, so that a mask is one walk.
//
// Most of a vocabulary is plain text that may stand inside a JSON string as it is. Where a state
// takes all plain text up to some length, the mask of those tokens is copied, and only the trie of
// the others is walked: there is one pair of them per length, and a last one for all that may stand
// inside a string, with escapes and characters that are cut. Tokens without bytes and control
// tokens are in no trie.
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
  void remove(const TokenMask& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] &= ~other.words_[i];
  }
  bool has_all(const TokenMask& other) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      if ((other.words_[i] & ~words_[i]) != 0) return false;
    }
    return true;
  }
  // Every token that has bytes is in it, so it need not be applied to them.
  bool is_free() const { return is_free_; }
  void note_free(const TokenMask& all) { is_free_ = has_all(all); }
  uint64_t bytes() const { return words_.size() * 8; }
  const std::vector<uint64_t>& words() const { return words_; }
  friend bool operator==(const TokenMask&, const TokenMask&) = default;

 private:
  static uint64_t bit(TokenId token) { return uint64_t{1} << (static_cast<uint32_t>(token) % 64); }
  std::vector<uint64_t> words_;
  bool is_free_ = false;
};

struct StringTokens;

class TokenTrie {
 public:
  // The bytes of every token, by id; empty for one that no form may use. Fails where a printable
  // ASCII character or a byte inside a UTF-8 character is no token by itself: a form could then
  // stop in the middle.
  static Result<std::shared_ptr<const TokenTrie>> make(std::vector<std::string> tokens);

  struct Node {
    uint32_t first_child;  // children stand side by side
    TokenId token;         // that ends here, or kNoToken
    uint8_t byte;
    uint8_t unused = 0;
    uint16_t children;
  };
  struct Level {
    uint32_t longest;         // plain tokens of at most so many bytes are in `plain`; 0: none
    TokenMask plain;          // those tokens
    std::vector<Node> nodes;  // all others; nodes[0] is the root
    bool in_string = false;   // `plain` has what may stand inside a JSON string
  };

  uint32_t size() const { return static_cast<uint32_t>(tokens_.size()); }
  std::string_view bytes_of(TokenId token) const {  // none for what is no token
    const auto at = static_cast<size_t>(token);
    return at < tokens_.size() ? tokens_[at] : std::string_view();
  }
  uint32_t longest() const { return longest_; }
  uint64_t memory_bytes() const;
  const std::vector<Level>& levels() const { return levels_; }
  const StringTokens* json_string() const { return json_string_.get(); }
  const TokenMask& all() const { return all_; }                      // that have bytes
  const TokenMask& leading_space() const { return leading_space_; }  // that begin with a space
  // The next token with the same bytes, or kNoToken.
  TokenId same_bytes(TokenId token) const { return same_[static_cast<size_t>(token)]; }

 private:
  explicit TokenTrie(uint32_t tokens) : all_(tokens), leading_space_(tokens) {}
  void link_same_bytes(const std::vector<TokenId>& sorted, std::vector<TokenId>& different);
  void add_level(uint32_t longest, const std::vector<TokenId>& different, TokenMask plain);
  void add_string_level(const std::vector<TokenId>& different);
  std::vector<std::string> tokens_;
  std::vector<TokenId> same_;
  std::vector<Level> levels_;
  TokenMask all_, leading_space_;
  std::shared_ptr<const StringTokens> json_string_;
  uint32_t longest_ = 0;
};

}  // namespace skein::grammar
