#include "dialog/answer_parser.h"

#include <algorithm>
#include <array>

#include "text/utf8.h"

namespace skein::dialog {
namespace {

// White space that is held back because a call may follow, and units of a call whose name is not
// known yet.
constexpr size_t kMaxHeldSpace = 64;
constexpr size_t kMaxUndecided = 8192;

enum Action : int { kReasoningBegin, kReasoningEnd, kTextBegin, kTextEnd, kCall };

}  // namespace

AnswerParser::AnswerParser(std::shared_ptr<const AnswerSyntax> syntax, bool in_reasoning)
    : syntax_(std::move(syntax)), state_(in_reasoning ? State::kReasoning : State::kBetween) {
  if (syntax_->format->calls.shape == CallShape::kHarmony) {
    state_ = State::kHeader;
  } else {
    skip_space_ = in_reasoning || syntax_->format->space_first;
  }
}

void AnswerParser::push(TokenId token, std::string_view bytes, bool control,
                        std::vector<DialogEvent>& events) {
  shown_.clear();
  pieces_.clear();
  if (const Unit marker = syntax_->markers.unit_of(token); marker != 0) {
    if (!partial_.empty()) {
      partial_.clear();
      for (const char c : kReplacementUtf8) take(static_cast<unsigned char>(c));
    }
    take(marker);
  } else if (!control) {
    take_bytes(bytes);
  }
  hand_out(events);
}

void AnswerParser::push_text(std::string_view bytes, std::vector<DialogEvent>& events) {
  shown_.clear();
  pieces_.clear();
  take_bytes(bytes);
  hand_out(events);
}

void AnswerParser::finish(std::vector<DialogEvent>& events, bool cut) {
  shown_.clear();
  pieces_.clear();
  partial_.clear();
  if (cut) drop_undecided();
  while (true) {
    while (step(true)) {
    }
    if (state_ != State::kBody) break;
    CallOutput out;
    const bool whole = body_->finish(out);
    note_call(out);
    if (in_call_) {
      if (whole) end_call();
      break;
    }
    refuse_body();
  }
  hand_out(events);
}

// All that waits is the beginning of a marker, white space before one, or a call without a name.
void AnswerParser::drop_undecided() {
  const auto behind_space = std::find_if_not(pending_.begin(), pending_.end(), is_space);
  if (state_ == State::kBody && !in_call_) {
    const auto begin = std::find_if_not(undecided_.begin(), undecided_.end(), is_space);
    const std::span<const Unit> body(begin, undecided_.end());
    // Nothing but JSON tells it from text: JSON that does not begin as a call does is text.
    if (syntax_->bare && fit(syntax_->bare_call, body).fit == Fit::kNo) return;
    undecided_.clear();
    body_.reset();
    state_ = State::kText;
  } else if (state_ == State::kHeader) {
    if (begun_ || is_header_part()) pending_.clear();
  } else if (behind_space != pending_.end()) {
    pending_.clear();
  }
}

void AnswerParser::take_bytes(std::string_view bytes) {
  if (!partial_.empty()) {
    partial_ += bytes;
    bytes = partial_;
  }
  std::string_view rest = bytes;
  std::string whole;
  while (!rest.empty()) {
    const Utf8Char next = utf8_next(rest);
    if (next.kind == Utf8Kind::kIncomplete) break;
    whole += next.kind == Utf8Kind::kValid ? rest.substr(0, next.length) : kReplacementUtf8;
    rest.remove_prefix(next.length);
  }
  partial_ = std::string(rest);
  for (const char c : whole) take(static_cast<unsigned char>(c));
}

void AnswerParser::take(Unit unit) {
  pending_.push_back(unit);
  while (step(false)) {
  }
}

// Reads from the front of pending_; false: nothing more can be said of it yet.
bool AnswerParser::step(bool last) {
  if (pending_.empty()) return false;
  switch (state_) {
    case State::kBody:
      return step_body();
    case State::kClose:
      return step_close();
    case State::kAfterCall:
      return step_after_call();
    case State::kHeader:
      return step_header(last);
    case State::kMessage:
      return step_message(last);
    case State::kCallMessage:
      return step_call_message(last);
    default:
      return step_text(last);
  }
}

AnswerParser::Found AnswerParser::find(std::span<const Pattern* const> patterns, size_t at) const {
  const auto rest = std::span<const Unit>(pending_).subspan(at);
  Found found;
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (patterns[i] == nullptr) continue;
    const FitResult fits = fit(*patterns[i], rest);
    if (fits.fit == Fit::kFull && (found.fit != Fit::kFull || fits.length > found.length)) {
      found = {Fit::kFull, fits.length, static_cast<int>(i)};
    }
    if (fits.fit == Fit::kPart && !rest.empty() && found.fit == Fit::kNo) found.fit = Fit::kPart;
  }
  return found;
}

