#include "text/unused_word.h"

#include <fmt/format.h>
#include <random>

namespace skein {

std::string unused_word(std::string_view prefix, std::string_view text) {
  std::random_device random;
  while (true) {
    std::string word = fmt::format("{}{:08x}{:08x}", prefix, random(), random());
    if (text.find(word) == std::string_view::npos) return word;
  }
}

}  // namespace skein
