// What an answer is made of for its reader: bytes, and markers that are tokens by themselves.
//
// A marker that the vocabulary has as a control token, or keeps for its template alone, counts only
// as that token: the same letters out of other tokens are text. Where it is no token, or without a
// vocabulary, its bytes count.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer.h"

namespace skein::dialog {

using Unit = uint16_t;  // a byte, or kFirstMarker and the number of a marker
inline constexpr Unit kFirstMarker = 256;
inline constexpr Unit kAnySpace = 0xFFFF;  // in a pattern: white space, none too

inline bool is_space(Unit unit) {
  return unit == ' ' || unit == '\n' || unit == '\r' || unit == '\t';
}

using Pattern = std::vector<Unit>;  // empty: nothing is looked for

enum class Fit : uint8_t { kNo, kPart, kFull };
struct FitResult {
  Fit fit;
  size_t length = 0;  // of the text, where it is full
};
// Whether `text` begins with the pattern, or is the beginning of it. An empty pattern never fits.
FitResult fit(const Pattern& pattern, std::span<const Unit> text);

class Markers {
 public:
  Markers() = default;  // without a vocabulary
  // Those among the markers in `texts` that are tokens of their own.
  Markers(const Tokenizer& tokenizer, std::span<const std::string> texts);

  // White space at the ends is dropped; what is inside, and what follows a marker, is any.
  Pattern pattern(std::string_view text) const;
  // Those that are tokens, and the token of one of them; kNoToken where it is none.
  std::vector<TokenId> tokens() const;
  TokenId token(std::string_view marker) const;
  // 0 where the token is none of the markers.
  Unit unit_of(TokenId token) const;
  // What a unit shows as text: nothing, if it is a control token.
  void append_text(Unit unit, std::string& out) const;
  // The unit as the template spells it.
  void append_spelling(Unit unit, std::string& out) const;

 private:
  struct Marker {
    std::string text;
    TokenId token;
    bool control;
  };
  std::vector<Marker> markers_;
};

// The markers in a piece of a template: <..> and [..] without white space inside.
std::vector<std::string_view> markers_in(std::string_view text);

}  // namespace skein::dialog
