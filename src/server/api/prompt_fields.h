// Prompts and inputs as OpenAI's endpoints take them: a text, a list of texts, the ids of one, or a
// list of such lists.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "server/api/fields.h"

namespace skein::api {

using Prompt = std::variant<std::string, std::vector<TokenId>>;

// The field must be there; at most `max_items` of them. A list of ids is never empty.
std::vector<Prompt> read_prompts(const Fields& fields, std::string_view name, size_t max_items);

}  // namespace skein::api
