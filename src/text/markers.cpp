#include "text/markers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "text/trie.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace skein {
namespace {

constexpr std::string_view kBars[] = {"|", "｜"};
constexpr std::string_view kNames[] = {"s",     "bos",       "eos",   "bot",   "user",
                                       "human", "assistant", "model", "system"};
constexpr std::string_view kCodeNames[] = {"repo_name", "reponame", "file_sep", "file_name",
                                           "filename"};

bool take_front(std::string_view& text, std::string_view what) {
  if (text.substr(0, what.size()) != what) return false;
  text.remove_prefix(what.size());
  return true;
}

bool take_back(std::string_view& text, std::string_view what) {
  if (text.size() < what.size() || text.substr(text.size() - what.size()) != what) return false;
  text.remove_suffix(what.size());
  return true;
}

template <size_t kCount>
bool is_one_of(std::string_view text, const std::string_view (&list)[kCount]) {
  return std::find(std::begin(list), std::end(list), text) != std::end(list);
}

bool is_code_marker(std::string_view name) {
  return name.substr(0, 3) == "fim" || is_one_of(name, kCodeNames);
}

bool is_bracketed(std::string_view token) {
  if (!take_front(token, "[") || !take_back(token, "]")) return false;
  take_front(token, "/");
  return !token.empty() && std::all_of(token.begin(), token.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool is_white_space(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char c = utf8_next(text);
    const bool is_space =
        c.kind == Utf8Kind::kValid && (unicode::table()[c.code_point] & unicode::kSpace) != 0;
    if (!is_space && text.substr(0, kMetaspace.size()) != kMetaspace) return false;
    text.remove_prefix(c.length);
  }
  return true;
}

}  // namespace

bool is_role_marker(std::string_view token) {
  if (is_bracketed(token)) return true;
  if (!take_front(token, "<") || !take_back(token, ">")) return false;
  take_front(token, "/");
  bool has_bar = false;
  for (const std::string_view bar : kBars) {
    has_bar |= take_front(token, bar);
    has_bar |= take_back(token, bar);
  }
  if (token.empty() || is_code_marker(token)) return false;
  return has_bar || token.find('_') != std::string_view::npos || is_one_of(token, kNames);
}

void guard_markers(std::span<const std::string> literals, TokenizerSpec& spec) {
  const auto type_of = [&](const AddedToken& token) -> TokenType& {
    return spec.types[static_cast<size_t>(token.id)];
  };
  std::vector<Trie::Key> keys;
  for (size_t i = 0; i < spec.added.size(); ++i) {
    const AddedToken& token = spec.added[i];
    if (token.special || type_of(token) != TokenType::kUserDefined) continue;
    if (token.text.size() > kMaxPieceBytes || is_white_space(token.text)) continue;
    if (is_role_marker(token.text)) type_of(token) = TokenType::kMarker;
    keys.emplace_back(token.text, static_cast<int32_t>(i));
  }
  const Trie trie(std::move(keys));
  for (const std::string_view literal : literals) {
    for (size_t at = 0; at < literal.size() && !trie.empty(); ++at) {
      trie.prefixes(literal.substr(at), [&](size_t, int32_t value) {
        type_of(spec.added[static_cast<size_t>(value)]) = TokenType::kMarker;
      });
    }
  }
}

}  // namespace skein
