#include "apps/answer.h"

#include <fmt/format.h>
#include <unistd.h>
#include <utility>

#include "apps/terminal_text.h"

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

bool is_terminal(std::FILE* out) {
  return ::isatty(::fileno(out)) == 1;
}

// Prints what a model says: as it is into a file or a pipe, harmless on a terminal.
Status write_said(std::string_view text, std::FILE* out) {
  return is_terminal(out) ? write(terminal_safe(text), out) : write(text, out);
}

// Prints for people what an answer says beside its text.
class SideNotes {
 public:
  explicit SideNotes(std::FILE* out) : dims_(is_terminal(out)), to_(dims_ ? out : stderr) {}

  Status note(std::string_view text) {
    if (text.empty()) return {};
    if (!std::exchange(open_, true) && dims_) SKEIN_TRY(write("\x1b[2m", to_));
    return write_said(text, to_);
  }
  Status end() {
    return std::exchange(open_, false) ? write(dims_ ? "\x1b[0m\n" : "\n", to_) : Status();
  }

 private:
  const bool dims_;
  std::FILE* const to_;
  bool open_ = false;
};

// One answer, part by part.
class AnswerPrinter {
 public:
  AnswerPrinter(Answer& answer, std::FILE* out) : answer_(answer), out_(out), notes_(out) {}

  Status print(const AnswerEvent& event) {
    if (const auto* content = std::get_if<AnswerContent>(&event)) {
      if (content->text.empty()) return {};
      answer_.text += content->text;
      SKEIN_TRY(notes_.end());
      return write_said(content->text, out_);
    }
    if (const auto* thought = std::get_if<AnswerReasoning>(&event))
      return notes_.note(thought->text);
    if (const auto* call = std::get_if<AnswerCallBegin>(&event)) {
      answer_.calls.push_back({{"id", call->id},
                               {"type", "function"},
                               {"function", {{"name", call->name}, {"arguments", ""}}}});
      SKEIN_TRY(notes_.end());
      return notes_.note(fmt::format("[calls {}] ", call->name));
    }
    if (const auto* arguments = std::get_if<AnswerArguments>(&event)) {
      OrderedJson& so_far = answer_.calls.back()["function"]["arguments"];
      so_far.get_ref<std::string&>() += arguments->text;
      return notes_.note(arguments->text);
    }
    if (const auto* end = std::get_if<AnswerEnd>(&event)) {
      SKEIN_TRY(notes_.end());
      return end->how.status;
    }
    return {};
  }

 private:
  Answer& answer_;
  std::FILE* const out_;
  SideNotes notes_;
};

}  // namespace

Result<Answer> stream_answer(DirectInference& inference, const LoadedTokenizer& tokenizer,
                             const DirectRequest& request, ReadOptions options,
                             const std::atomic<bool>& interrupted, std::FILE* out) {
  SKEIN_ASSIGN(EventReader reader, EventReader::create(tokenizer.tokenizer, std::move(options)));
  Answer answer;
  AnswerPrinter printer(answer, out);
  StreamChunk chunk;
  std::vector<AnswerEvent> events;
  const auto write_events = [&]() -> Status {
    reader.read(chunk, events);
    for (const AnswerEvent& event : events) SKEIN_TRY(printer.print(event));
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
  text += "\n" + rate_line("generated", outcome.generated_tokens, outcome.decode_us);
  if (outcome.drafted_tokens > 0) {
    text +=
        fmt::format(", {} of {} guesses right", outcome.accepted_tokens, outcome.drafted_tokens);
  }
  return text + "\n";
}

}  // namespace skein::apps
