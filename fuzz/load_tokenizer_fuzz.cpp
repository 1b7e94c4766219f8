// Any bytes as a GGUF file: all that is read of its text (tokenizer, stops, chat template, sampling
// defaults). Either a clean error, or a tokenizer that works and whose control tokens nobody can
// type.
#include <algorithm>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "engine/loading/load_text.h"
#include "engine/loading/sampling_defaults.h"
#include "memory_file.h"
#include "text/utf8.h"

namespace {

using namespace skein;

void use(const LoadedTokenizer& loaded) {
  const Tokenizer& tokenizer = loaded.tokenizer;
  for (const TokenId id : loaded.stop_ids) {
    SKEIN_CHECK(tokenizer.contains(id) && tokenizer.is_control(id), "stop {}", id);
  }
  std::string typed = "Hello  World's 123 \xC3\xA9 \xFF\n";
  const auto pieces = static_cast<TokenId>(std::min<size_t>(tokenizer.vocab_size(), 64));
  for (TokenId id = 0; id < pieces; ++id) typed += tokenizer.piece(id);
  const auto ids = tokenizer.encode(typed);
  if (!ids.ok()) return;
  for (const TokenId id : *ids) {
    const bool is_stop =
        std::find(loaded.stop_ids.begin(), loaded.stop_ids.end(), id) != loaded.stop_ids.end();
    SKEIN_CHECK(!is_stop, "a user has typed the stop {}", id);
  }
  const auto text = tokenizer.decode(*ids);
  SKEIN_CHECK(text.ok(), "{}", text.message());
  SKEIN_CHECK(utf8_repaired(*text) == *text, "not UTF-8");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  const fuzz::MemoryFile file(data, size);
  const auto source = open_gguf(file.path());
  if (!source.ok()) return 0;
  const auto loaded = load_tokenizer(*source);
  SKEIN_CHECK(loaded.ok() || !loaded.message().empty(), "a fault without a reason");
  if (loaded.ok()) use(*loaded);
  (void)load_chat_template(*source).ok();
  SKEIN_CHECK(find_sampling_defaults(*source, {}).params.validate(UINT32_MAX).ok(), "bad defaults");
  return 0;
}
