#include "engine/prompt.h"

namespace skein {

Result<std::vector<TokenId>> encode_prompt(const Tokenizer& tokenizer,
                                           const jinja::Rendered& prompt) {
  std::vector<TextPart> parts;
  parts.reserve(prompt.segments.size());
  for (const jinja::Segment& segment : prompt.segments) {
    parts.push_back({segment.text, segment.from_template});
  }
  return tokenizer.encode(parts, false);
}

}  // namespace skein
