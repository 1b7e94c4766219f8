#include "text/normalizer.h"

#include <algorithm>
#include <cstring>
#include <utf8proc.h>
#include <utility>

#include "text/bert_text.h"
#include "text/unicode.h"
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

using Kind = NormalizerStep::Kind;

// A file's own steps may multiply text; real ones stay below 11 times (NFKC of U+FDFA).
constexpr size_t kMaxGrowth = 64;
constexpr size_t kMaxContentBytes = 64;
constexpr size_t kMaxSteps = 32;

std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string out;
  out.reserve(text.size());
  for (size_t from = 0;;) {
    const size_t at = text.find(pattern, from);
    out += text.substr(from, at == std::string_view::npos ? at : at - from);
    if (at == std::string_view::npos) return out;
    out += content;
    from = at + pattern.size();
  }
}

std::string collapse_spaces(std::string_view text, std::string_view content) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_not_of(' ', at), text.size());
    if (end - at >= 2) {
      out += content;
      at = end;
    } else {
      out += text[at++];
    }
  }
  return out;
}

bool is_space(char32_t code_point) {
  return (unicode::table()[code_point] & unicode::kSpace) != 0;
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char c = utf8_next(text);
    if (c.kind != Utf8Kind::kValid || !is_space(c.code_point)) break;
    text.remove_prefix(c.length);
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && text.size() - start < 4 && (text[start] & 0xC0) == 0x80) --start;
    const Utf8Char c = utf8_next(text.substr(start));
    if (c.kind != Utf8Kind::kValid || start + c.length != text.size() || !is_space(c.code_point))
      break;
    text = text.substr(0, start);
  }
  return text;
}

// Calls per_run with each maximal stretch of valid UTF-8 as code points, which it may change, and
// keeps the bytes between them.
template <class Change>
std::string map_code_points(std::string_view text, const Change& change) {
  std::string out;
  out.reserve(text.size());
  std::vector<int32_t> run;
  const auto flush = [&] {
    change(run);
    for (const int32_t c : run) append_utf8(static_cast<char32_t>(c), out);
    run.clear();
  };
  while (!text.empty()) {
    const Utf8Char c = utf8_next(text);
    if (c.kind == Utf8Kind::kValid) {
      run.push_back(static_cast<int32_t>(c.code_point));
    } else {
      flush();
      out += text.substr(0, c.length);
    }
    text.remove_prefix(c.length);
  }
  flush();
  return out;
}

