#include "generate/events.h"

#include <utility>

namespace skein {

Result<EventReader> EventReader::create(const Tokenizer& tokenizer, ReadOptions options) {
  SKEIN_ASSIGN(TextAssembler text, TextAssembler::create(tokenizer, options.decode, options.stops));
  return EventReader(std::move(text), std::move(options));
}

Status EventReader::push(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    if (text_.stopped()) break;
    SKEIN_TRY(text_.push(token, content_));
  }
  return {};
}

void EventReader::read(const StreamChunk& chunk, std::vector<AnswerEvent>& events) {
  events.clear();
  if (ended_) return;
  if (std::exchange(has_shown_, false)) content_.clear();
  const size_t before = text_.tokens();
  const Status pushed = push(chunk.tokens);
  if (chunk.end) text_.finish(content_);
  if (chunk.computed_tokens > computed_tokens_) {
    computed_tokens_ = chunk.computed_tokens;
    events.emplace_back(AnswerProgress{computed_tokens_});
  }
  const size_t taken = text_.tokens() - before;
  if (taken > 0 || !content_.empty()) {
    const size_t per_token = taken > 0 ? chunk.logprobs.size() / chunk.tokens.size() : 0;
    events.emplace_back(AnswerContent{content_, std::span(chunk.tokens).first(taken),
                                      std::span(chunk.logprobs).first(taken * per_token)});
    has_shown_ = true;
  }
  if (!chunk.end && pushed.ok()) return;
  ended_ = true;
  AnswerEnd end{chunk.end.value_or(GenerationEnd{}), {}};
  if (!pushed.ok()) end.how.status = internal_error("{}", pushed.message());
  if (!pushed.ok()) end.how.reason = FinishReason::kError;
  if (text_.stopped()) {
    end.how.reason = FinishReason::kStop;
    end.how.status = {};
    end.stop = stops_[text_.stop_index()];
  }
  end.how.generated_tokens = static_cast<uint32_t>(text_.tokens());
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
