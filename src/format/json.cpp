#include "format/json.h"

#include <algorithm>
#include <exception>
#include <string>

namespace skein {
namespace {

// Brackets outside of strings; exact for valid JSON, and invalid JSON is the parser's business.
size_t deepest_nesting(std::string_view text) {
  size_t depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

Result<Json> parse_json(std::string_view text) {
  if (const size_t depth = deepest_nesting(text); depth > kMaxJsonDepth) {
    return out_of_range("JSON nested {} deep, at most {}", depth, kMaxJsonDepth);
  }
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    return invalid_argument("not valid JSON at {}", json_position(text, error.byte));
  } catch (const std::exception& error) {
    return invalid_argument("not valid JSON: {}", error.what());
  }
}

std::string json_position(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset == 0 ? 0 : offset - 1);
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0: the first line
  return fmt::format("line {}, column {}", std::count(before.begin(), before.end(), '\n') + 1,
                     before.size() - line_start + 1);
}

}  // namespace skein