bool AnswerParser::step_text(bool last) {
  const AnswerSyntax& s = *syntax_;
  const bool thinking = state_ == State::kReasoning, between = state_ == State::kBetween;
  const bool calls = !thinking && s.calls && calls_ < kMaxCalls;
  const std::array<const Pattern*, 5> patterns = {
      thinking ? nullptr : &s.reasoning_begin,
      thinking || (between && !begun_) ? &s.reasoning_end : nullptr,
      between ? &s.text_begin : nullptr, thinking ? nullptr : &s.text_end,
      calls ? &s.trigger : nullptr};
  const size_t spaces = static_cast<size_t>(
      std::find_if_not(pending_.begin(), pending_.end(), is_space) - pending_.begin());
  if (spaces == pending_.size() && !last) {
    if (skip_space_) return drop(spaces), false;
    if (spaces <= kMaxHeldSpace) return false;
    return show(1), true;
  }
  if (spaces == pending_.size() && (skip_space_ || thinking)) return drop(spaces), false;
  const Found found = find(patterns, spaces);
  if (found.fit == Fit::kFull) {
    if (found.which == kCall) {
      begin_body(spaces + found.length);
    } else {
      drop(spaces + found.length);
      act(found.which);
    }
    return true;
  }
  if (found.fit == Fit::kPart && !last) return false;
  if (calls && s.bare && between && spaces < pending_.size() && pending_[spaces] == '{') {
    begin_body(spaces);
    return true;
  }
  const bool more = spaces < pending_.size();
  if (skip_space_) drop(spaces);
  show((skip_space_ ? 0 : spaces) + (more ? 1 : 0));
  return true;
}

void AnswerParser::act(int which) {
  begun_ = true;
  skip_space_ = true;
  switch (which) {
    case kReasoningBegin:
      state_ = State::kReasoning;
      break;
    case kTextBegin:
      skip_space_ = false;
      state_ = syntax_->bare ? State::kBetween : State::kText;
      break;
    default:
      state_ = State::kBetween;
      break;
  }
}

void AnswerParser::begin_body(size_t marker_units) {
  undecided_.assign(pending_.begin(), pending_.begin() + static_cast<long>(marker_units));
  undecided_marker_ = marker_units;
  drop(marker_units);
  body_ = syntax_->body();
  state_ = State::kBody;
}

bool AnswerParser::step_body() {
  const Unit unit = pending_[0];
  CallOutput out;
  const Take taken = body_->take(unit, out);
  if (taken == Take::kRefused && !in_call_ && out.name.empty()) {
    refuse_body();
    return true;
  }
  note_call(out);
  if (taken == Take::kRefused) {  // the call stays as it is
    in_call_ = false;
    ++calls_;
    begun_ = true;
    state_ = State::kText;
    body_.reset();
    return true;
  }
  if (!in_call_) {
    undecided_.push_back(unit);
    if (undecided_.size() > kMaxUndecided) {
      drop(1);
      refuse_body();
      return true;
    }
  }
  drop(1);
  if (taken == Take::kEnded) end_call();
  return true;
}

