// Texts in JSON values, looked at where they are. nlohmann compares a value with a text by making a
// value of it, in a function that must not throw: without memory the process would end.
#pragma once

#include <string>
#include <string_view>

#include "text/ordered_json.h"

namespace skein {

// Whether `value` is the string `text`.
inline bool says(const OrderedJson& value, std::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

}  // namespace skein
