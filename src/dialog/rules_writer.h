// Writes rules out of a format's pieces: literal text with the markers that are tokens, and free
// text that ends at a marker.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "dialog/units.h"
#include "grammar/rules.h"

namespace skein::dialog {

using Symbols = std::vector<grammar::Symbol>;

inline grammar::ByteSet letters_and_digits() {
  return grammar::ByteSet::range('0', '9') | grammar::ByteSet::range('A', 'Z') |
         grammar::ByteSet::range('a', 'z');
}

class RulesWriter {
 public:
  // `tokens` may be empty: then all markers are bytes.
  RulesWriter(grammar::Rules& rules, const grammar::ControlTokens& tokens)
      : rules_(rules), tokens_(tokens) {}

  grammar::Rules& rules() { return rules_; }
  grammar::RegexStore& regex() { return *rules_.regex; }

  uint32_t rule(std::vector<Symbols> productions) {
    const uint32_t index = rules().add_rule();
    for (Symbols& symbols : productions) rules().add(index, std::move(symbols));
    return index;
  }
  void terminal(grammar::ExprId expression, Symbols& out) {
    out.push_back(grammar::Symbol::terminal(rules().add_terminal(expression)));
  }
  TokenId token(std::string_view marker) const { return tokens_ ? tokens_(marker) : kNoToken; }
  // The format's own text: bytes, and the markers that are tokens.
  void literal(std::string_view text, Symbols& out) {
    const auto bytes = [&](std::string_view part) {
      if (!part.empty()) terminal(regex().literal(part), out);
    };
    for (const std::string_view marker : markers_in(text)) {
      const TokenId id = token(marker);
      if (id == kNoToken) continue;
      bytes(text.substr(0, static_cast<size_t>(marker.data() - text.data())));
      out.push_back(grammar::Symbol::terminal(rules().add_token(id)));
      text.remove_prefix(static_cast<size_t>(marker.data() + marker.size() - text.data()));
    }
    bytes(text);
  }
  // Any text in which none of `markers` stands; no bytes stand for one that begins with a token.
  grammar::ExprId text_without(std::initializer_list<std::string_view> markers) {
    std::vector<grammar::ExprId> found;
    for (const std::string_view marker : markers) {
      const auto inside = markers_in(marker);
      const bool is_token =
          !inside.empty() && inside[0].data() == marker.data() && token(inside[0]) != kNoToken;
      if (!marker.empty() && !is_token) found.push_back(around(marker));
    }
    return found.empty() ? grammar::kAnything : regex().negation(regex().either(found));
  }
  void free_text(std::string_view marker, Symbols& out) { terminal(text_without({marker}), out); }
  grammar::ExprId around(std::string_view marker) {
    const std::vector<grammar::ExprId> parts = {grammar::kAnything, regex().literal(marker),
                                                grammar::kAnything};
    return regex().concat(parts);
  }

 private:
  grammar::Rules& rules_;
  const grammar::ControlTokens& tokens_;
};

}  // namespace skein::dialog
