// Any bytes as tokenizer_config.json: its chat templates are loaded and rendered at the limits that
// the server has. Nothing but a Status may come of it, and what a user types stays data.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "engine/loading/load_text.h"
#include "generate/prompt.h"
#include "small_folder.h"

namespace {

using namespace skein;

constexpr std::string_view kTyped = "~typed~";

OrderedJson context() {
  return OrderedJson::parse(R"({
    "messages": [{"role": "system", "content": "Be brief."},
                 {"role": "user", "content": "a~typed~b"},
                 {"role": "assistant", "content": "c"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "documents": null, "add_generation_prompt": false})");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::SmallFolder folder;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  folder.write("tokenizer_config.json", input);
  const auto source = folder.open();
  if (!source.ok()) return 0;
  const auto chat = load_chat_template(*source);
  if (!chat.ok()) return 0;
  const bool has_own = input.find(kTyped) != std::string_view::npos;
  for (const bool continues : {false, true}) {
    const auto prompt = render_prompt(*chat, {context(), continues}, SystemClock());
    if (!prompt.ok() || has_own) continue;
    for (const jinja::Piece& piece : prompt->pieces) {
      SKEIN_CHECK(!piece.text.empty(), "an empty piece");
      SKEIN_CHECK(!piece.from_template || piece.text.find(kTyped) == std::string::npos,
                  "what a user typed counts as the template's");
    }
  }
  return 0;
}
