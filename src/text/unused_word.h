// A word that stands in no text of somebody else's, so that it can mark a place there.
#pragma once

#include <string>
#include <string_view>

namespace skein {

// `prefix`, which has letters alone, and eight digits. Takes time linear in the text, whatever it
// says.
std::string unused_word(std::string_view prefix, std::string_view text);

}  // namespace skein
