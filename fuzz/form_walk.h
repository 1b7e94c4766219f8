// What the fuzz targets of forms do with rules that were taken.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "grammar/compiled_grammar.h"

namespace skein::fuzz {

inline std::shared_ptr<const grammar::TokenTrie> form_vocabulary() {
  static const auto trie = [] {
    std::vector<std::string> tokens;
    for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
    for (const char* more : {"{\"", "\":", "\",\"", "\"}", "]}", "null", "12", "ab", "abc",
                             "aaaaaaaaaaaa", "\xC3", "\xA9", "\\u00"}) {
      tokens.emplace_back(more);
    }
    return grammar::TokenTrie::make(std::move(tokens)).value();
  }();
  return trie;
}

// Chooses tokens by the bytes of the input.
inline void walk_form(grammar::Rules rules, std::string_view input) {
  const auto trie = form_vocabulary();
  auto compiled =
      grammar::compile(std::move(rules), trie, {.automaton_bytes = 1 << 18, .mask_bytes = 4096});
  if (!compiled.ok()) return;
  grammar::Matcher matcher(*compiled);
  for (size_t step = 0; step < 24 && !matcher.must_end(); ++step) {
    const grammar::TokenMask* mask = matcher.mask();
    if (mask == nullptr) return;
    const size_t first =
        (step < input.size() ? static_cast<uint8_t>(input[step]) : step) * 7 % trie->size();
    TokenId chosen = kNoToken;
    for (size_t i = 0; i < trie->size() && chosen == kNoToken; ++i) {
      const auto token = static_cast<TokenId>((first + i) % trie->size());
      if (mask->has(token)) chosen = token;
    }
    if (chosen == kNoToken) {
      SKEIN_CHECK(matcher.may_end() || matcher.failed(), "no way on after '{}'", matcher.text());
      return;
    }
    SKEIN_CHECK(matcher.allows(chosen) || matcher.failed(), "a mask allows what the form does not");
    SKEIN_CHECK(matcher.advance(chosen) || matcher.failed(), "an allowed token is not taken");
    if (matcher.failed()) return;
  }
}

}  // namespace skein::fuzz
