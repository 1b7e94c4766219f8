// JSON bodies from untrusted bytes.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "text/ordered_json.h"

namespace skein::json {

// Keeps the order of members: templates print tools and messages as they were sent.
using Value = OrderedJson;

inline constexpr size_t kMaxDepth = 64;
inline constexpr size_t kMaxValues = 1 << 20;

struct ParseError {
  size_t offset;  // of the first byte that is wrong
  std::string_view reason;
};

// Strict RFC 8259: valid UTF-8, no NaN, infinities or numbers beyond a double. Of members with one
// name the last counts, at the place of the first. More nesting or values than the limits are
// refused; the caller has bounded the size of `text`. Time is linear, whatever the names are.
std::variant<Value, ParseError> parse(std::string_view text);

}  // namespace skein::json
