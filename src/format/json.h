// JSON documents from untrusted bytes.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/status.h"

namespace skein {

using Json = nlohmann::json;

inline constexpr size_t kMaxJsonDepth = 100;

// The document, or the line and column at which it stops being JSON. Nesting beyond kMaxJsonDepth
// is refused, so that nothing that walks the document can run out of stack. Of duplicate keys the
// last one counts. The caller has bounded the size of `text`.
Result<Json> parse_json(std::string_view text);

// "line 3, column 7" of the byte at `offset`.
std::string json_position(std::string_view text, size_t offset);

}  // namespace skein
