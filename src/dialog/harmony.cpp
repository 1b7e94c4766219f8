// gpt-oss' messages: a header of role, recipient and channel, a marker, a body, a marker.
#include <array>

#include "dialog/answer_parser.h"

namespace skein::dialog {
namespace {

constexpr size_t kMaxHeaderUnits = 512;
constexpr std::string_view kTools = "functions.";

std::string_view word_at(std::string_view text, size_t at) {
  text.remove_prefix(at);
  return text.substr(0, text.find_first_of(" <\t\r\n"));
}

}  // namespace

bool AnswerParser::step_header(bool last) {
  const size_t limit = std::min(pending_.size(), kMaxHeaderUnits);
  for (size_t i = 0; i < limit; ++i) {
    const FitResult fits = fit(syntax_->message, std::span<const Unit>(pending_).subspan(i));
    if (fits.fit == Fit::kNo) continue;
    if (fits.fit == Fit::kPart && !last) return false;
    if (fits.fit == Fit::kPart) break;
    std::string header;
    for (size_t k = 0; k < i; ++k) syntax_->markers.append_spelling(pending_[k], header);
    drop(i + fits.length);
    begin_message(header);
    return true;
  }
  if (pending_.size() < kMaxHeaderUnits && !last) return false;
  std::string header;
  for (const Unit unit : pending_) syntax_->markers.append_spelling(unit, header);
  if (last && header.find("<|channel|>") != std::string::npos) {  // the answer was cut inside it
    drop(pending_.size());
    return false;
  }
  thought_ = false;  // no header at all: what came is text
  state_ = State::kMessage;
  show(1);
  return true;
}

// What waits begins as a header does, at the beginning of an answer.
bool AnswerParser::is_header_part() const {
  return fit(syntax_->channel, pending_).fit != Fit::kNo ||
         fit(syntax_->start, pending_).fit != Fit::kNo;
}

void AnswerParser::begin_message(std::string_view header) {
  begun_ = true;
  const size_t to = header.find("to="), channel = header.find("<|channel|>");
  const std::string_view recipient =
      to == std::string_view::npos ? std::string_view() : word_at(header, to + 3);
  const std::string_view name =
      channel == std::string_view::npos
          ? std::string_view()
          : word_at(header, channel + std::string_view("<|channel|>").size());
  const std::string_view tool =
      recipient.starts_with(kTools) ? recipient.substr(kTools.size()) : std::string_view();
  if (syntax_->calls && is_tool_name(tool) && calls_ < kMaxCalls) {
    emit(DialogEvent::Kind::kCallBegin, tool);
    in_call_ = true;
    arguments_ = std::make_unique<ArgumentsReader>();
    state_ = State::kCallMessage;
    return;
  }
  thought_ = name == "analysis";
  state_ = State::kMessage;
}

// The number of the marker by which a message ends at the front, or -1; -2 while that is open.
int AnswerParser::message_end(bool last, size_t& length) const {
  for (size_t i = 0; i < syntax_->message_ends.size(); ++i) {
    const FitResult fits = fit(syntax_->message_ends[i], pending_);
    length = fits.length;
    if (fits.fit == Fit::kFull) return static_cast<int>(i);
    if (fits.fit == Fit::kPart && !last) return -2;
  }
  return -1;
}

bool AnswerParser::step_message(bool last) {
  size_t length = 0;
  const int end = message_end(last, length);
  if (end == -2) return false;
  if (end >= 0) {
    // A channel begins a header without the role; the others stand before one.
    if (syntax_->message_ends[static_cast<size_t>(end)] != syntax_->channel) drop(length);
    state_ = State::kHeader;
    return true;
  }
  show(1);
  return true;
}

bool AnswerParser::step_call_message(bool last) {
  size_t length = 0;
  // Where markers are bytes, a string among the arguments may have one in it: nowhere else in JSON
  // can this byte stand.
  bool in_string = false;
  if (in_call_ && pending_[0] == '<') {
    ArgumentsReader trial = *arguments_;
    std::string out;
    in_string = trial.take('<', out) != Take::kRefused;
  }
  const int end = in_string ? -1 : message_end(last, length);
  if (end == -2) return false;
  if (end >= 0) {
    if (in_call_) ++calls_;  // it was not whole
    in_call_ = false;
    if (syntax_->message_ends[static_cast<size_t>(end)] != syntax_->channel) drop(length);
    state_ = State::kHeader;
    return true;
  }
  std::string text;
  syntax_->markers.append_text(pending_[0], text);
  drop(1);
  for (const char c : text) {
    if (!in_call_) break;  // what follows the arguments is nobody's
    std::string out;
    const Take taken = arguments_->take(c, out);
    if (taken != Take::kRefused) emit(DialogEvent::Kind::kArguments, out);
    if (taken == Take::kTaken) continue;
    if (taken == Take::kEnded) {
      emit(DialogEvent::Kind::kCallEnd, "");
      ++whole_calls_;
    }
    in_call_ = false;
    ++calls_;
  }
  return true;
}

}  // namespace skein::dialog
