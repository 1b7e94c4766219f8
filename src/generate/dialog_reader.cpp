#include "generate/dialog_reader.h"

#include <algorithm>
#include <utility>

namespace skein {

void InputReader::push(std::string_view json, std::string& out) {
  for (const char c : json) {
    switch (state_) {
      case State::kKey:
        if (c == ':') state_ = State::kValue;
        break;
      case State::kValue:
        if (c == '"') state_ = State::kText;
        break;
      case State::kText:
        if (c == '"' && !escaped_) {
          state_ = State::kDone;
          break;
        }
        escaped_ = c == '\\' && !escaped_;
        decoder_.push(c, out);
        break;
      case State::kDone:
        return;
    }
  }
}

DialogReader::DialogReader(const Tokenizer& tokenizer, const ReadOptions& options, StopFilter stops)
    : tokenizer_(tokenizer),
      skip_special_(options.decode.skip_special),
      call_seed_(options.call_seed),
      id_style_(options.id_style),
      custom_tools_(options.custom_tools),
      strip_space_(tokenizer.strips_leading_space() && !options.decode.continuation),
      parser_(options.syntax, options.in_reasoning),
      stops_(std::move(stops)) {}

Status DialogReader::read(const StreamChunk& chunk, std::vector<AnswerEvent>& events) {
  shown_.clear();
  piece_begin_ = 0;
  pieces_.clear();
  const auto named = static_cast<long>(named_);
  tokens_.erase(tokens_.begin(), tokens_.begin() + named);
  logprobs_.erase(logprobs_.begin(),
                  logprobs_.begin() + named * static_cast<long>(logprobs_per_token_));
  named_ = 0;
  Status pushed;
  if (!chunk.tokens.empty()) logprobs_per_token_ = chunk.logprobs.size() / chunk.tokens.size();
  for (size_t i = 0; i < chunk.tokens.size() && !stopped() && pushed.ok(); ++i) {
    const auto logprobs = std::span(chunk.logprobs).subspan(i * logprobs_per_token_);
    logprobs_.insert(logprobs_.end(), logprobs.begin(),
                     logprobs.begin() + static_cast<long>(logprobs_per_token_));
    pushed = push(chunk.tokens[i]);
  }
  if ((chunk.end || !pushed.ok()) && !stopped()) {
    const bool was_thinking = parser_.in_reasoning();
    parser_.finish(parsed_, !chunk.end || chunk.end->reason != FinishReason::kStop);
    take(was_thinking);
    if (!stopped()) flush_content();
  }
  hand_out(events);
  return pushed;
}

Status DialogReader::push(TokenId token) {
  if (!tokenizer_.contains(token)) {
    return out_of_range("token {} is not in the vocabulary of {}", token, tokenizer_.vocab_size());
  }
  ++taken_;
  tokens_.push_back(token);
  const bool control = skip_special_ && tokenizer_.is_control(token);
  std::string_view bytes = tokenizer_.bytes(token);
  if (strip_space_ && !control && !bytes.empty()) {
    if (bytes[0] == ' ') bytes.remove_prefix(1);
    strip_space_ = false;
  }
  const bool was_thinking = parser_.in_reasoning();
  parser_.push(token, bytes, control, parsed_);
  if (!parsed_.empty() || !parser_.holds()) take(was_thinking);
  return {};
}

// What the parser has said of the last tokens.
void DialogReader::take(bool was_thinking) {
  if (parsed_.empty()) {
    const bool thought = was_thinking || parser_.in_reasoning();
    if (named_ < tokens_.size()) add(thought ? Kind::kReasoning : Kind::kHidden, 0, true);
    return;
  }
  size_t names = 0;  // the event that names them: where a token shows content, it is content's
  while (names < parsed_.size() && parsed_[names].kind != dialog::DialogEvent::Kind::kText) ++names;
  if (names == parsed_.size()) names = 0;
  for (size_t i = 0; i < parsed_.size() && !stopped(); ++i) take_event(parsed_[i], i == names);
}

void DialogReader::take_event(const dialog::DialogEvent& event, bool names_tokens) {
  using Event = dialog::DialogEvent::Kind;
  if (event.kind == Event::kText) {
    stops_.push(event.text, shown_);
    return add(Kind::kContent, 0, names_tokens);
  }
  flush_content();  // no stop text goes on behind a thought or a call
  switch (event.kind) {
    case Event::kReasoning:
      shown_ += event.text;
      return add(Kind::kReasoning, 0, names_tokens);
    case Event::kCallBegin:
      return begin_call(event, names_tokens);
    case Event::kArguments:
      if (input_) {
        input_->push(event.text, shown_);
      } else {
        shown_ += event.text;
      }
      return add(Kind::kArguments, event.call, names_tokens);
    default:
      return add(Kind::kCallEnd, event.call, names_tokens);
  }
}

void DialogReader::begin_call(const dialog::DialogEvent& event, bool names_tokens) {
  const auto& custom = custom_tools_;
  const bool is_custom = std::find(custom.begin(), custom.end(), event.text) != custom.end();
  input_ = is_custom ? std::make_unique<InputReader>() : nullptr;
  const std::string id = dialog::call_id(call_seed_, event.call, id_style_);
  shown_ += id;
  shown_ += event.text;
  add(Kind::kCallBegin, event.call, names_tokens);
  pieces_.back().id_bytes = id.size();
  pieces_.back().custom = is_custom;
}

void DialogReader::flush_content() {
  stops_.flush(shown_);
  if (shown_.size() > piece_begin_) add(Kind::kContent, 0, false);
}

// A piece of what was shown since the last one; joined with that where it is more of the same.
void DialogReader::add(Kind kind, uint32_t call, bool names_tokens) {
  const size_t tokens = names_tokens ? tokens_.size() : named_;
  const bool is_mark = kind == Kind::kCallBegin || kind == Kind::kCallEnd;
  if (!is_mark && !pieces_.empty() && pieces_.back().kind == kind && pieces_.back().call == call) {
    pieces_.back().text_end = shown_.size();
    pieces_.back().token_end = tokens;
  } else if (is_mark || tokens > named_ || shown_.size() > piece_begin_) {
    pieces_.push_back({.kind = kind,
                       .call = call,
                       .text_begin = piece_begin_,
                       .text_end = shown_.size(),
                       .token_begin = named_,
                       .token_end = tokens});
  }
  piece_begin_ = shown_.size();
  named_ = tokens;
}

void DialogReader::hand_out(std::vector<AnswerEvent>& events) const {
  for (const Piece& piece : pieces_) {
    const std::string_view text =
        std::string_view(shown_).substr(piece.text_begin, piece.text_end - piece.text_begin);
    const auto tokens =
        std::span(tokens_).subspan(piece.token_begin, piece.token_end - piece.token_begin);
    switch (piece.kind) {
      case Kind::kReasoning:
        events.emplace_back(AnswerReasoning{text, tokens});
        break;
      case Kind::kContent:
        events.emplace_back(
            AnswerContent{text, tokens,
                          std::span(logprobs_).subspan(piece.token_begin * logprobs_per_token_,
                                                       tokens.size() * logprobs_per_token_)});
        break;
      case Kind::kCallBegin:
        events.emplace_back(AnswerCallBegin{piece.call, text.substr(0, piece.id_bytes),
                                            text.substr(piece.id_bytes), piece.custom, tokens});
        break;
      case Kind::kArguments:
        events.emplace_back(AnswerArguments{piece.call, text, tokens});
        break;
      case Kind::kCallEnd:
        events.emplace_back(AnswerCallEnd{piece.call, tokens});
        break;
      case Kind::kHidden:
        events.emplace_back(AnswerHidden{tokens});
        break;
    }
  }
}

}  // namespace skein
