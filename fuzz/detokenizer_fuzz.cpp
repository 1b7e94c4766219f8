// Any ids and stop strings through the text assembler: what streams out is what decoding all ids at
// once gives, cut at the first stop string.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "small_tokenizers.h"
#include "text/text_assembler.h"
#include "text/utf8.h"

namespace skein {
namespace {

// `text` up to the stop string that is complete first, the longest of those.
std::string cut_at_stop(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t length = 0;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop))
        length = std::max(length, stop.size());
    }
    if (length != 0) return text.substr(0, end - length);
  }
  return text;
}

void check(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, DecodeOptions options,
           const std::vector<std::string>& stops) {
  auto assembler = TextAssembler::create(tokenizer, options, stops);
  if (!assembler.ok()) return;  // stop strings that are not UTF-8
  std::string streamed;
  for (const TokenId id : ids) {
    const size_t before = streamed.size();
    const Status pushed = assembler->push(id, streamed);
    SKEIN_CHECK(pushed.ok() == tokenizer.contains(id), "{}", pushed.message());
    const std::string chunk = streamed.substr(before);
    SKEIN_CHECK(utf8_repaired(chunk) == chunk, "a chunk is not UTF-8");
  }
  assembler->finish(streamed);
  std::vector<TokenId> valid;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(valid),
               [&](TokenId id) { return tokenizer.contains(id); });
  const auto whole = tokenizer.decode(valid, options);
  SKEIN_CHECK(whole.ok(), "{}", whole.message());
  const std::string expected = cut_at_stop(*whole, stops);
  SKEIN_CHECK(streamed == expected, "the stream is '{}', not '{}'", streamed, expected);
  SKEIN_CHECK(assembler->stopped() == (expected.size() != whole->size()), "stopped");
}

}  // namespace
}  // namespace skein

// Byte 0: options and how many stop strings; each is a length byte and its bytes; the rest are ids
// of two bytes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skein;
  static const auto* const kByteLevel = new Tokenizer(fuzz::byte_level(Splitter::kGpt2));
  static const auto* const kSpm = new Tokenizer(fuzz::sentencepiece(TokenizerSpec::Model::kSpmBpe));
  if (size == 0 || size > 4096) return 0;
  const uint8_t flags = data[0];
  size_t at = 1;
  std::vector<std::string> stops;
  for (int i = 0; i < (flags & 3) && at < size; ++i) {
    const size_t length = std::min<size_t>(data[at] & 7, size - at - 1);
    ++at;
    if (length > 0) stops.emplace_back(reinterpret_cast<const char*>(data + at), length);
    at += length;
  }
  std::vector<TokenId> ids;
  for (; at + 1 < size; at += 2)
    ids.push_back((data[at] | (data[at + 1] & 1) << 8) - (data[at + 1] & 2));
  const DecodeOptions options = {.skip_special = (flags & 4) != 0,
                                 .continuation = (flags & 8) != 0};
  check((flags & 16) != 0 ? *kSpm : *kByteLevel, ids, options, stops);
  return 0;
}
