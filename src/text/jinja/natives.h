// Tables of native functions, and helpers that several of them share.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/runtime.h"

namespace skein::jinja {

struct NativeEntry {
  std::string_view name;
  NativeFn fn;
};

inline NativeFn find_native(std::span<const NativeEntry> table, std::string_view name) {
  const auto it = std::find_if(table.begin(), table.end(),
                               [name](const NativeEntry& entry) { return entry.name == name; });
  return it == table.end() ? nullptr : it->fn;
}

NativeFn find_string_method(std::string_view name);
NativeFn find_text_filter(std::string_view name);      // text in, text out
NativeFn find_sequence_filter(std::string_view name);  // lists and dictionaries

// What a dictionary entry costs besides the key's text: values, index node, string header.
inline constexpr uint64_t kDictEntryBytes = 160;
// Fails on keys that are not hashable.
Result<Value> make_dict(Runtime& rt, const std::vector<std::pair<Value, Value>>& entries);
// (key, value) tuples.
Result<std::vector<Value>> item_pairs(Runtime& rt, const Value& dict);

// --- strings (strings.cpp); they count their work ---
// Byte offset of the first or last `needle`, in linear time; npos when there is none.
size_t find_first(std::string_view text, std::string_view needle);
size_t find_last(std::string_view text, std::string_view needle);
// All of `needle` in `text`: byte offsets, not overlapping, at most `limit`.
Result<std::vector<size_t>> find_all(Runtime& rt, std::string_view text, std::string_view needle,
                                     int64_t limit);
Result<Value> strip_text(Runtime& rt, const Value& text, const Value& characters, bool left,
                         bool right);
Result<Value> replace_text(Runtime& rt, const MarkedText& text, const MarkedText& from,
                           const MarkedText& to, int64_t limit, bool markup);
Result<Value> join_texts(Runtime& rt, const std::vector<Value>& items, const MarkedText& separator);
Result<Value> pad_text(Runtime& rt, const Value& text, int64_t width, std::string_view fill,
                       double share_left);
MarkedText change_case(const MarkedText& text, bool upper);
MarkedText capitalize_text(const MarkedText& text);
Result<std::vector<MarkedText>> split_lines(Runtime& rt, const MarkedText& text, bool keep_ends);

}  // namespace skein::jinja