// utf8proc's own loop sorts combining marks by swapping neighbours, which takes quadratic time on a
// long run of them; so only its tables and its composition are used.
void normalize(std::vector<int32_t>& text, bool compatible, bool compose) {
  const int decompose = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  std::vector<int32_t> out;
  out.reserve(text.size());
  int boundary = 0;
  for (const int32_t c : text) {
    int32_t buffer[32];  // the longest decomposition has 18 code points
    const auto length = utf8proc_decompose_char(
        c, buffer, 32, static_cast<utf8proc_option_t>(decompose), &boundary);
    // The tables of Hugging Face's tokenizers are older than the decomposition of U+11938.
    if (length >= 1 && length <= 32 && c != 0x11938) {
      out.insert(out.end(), buffer, buffer + length);
    } else {
      out.push_back(c);
    }
  }
  const auto combining = [](int32_t c) {
    return static_cast<uint8_t>(utf8proc_get_property(c)->combining_class);
  };
  std::vector<uint64_t> keys;
  for (auto at = out.begin(); at != out.end();) {
    if (combining(*at) == 0) {
      ++at;
      continue;
    }
    // By class, then by place: the place in the key keeps the order of equals.
    keys.clear();
    auto end = at;
    for (; end != out.end() && combining(*end) != 0; ++end) {
      keys.push_back(uint64_t{combining(*end)} << 56 | static_cast<uint64_t>(keys.size()) << 21 |
                     static_cast<uint64_t>(*end));
    }
    std::sort(keys.begin(), keys.end());
    std::transform(keys.begin(), keys.end(), at,
                   [](uint64_t key) { return static_cast<int32_t>(key & 0x1FFFFF); });
    at = end;
  }
  if (compose && !out.empty()) {
    const auto length = utf8proc_normalize_utf32(
        out.data(), static_cast<utf8proc_ssize_t>(out.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (length >= 0) out.resize(static_cast<size_t>(length));
  }
  text = std::move(out);
}

// Unicode 16 has some letters that utf8proc's tables do not know yet.
int32_t lower(int32_t c) {
  constexpr std::pair<int32_t, int32_t> kNew[] = {
      {0x1C89, 0x1C8A}, {0xA7CB, 0x264}, {0xA7CC, 0xA7CD}, {0xA7DA, 0xA7DB}, {0xA7DC, 0x19B}};
  if (c >= 0x10D50 && c <= 0x10D65) return c + 0x20;
  for (const auto& [upper, lower] : kNew) {
    if (c == upper) return lower;
  }
  return utf8proc_tolower(c);
}

void lowercase(std::vector<int32_t>& text) {
  std::vector<int32_t> out;
  for (const int32_t c : text) {
    out.push_back(lower(c));
    if (c == 0x130) out.push_back(0x307);  // the only character whose lower case is two
  }
  text = std::move(out);
}

void clean_text(std::vector<int32_t>& text) {
  std::erase_if(text, [](int32_t c) { return bert::is_dropped(static_cast<char32_t>(c)); });
  std::replace_if(
      text.begin(), text.end(), [](int32_t c) { return is_space(static_cast<char32_t>(c)); }, ' ');
}

void space_chinese(std::vector<int32_t>& text) {
  std::vector<int32_t> out;
  for (const int32_t c : text) {
    const bool chinese = bert::is_chinese(static_cast<char32_t>(c));
    if (chinese) out.push_back(' ');
    out.push_back(c);
    if (chinese) out.push_back(' ');
  }
  text = std::move(out);
}

void drop_accents(std::vector<int32_t>& text) {
  normalize(text, false, false);
  std::erase_if(text, [](int32_t c) { return bert::is_accent(static_cast<char32_t>(c)); });
}

bool is_of_the_ends(Kind kind) {
  return kind == Kind::kPrepend || kind == Kind::kStripLeft || kind == Kind::kStripRight;
}

std::string apply_step(const NormalizerStep& step, std::string_view text) {
  const auto form = [&](bool compatible, bool compose) {
    return map_code_points(text, [=](auto& run) { normalize(run, compatible, compose); });
  };
  switch (step.kind) {
    case Kind::kPrepend:
      return text.empty() ? std::string() : step.content + std::string(text);
    case Kind::kReplace:
      return replace_all(text, step.pattern, step.content);
    case Kind::kCollapseSpaces:
      return collapse_spaces(text, step.content);
    case Kind::kNfc:
      return form(false, true);
    case Kind::kNfd:
      return form(false, false);
    case Kind::kNfkc:
      return form(true, true);
    case Kind::kNfkd:
      return form(true, false);
    case Kind::kLowercase:
      return map_code_points(text, lowercase);
    case Kind::kStripLeft:
      return std::string(strip_left(text));
    case Kind::kStripRight:
      return std::string(strip_right(text));
    case Kind::kBertClean:
      return map_code_points(text, clean_text);
    case Kind::kBertChinese:
      return map_code_points(text, space_chinese);
    case Kind::kBertAccents:
      return map_code_points(text, drop_accents);
    case Kind::kCharsmap:
      break;  // Normalizer::apply
  }
  return std::string(text);
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

Result<Normalizer> Normalizer::create(std::vector<NormalizerStep> steps) {
  Normalizer normalizer;
  if (steps.size() > kMaxSteps) {
    return out_of_range("tokenizer: {} normalizer steps, at most {} are supported", steps.size(),
                        kMaxSteps);
  }
  for (const NormalizerStep& step : steps) {
    if (step.kind == Kind::kReplace && step.pattern.empty()) {
      return invalid_argument("tokenizer: the normalizer replaces an empty string");
    }
    if (step.kind != Kind::kCharsmap && step.content.size() > kMaxContentBytes) {
      return out_of_range("tokenizer: a normalizer step inserts {} bytes, at most {} are supported",
                          step.content.size(), kMaxContentBytes);
    }
    if (step.kind == Kind::kCharsmap) {
      SKEIN_ASSIGN(Charsmap map, Charsmap::parse(step.content));
      normalizer.charsmaps_.push_back(std::move(map));
    }
  }
  normalizer.steps_ = std::move(steps);
  return normalizer;
}

Result<std::string> Normalizer::apply(std::string_view text) const {
  return apply(text, false);
}

Result<std::string> Normalizer::apply_inside(std::string_view text) const {
  return apply(text, true);
}

Result<std::string> Normalizer::apply(std::string_view text, bool is_inside) const {
  const size_t limit = text.size() * kMaxGrowth + kMaxContentBytes;
  std::string current(text);
  size_t charsmap = 0;
  for (const NormalizerStep& step : steps_) {
    if (is_inside && is_of_the_ends(step.kind)) continue;
    current = step.kind == Kind::kCharsmap ? charsmaps_[charsmap++].apply(current, limit)
                                           : apply_step(step, current);
    if (current.size() > limit) {
      return out_of_range("tokenizer: normalizing {} bytes gives more than {}", text.size(), limit);
    }
  }
  return current;
}

}  // namespace skein