// What was taken for a call is text: its marker as it is, the rest is looked at again.
void AnswerParser::refuse_body() {
  body_.reset();
  state_ = State::kText;
  std::vector<Unit> again(undecided_.begin() + static_cast<long>(undecided_marker_),
                          undecided_.end());
  again.insert(again.end(), pending_.begin(), pending_.end());
  undecided_.resize(undecided_marker_);
  pending_ = std::move(undecided_);
  undecided_.clear();
  if (undecided_marker_ > 0) show(undecided_marker_);
  begun_ = true;
  skip_space_ = false;
  pending_ = std::move(again);
}

void AnswerParser::note_call(const CallOutput& out) {
  if (!out.name.empty()) {
    in_call_ = true;
    begun_ = true;
    undecided_.clear();
    emit(DialogEvent::Kind::kCallBegin, out.name);
  }
  if (in_call_ && !out.arguments.empty()) emit(DialogEvent::Kind::kArguments, out.arguments);
}

void AnswerParser::end_call() {
  emit(DialogEvent::Kind::kCallEnd, "");
  in_call_ = false;
  ++calls_;
  ++whole_calls_;
  body_.reset();
  state_ = State::kClose;
}

bool AnswerParser::step_close() {
  const size_t spaces = static_cast<size_t>(
      std::find_if_not(pending_.begin(), pending_.end(), is_space) - pending_.begin());
  if (spaces > 0) return drop(spaces), true;
  const FitResult fits = fit(syntax_->close, pending_);
  if (fits.fit == Fit::kPart) return false;
  if (fits.fit == Fit::kFull) drop(fits.length);
  state_ = State::kAfterCall;
  return true;
}

bool AnswerParser::step_after_call() {
  const size_t spaces = static_cast<size_t>(
      std::find_if_not(pending_.begin(), pending_.end(), is_space) - pending_.begin());
  if (spaces > 0) return drop(spaces), true;
  const bool more = calls_ < kMaxCalls;
  const std::array<const Pattern*, 3> patterns = {more ? &syntax_->next_call : nullptr,
                                                  more ? &syntax_->trigger : nullptr,
                                                  &syntax_->section_end};
  const Found found = find(patterns, 0);
  if (found.fit == Fit::kPart) return false;
  if (found.fit == Fit::kFull && found.which < 2) return begin_body(found.length), true;
  if (found.fit == Fit::kFull) drop(found.length);
  skip_space_ = true;
  state_ = State::kBetween;
  return true;
}

void AnswerParser::drop(size_t count) {
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<long>(count));
}

void AnswerParser::show(size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) syntax_->markers.append_text(pending_[i], text);
  drop(count);
  const bool thinking = state_ == State::kReasoning || (state_ == State::kMessage && thought_);
  emit(thinking ? DialogEvent::Kind::kReasoning : DialogEvent::Kind::kText, text);
  skip_space_ = false;
  begun_ = true;
  if (state_ == State::kBetween) state_ = State::kText;
}

void AnswerParser::emit(DialogEvent::Kind kind, std::string_view text) {
  const bool mark = kind == DialogEvent::Kind::kCallBegin || kind == DialogEvent::Kind::kCallEnd;
  if (text.empty() && !mark) return;
  if (!mark && !pieces_.empty() && pieces_.back().kind == kind) {
    shown_ += text;
    pieces_.back().end = shown_.size();
    return;
  }
  const size_t begin = shown_.size();
  shown_ += text;
  pieces_.push_back({kind, calls_, begin, shown_.size()});
}

void AnswerParser::hand_out(std::vector<DialogEvent>& events) {
  events.clear();
  for (const Piece& piece : pieces_) {
    events.push_back({piece.kind, piece.call,
                      std::string_view(shown_).substr(piece.begin, piece.end - piece.begin)});
  }
}

}  // namespace skein::dialog
