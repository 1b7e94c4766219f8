#include "apps/answer.h"

#include <fmt/format.h>
#include <utility>

#include "text/text_assembler.h"

namespace skein::apps {
namespace {

Status write(std::string_view text, std::FILE* out) {
  if (text.empty()) return {};
  if (std::fwrite(text.data(), 1, text.size(), out) != text.size() || std::fflush(out) != 0) {
    return data_loss("the answer could not be written");
  }
  return {};
}

std::string rate_line(const char* what, uint32_t tokens, TimeUs elapsed_us) {
  const double seconds = static_cast<double>(elapsed_us) / kUsPerSecond;
  return fmt::format("{:<10} {:>6} tokens in {:>8.3f} s, {:>9.2f} tokens/s", what, tokens, seconds,
                     seconds > 0 ? tokens / seconds : 0);
}

}  // namespace

Result<Answer> stream_answer(DirectInference& inference, const LoadedTokenizer& tokenizer,
                             const DirectRequest& request, const std::vector<std::string>& stops,
                             DecodeOptions decode, const std::atomic<bool>& interrupted,
                             std::FILE* out) {
  SKEIN_ASSIGN(TextAssembler assembler, TextAssembler::create(tokenizer.tokenizer, decode, stops));
  Answer answer;
  Status written;
  const auto on_token = [&](const SampledToken& token) {
    const size_t before = answer.text.size();
    written = assembler.push(token.token, answer.text);
    if (written.ok()) written = write(std::string_view(answer.text).substr(before), out);
    return written.ok() && !assembler.stopped();
  };
  SKEIN_ASSIGN(answer.outcome, inference.generate(request, on_token, &interrupted));
  SKEIN_TRY(std::move(written));
  const size_t before = answer.text.size();
  assembler.finish(answer.text);
  SKEIN_TRY(write(std::string_view(answer.text).substr(before), out));
  return answer;
}

std::string describe_speed(const DirectOutcome& outcome) {
  const uint32_t computed = outcome.prompt_tokens - outcome.cached_tokens;
  std::string text = rate_line("prompt", computed, outcome.prefill_us);
  if (outcome.cached_tokens > 0) text += fmt::format(", {} more reused", outcome.cached_tokens);
  return text + "\n" + rate_line("generated", outcome.generated_tokens, outcome.decode_us) + "\n";
}

}  // namespace skein::apps
