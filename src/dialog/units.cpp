#include "dialog/units.h"

#include <algorithm>

namespace skein::dialog {
namespace {

constexpr size_t kMaxPatternSpace = 64;  // so that what is held back stays small

bool is_space_char(char c) {
  return is_space(static_cast<unsigned char>(c));
}

// The length of the marker at the start of `text`, 0 where there is none.
size_t marker_length(std::string_view text) {
  if (text.empty() || (text[0] != '<' && text[0] != '[')) return 0;
  const char close = text[0] == '<' ? '>' : ']';
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == close) return i >= 2 ? i + 1 : 0;
    if (text[i] == text[0] || is_space_char(text[i])) return 0;
  }
  return 0;
}

}  // namespace

std::vector<std::string_view> markers_in(std::string_view text) {
  std::vector<std::string_view> found;
  for (size_t i = 0; i < text.size(); ++i) {
    if (const size_t length = marker_length(text.substr(i)); length > 0) {
      found.push_back(text.substr(i, length));
      i += length - 1;
    }
  }
  return found;
}

FitResult fit(const Pattern& pattern, std::span<const Unit> text) {
  if (pattern.empty()) return {Fit::kNo};
  size_t at = 0;
  for (const Unit unit : pattern) {
    if (unit == kAnySpace) {
      const size_t begin = at;
      while (at < text.size() && is_space(text[at])) ++at;
      if (at - begin > kMaxPatternSpace) return {Fit::kNo};
      continue;
    }
    if (at == text.size()) return {Fit::kPart};
    if (text[at] != unit) return {Fit::kNo};
    ++at;
  }
  return {Fit::kFull, at};
}

Markers::Markers(const Tokenizer& tokenizer, std::span<const std::string> texts) {
  for (const std::string& text : texts) {
    for (const std::string_view marker : markers_in(text)) {
      const auto same = [&](const Marker& m) { return m.text == marker; };
      if (std::any_of(markers_.begin(), markers_.end(), same)) continue;
      const auto as_token = tokenizer.encode(marker, {.parse_special = true});
      const auto as_text = tokenizer.encode(marker, {.parse_special = false});
      if (!as_token.ok() || as_token->size() != 1) continue;
      if (as_text.ok() && *as_text == *as_token) continue;  // out of text as well: bytes tell it
      markers_.push_back(
          {std::string(marker), as_token->front(), tokenizer.is_control(as_token->front())});
    }
  }
  // Of two that begin alike the longer one is looked for first.
  std::stable_sort(markers_.begin(), markers_.end(),
                   [](const Marker& a, const Marker& b) { return a.text.size() > b.text.size(); });
}

Pattern Markers::pattern(std::string_view text) const {
  Pattern out;
  const auto any_space = [&] {
    if (!out.empty() && out.back() != kAnySpace) out.push_back(kAnySpace);
  };
  while (!text.empty()) {
    size_t length = marker_length(text);
    const auto found = std::find_if(markers_.begin(), markers_.end(), [&](const Marker& marker) {
      return text.starts_with(marker.text);
    });
    if (found != markers_.end()) {
      out.push_back(static_cast<Unit>(kFirstMarker + (found - markers_.begin())));
      length = found->text.size();
      any_space();
    } else if (is_space_char(text[0])) {
      length = 1;
      any_space();
    } else {
      const size_t bytes = std::max<size_t>(length, 1);
      for (const char c : text.substr(0, bytes)) out.push_back(static_cast<unsigned char>(c));
      if (length > 0) any_space();
      length = bytes;
    }
    text.remove_prefix(length);
  }
  while (!out.empty() && out.back() == kAnySpace) out.pop_back();
  return out;
}

std::vector<TokenId> Markers::tokens() const {
  std::vector<TokenId> out;
  for (const Marker& marker : markers_) out.push_back(marker.token);
  return out;
}

TokenId Markers::token(std::string_view text) const {
  for (const Marker& marker : markers_) {
    if (marker.text == text) return marker.token;
  }
  return kNoToken;
}

Unit Markers::unit_of(TokenId token) const {
  for (size_t i = 0; i < markers_.size(); ++i) {
    if (markers_[i].token == token) return static_cast<Unit>(kFirstMarker + i);
  }
  return 0;
}

void Markers::append_text(Unit unit, std::string& out) const {
  if (unit < kFirstMarker) {
    out.push_back(static_cast<char>(unit));
  } else if (!markers_[unit - kFirstMarker].control) {
    out += markers_[unit - kFirstMarker].text;
  }
}

void Markers::append_spelling(Unit unit, std::string& out) const {
  if (unit < kFirstMarker) {
    out.push_back(static_cast<char>(unit));
  } else {
    out += markers_[unit - kFirstMarker].text;
  }
}

}  // namespace skein::dialog
