#include "grammar/string_tokens.h"

#include <algorithm>
#include <bit>
#include <map>
#include <string>

#include "grammar/char_set.h"
#include "grammar/json_text.h"
#include "grammar/lexer_tokens.h"

namespace skein::grammar {
namespace {

constexpr size_t kMaxLengths = 512;  // vocabularies have some 130, the longest are rows of spaces

// What tokens do in a string without an end, by the walk of every lexer.
struct Inside {
  uint32_t level;
  TokenMask mask;
  std::vector<TokenId> tokens;  // as of the ending that its second quote is
  std::vector<uint32_t> nodes;
  uint64_t work;
};

// Nothing where the string does not end as one that has most of the vocabulary inside.
std::optional<Inside> tokens_in_string(const TokenTrie& trie, ExprId one_char(RegexStore&)) {
  Rules rules;
  RegexStore& store = *rules.regex;
  const ExprId characters = store.repeat(one_char(store), 0, kUnbounded);
  rules.start = rules.add_rule();
  rules.add(rules.start,
            {Symbol::terminal(rules.add_terminal(store.concat(characters, store.byte('"'))))});
  LexerTokens tokens(trie, store);
  Recognizer recognizer(std::move(rules));
  const LexerTokens::Entry* entry =
      tokens.of(recognizer.frames(recognizer.start())[0].lexer, recognizer);
  if (entry == nullptr || entry->mixed || entry->endings.size() != 1 || entry->mask == nullptr) {
    return std::nullopt;
  }
  Inside inside{entry->level, *entry->mask, entry->endings[0].tokens, entry->endings[0].nodes,
                entry->work};
  for (const TokenId token : entry->tokens) {
    for (TokenId t = token; t != kNoToken; t = trie.same_bytes(t)) inside.mask.set(t);
  }
  return inside;
}

// Counts the characters of what may stand inside a string.
class CharacterCounter {
 public:
  // The fewest, since a pair of escapes may be one character or two; the last one may be a part.
  // `text` is the beginning of some string, and may be as long as whoever made the model wants.
  uint32_t count(std::string_view text) {
    if (const std::optional<uint32_t> plain = plain_characters(text)) return *plain;
    std::vector<Begun> open{{kEmptyText, 0}}, next;
    for (const char c : text) {
      const auto byte = static_cast<uint8_t>(c);
      next.clear();
      for (const Begun& one : open) {
        add({store_.derivative(one.rest, byte), one.characters}, next);
        if (!store_.nullable(one.rest)) continue;
        add({store_.derivative(character_, byte), one.characters + 1}, next);
      }
      std::swap(open, next);
    }
    uint32_t fewest = UINT32_MAX;
    for (const Begun& one : open) fewest = std::min(fewest, one.characters);
    return fewest;
  }

 private:
  struct Begun {
    ExprId rest;  // of the last character
    uint32_t characters;
  };
  static void add(const Begun& one, std::vector<Begun>& to) {
    if (one.rest == kNothing) return;
    const auto same = std::find_if(to.begin(), to.end(),
                                   [&](const Begun& other) { return other.rest == one.rest; });
    if (same == to.end()) {
      to.push_back(one);
    } else {
      same->characters = std::min(same->characters, one.characters);
    }
  }

  RegexStore store_;
  const ExprId character_ = json_free_char(store_);
};

// Empty where there are too many lengths: each has a mask of the whole vocabulary.
std::vector<StringTokens::Within> by_length(const TokenTrie& trie, const TokenMask& inside,
                                            CharacterCounter& counter) {
  std::map<uint32_t, std::vector<TokenId>> of_length;
  for (size_t i = 0; i < inside.words().size(); ++i) {
    for (uint64_t rest = inside.words()[i]; rest != 0; rest &= rest - 1) {
      const auto token = static_cast<TokenId>(64 * i + static_cast<size_t>(std::countr_zero(rest)));
      of_length[counter.count(trie.bytes_of(token))].push_back(token);
    }
  }
  std::vector<StringTokens::Within> within;
  if (of_length.size() > kMaxLengths) return within;
  TokenMask mask(trie.size());
  for (const auto& [characters, tokens] : of_length) {
    for (const TokenId token : tokens) mask.set(token);
    within.push_back({characters, mask});
  }
  return within;
}

// Of nodes that are quotes, in ascending order.
std::vector<StringTokens::Quote> quotes_at(const std::vector<TokenTrie::Node>& nodes,
                                           const std::vector<uint32_t>& wanted,
                                           CharacterCounter& counter) {
  std::vector<StringTokens::Quote> quotes;
  struct Level {
    uint32_t next, end;
  };
  std::vector<Level> path{{nodes[0].first_child, nodes[0].first_child + nodes[0].children}};
  std::string text;  // of the path
  while (!path.empty()) {
    Level& level = path.back();
    if (level.next == level.end) {
      path.pop_back();
      if (!text.empty()) text.pop_back();
      continue;
    }
    const uint32_t index = level.next++;
    if (std::binary_search(wanted.begin(), wanted.end(), index)) {
      quotes.push_back({counter.count(text), index});
    }
    if (nodes[index].children == 0) continue;
    text.push_back(static_cast<char>(nodes[index].byte));
    path.push_back({nodes[index].first_child, nodes[index].first_child + nodes[index].children});
  }
  return quotes;
}

}  // namespace

std::optional<uint32_t> plain_characters(std::string_view text) {
  uint32_t characters = 0;
  for (size_t at = 0; at < text.size(); ++characters) {
    uint32_t c = 0;
    if (!next_code_point(text, at, c) || c < 0x20 || c == '"' || c == '\\') return std::nullopt;
  }
  return characters;
}

const TokenMask* StringTokens::tokens_within(uint32_t characters) const {
  const auto more =
      std::upper_bound(within.begin(), within.end(), characters,
                       [](uint32_t most, const Within& one) { return most < one.characters; });
  return more == within.begin() ? nullptr : &(more - 1)->mask;
}

std::shared_ptr<const StringTokens> string_tokens(const TokenTrie& trie) {
  std::optional<Inside> inside = tokens_in_string(trie, json_free_char);
  if (!inside) return nullptr;
  CharacterCounter counter;
  auto string = std::make_shared<StringTokens>();
  string->level = inside->level;
  string->work = inside->work;
  string->within = by_length(trie, inside->mask, counter);
  if (string->within.empty()) return nullptr;
  for (const TokenId token : inside->tokens) {
    std::string_view text = trie.bytes_of(token);
    text.remove_suffix(1);
    string->tokens.push_back({counter.count(text), static_cast<uint32_t>(token)});
  }
  std::sort(inside->nodes.begin(), inside->nodes.end());
  string->nodes = quotes_at(trie.levels()[inside->level].nodes, inside->nodes, counter);
  return string;
}

std::shared_ptr<const TokenMask> tokens_inside_string(const TokenTrie& trie) {
  std::optional<Inside> inside = tokens_in_string(trie, json_char);
  return inside ? std::make_shared<const TokenMask>(std::move(inside->mask)) : nullptr;
}

}  // namespace skein::grammar
