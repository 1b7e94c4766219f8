#include "text/charsmap.h"

#include <cstring>

#include "text/utf8.h"

namespace skein {
namespace {

// Real maps have keys of a few characters; a trie made to have loops does not get further.
constexpr size_t kMaxKeyBytes = 64;

// A unit of the double array: bit 31 marks a value (the rest), else the label is in the low byte,
// bit 8 says that a value hangs below, and bits 9 to 31 are the offset of the children, scaled by
// 256 when bit 9 is set.
bool has_leaf(uint32_t unit) {
  return ((unit >> 8) & 1) != 0;
}
uint32_t value_of(uint32_t unit) {
  return unit & 0x7FFFFFFFU;
}
uint32_t label_of(uint32_t unit) {
  return unit & 0x800000FFU;
}
uint32_t offset_of(uint32_t unit) {
  return (unit >> 10) << ((unit & 0x200U) >> 6);
}

}  // namespace

Result<Charsmap> Charsmap::parse(std::string_view blob) {
  uint32_t trie_bytes = 0;
  if (blob.size() < sizeof(trie_bytes)) {
    return data_loss("precompiled_charsmap: {} bytes, the header alone has {}", blob.size(),
                     sizeof(trie_bytes));
  }
  std::memcpy(&trie_bytes, blob.data(), sizeof(trie_bytes));
  blob.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes > blob.size()) {
    return data_loss("precompiled_charsmap: a trie of {} bytes in {}", trie_bytes, blob.size());
  }
  Charsmap map;
  map.units_.resize(trie_bytes / 4);
  std::memcpy(map.units_.data(), blob.data(), trie_bytes);
  map.replacements_ = blob.substr(trie_bytes);
  if (map.replacements_.empty() || map.replacements_.back() != '\0') {
    return data_loss("precompiled_charsmap: the replacements do not end with a zero byte");
  }
  return map;
}

Charsmap::Match Charsmap::longest_match(std::string_view text) const {
  Match best;
  size_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label_of(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit) || node >= units_.size()) continue;
    const uint32_t value = value_of(units_[node]);
    if (value < replacements_.size()) best = {i + 1, value};
  }
  return best;
}

std::string Charsmap::apply(std::string_view text, size_t limit) const {
  std::string out;
  out.reserve(text.size());
  while (!text.empty() && out.size() <= limit) {
    const Match match = longest_match(text.substr(0, kMaxKeyBytes));
    if (match.length == 0) {
      const size_t length = utf8_next(text).length;
      out += text.substr(0, length);
      text.remove_prefix(length);
    } else {
      // parse() saw to the zero at the end.
      const std::string_view replacement = replacements_.c_str() + match.replacement;
      out += replacement.substr(0, limit);
      text.remove_prefix(match.length);
    }
  }
  return out;
}

}  // namespace skein
