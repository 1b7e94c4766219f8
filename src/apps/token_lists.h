// Files of token ids: a JSON list of id lists.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace skein::apps {

// Errors name the file and the place in it: the list's index, and the id's. Whether the ids are the
// model's is the model's business.
Result<std::vector<std::vector<TokenId>>> read_token_lists(const std::string& path);

}  // namespace skein::apps
