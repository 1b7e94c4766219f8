#include "apps/answer.h"

#include <fmt/format.h>
#include <utility>

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
                             const DirectRequest& request, ReadOptions options,
                             const std::atomic<bool>& interrupted, std::FILE* out) {
  SKEIN_ASSIGN(EventReader reader, EventReader::create(tokenizer.tokenizer, std::move(options)));
  Answer answer;
  StreamChunk chunk;
  std::vector<AnswerEvent> events;
  const auto write_events = [&]() -> Status {
    reader.read(chunk, events);
    for (const AnswerEvent& event : events) {
      if (const auto* content = std::get_if<AnswerContent>(&event)) {
        answer.text += content->text;
        SKEIN_TRY(write(content->text, out));
      }
      if (const auto* end = std::get_if<AnswerEnd>(&event)) SKEIN_TRY(end->how.status);
    }
    return {};
  };
  Status written;
  const auto on_token = [&](const SampledToken& token) {
    chunk.tokens.assign(1, token.token);
    written = write_events();
    return written.ok() && !reader.stopped();
  };
  SKEIN_ASSIGN(answer.outcome, inference.generate(request, on_token, &interrupted));
  SKEIN_TRY(std::move(written));
  chunk.tokens.clear();
  chunk.end = GenerationEnd{.reason = answer.outcome.reason, .status = {}};
  SKEIN_TRY(write_events());
  return answer;
}

std::string describe_speed(const DirectOutcome& outcome) {
  const uint32_t computed = outcome.prompt_tokens - outcome.cached_tokens;
  std::string text = rate_line("prompt", computed, outcome.prefill_us);
  if (outcome.cached_tokens > 0) text += fmt::format(", {} more reused", outcome.cached_tokens);
  return text + "\n" + rate_line("generated", outcome.generated_tokens, outcome.decode_us) + "\n";
}

}  // namespace skein::apps
