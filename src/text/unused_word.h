// A word that stands in no text of somebody else's, so that it can mark a place there.
#pragma once

#include <string>
#include <string_view>

namespace skein {

// `prefix` and sixteen random digits: whoever writes the text cannot know it, so it is not in what
// is decoded from the text later, either. It marks places and never stays.
std::string unused_word(std::string_view prefix, std::string_view text);

}  // namespace skein
