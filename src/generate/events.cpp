#include "generate/events.h"

#include <utility>

#include "generate/dialog_reader.h"

namespace skein {

Result<EventReader> EventReader::create(const Tokenizer& tokenizer, ReadOptions options) {
  std::unique_ptr<DialogReader> dialog;
  if (options.syntax) {
    SKEIN_ASSIGN(StopMatcher stops, StopMatcher::create(options.stops));
    dialog = std::make_unique<DialogReader>(tokenizer, options, StopFilter(std::move(stops)));
  }
  SKEIN_ASSIGN(TextAssembler text, TextAssembler::create(tokenizer, options.decode, options.stops));
  return EventReader(std::move(text), std::move(dialog), std::move(options));
}

EventReader::EventReader(TextAssembler text, std::unique_ptr<DialogReader> dialog,
                         ReadOptions options)
    : text_(std::move(text)),
      dialog_(std::move(dialog)),
      stops_(std::move(options.stops)),
      content_(std::move(options.prefix)) {}

EventReader::EventReader(EventReader&&) noexcept = default;
EventReader& EventReader::operator=(EventReader&&) noexcept = default;
EventReader::~EventReader() = default;

bool EventReader::met_stop() const {
  return dialog_ ? dialog_->stopped() : text_.stopped();
}

uint64_t EventReader::tokens() const {
  return dialog_ ? dialog_->tokens() : text_.tokens();
}

Status EventReader::read_content(const StreamChunk& chunk, std::vector<AnswerEvent>& events) {
  if (std::exchange(has_shown_, false)) content_.clear();
  const size_t before = text_.tokens();
  Status pushed;
  for (const TokenId token : chunk.tokens) {
    if (text_.stopped() || !pushed.ok()) break;
    pushed = text_.push(token, content_);
  }
  if (chunk.end) text_.finish(content_);
  const size_t taken = text_.tokens() - before;
  if (taken > 0 || !content_.empty()) {
    const size_t per_token = taken > 0 ? chunk.logprobs.size() / chunk.tokens.size() : 0;
    events.emplace_back(AnswerContent{content_, std::span(chunk.tokens).first(taken),
                                      std::span(chunk.logprobs).first(taken * per_token)});
    has_shown_ = true;
  }
  return pushed;
}

void EventReader::read(const StreamChunk& chunk, std::vector<AnswerEvent>& events) {
  events.clear();
  if (ended_) return;
  if (chunk.computed_tokens > computed_tokens_) {
    computed_tokens_ = chunk.computed_tokens;
    events.emplace_back(AnswerProgress{computed_tokens_});
  }
  const Status pushed = dialog_ ? dialog_->read(chunk, events) : read_content(chunk, events);
  if (!chunk.end && pushed.ok()) return;
  ended_ = true;
  AnswerEnd end{chunk.end.value_or(GenerationEnd{}), {}};
  if (!pushed.ok()) end.how.status = internal_error("{}", pushed.message());
  if (!pushed.ok()) end.how.reason = FinishReason::kError;
  if (met_stop()) {
    end.how.reason = FinishReason::kStop;
    end.how.status = {};
    end.stop = stops_[dialog_ ? dialog_->stop_index() : text_.stop_index()];
  } else if (dialog_ && end.how.reason == FinishReason::kStop && dialog_->whole_calls() > 0) {
    end.how.reason = FinishReason::kToolCalls;
  }
  end.how.generated_tokens = static_cast<uint32_t>(tokens());
  events.emplace_back(std::move(end));
}

Result<std::unique_ptr<Completion>> Completion::start(ServedModel& model, GenerationRequest request,
                                                      ReadOptions options,
                                                      std::function<void()> on_ready) {
  SKEIN_ASSIGN(EventReader reader,
               EventReader::create(model.model().tokenizer()->tokenizer, std::move(options)));
  SKEIN_ASSIGN(RequestHandle handle, model.submit(std::move(request), std::move(on_ready)));
  return std::make_unique<Completion>(std::move(handle), std::move(reader));
}

bool Completion::take(std::vector<AnswerEvent>& events) {
  if (!request_.stream().take(chunk_)) return false;
  read(events);
  return true;
}

void Completion::wait(std::vector<AnswerEvent>& events) {
  while (!request_.stream().wait(chunk_)) {
  }
  read(events);
}

void Completion::read(std::vector<AnswerEvent>& events) {
  reader_.read(chunk_, events);
  if (reader_.stopped() && !chunk_.end) cancel(FinishReason::kStop);  // its end will come
}

void Completion::cancel() {
  cancel(FinishReason::kClient);
}

void Completion::cancel(FinishReason reason) {
  const std::lock_guard lock(cancelling_);
  request_.cancel(reason);
}

}  // namespace skein
