// Any bytes as tokenizer.json: a clean error, or a tokenizer that works.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skein;
  auto spec = parse_tokenizer_json({reinterpret_cast<const char*>(data), size});
  if (!spec.ok()) return 0;
  const auto tokenizer = Tokenizer::create(std::move(*spec));
  if (!tokenizer.ok()) return 0;
  constexpr std::string_view kText =
      "Hello  World's 123 \xC3\xA9 \xFF<s>\n\xE2\x96\x81 abab \xE4\xB8\xAD";
  for (const bool special : {false, true}) {
    const auto ids = tokenizer->encode(kText, {.parse_special = special, .add_special = special});
    if (!ids.ok()) continue;
    const auto text = tokenizer->decode(*ids, {.skip_special = special});
    SKEIN_CHECK(text.ok(), "{}", text.message());
    SKEIN_CHECK(utf8_repaired(*text) == *text, "not UTF-8");
  }
  return 0;
}
