// An answer's tokens in, what it is out: thoughts, text, calls of tools.
//
//   auto syntax = std::make_shared<const AnswerSyntax>(format, markers, tools);
//   AnswerParser parser(syntax, opens_reasoning(*format, prompt));
//   parser.push(token, bytes, control, events);   // for every token
//   parser.finish(events);
//
// Thoughts, text and calls may follow each other in any order. Joined, the events are the same for
// any chunking: a marker that is split over tokens is held back, and what turns out to be none is
// text. White space around thoughts and before calls is none of theirs. What is held is bounded.
// Where an answer was cut, what might have become a marker or a call has not turned out to be
// anything, and is not shown.
//
// A call has a begin as soon as its name is known, then its arguments, which joined are the text of
// a JSON object, and an end if that object is whole. A call that ends without one (the answer was
// cut, or went on in a way that is no call) keeps the arguments that came.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dialog/call_body.h"
#include "dialog/chat_format.h"
#include "dialog/units.h"

namespace skein::dialog {

struct DialogEvent {
  enum class Kind : uint8_t { kReasoning, kText, kCallBegin, kArguments, kCallEnd };
  Kind kind;
  uint32_t call = 0;      // of the answer, from 0 on
  std::string_view text;  // whole characters; of a begin: the tool's name
};

// The format as a reader needs it, for one vocabulary and one list of tools. Immutable; all choices
// of a request share one.
struct AnswerSyntax {
  // Without tools (`calls` is false) what looks like a call is text.
  AnswerSyntax(std::shared_ptr<const ChatFormat> format, Markers markers,
               const std::vector<Tool>& tools, bool calls = true);

  std::unique_ptr<CallBody> body() const;

  std::shared_ptr<const ChatFormat> format;
  Markers markers;
  ToolTypes tools;
  bool calls;
  bool bare = false;  // a call is told by its JSON alone, so only at the beginning of an answer
  Pattern reasoning_begin, reasoning_end, text_begin, text_end;
  Pattern trigger;    // the first call of a section
  Pattern next_call;  // another one
  Pattern bare_call;  // as far as its name, where it is bare
  Pattern close;      // behind a body that does not read its own end
  Pattern section_end;
  Pattern start, channel, message;    // kHarmony
  std::vector<Pattern> message_ends;  // likewise
};

// The markers of `format` that are tokens of their own in this vocabulary.
Markers markers_of(const ChatFormat& format, const Tokenizer& tokenizer);

// Whether a prompt ends inside a thought.
bool opens_reasoning(const ChatFormat& format, std::string_view prompt);

class AnswerParser {
 public:
  AnswerParser(std::shared_ptr<const AnswerSyntax> syntax, bool in_reasoning);

  // What was in `events` goes; what comes counts until the next call. `bytes` are the token's,
  // which may end inside a character; those of a control token do not count.
  void push(TokenId token, std::string_view bytes, bool control, std::vector<DialogEvent>& events);
  // Bytes that came without tokens: markers are told by their letters.
  void push_text(std::string_view bytes, std::vector<DialogEvent>& events);
  // `cut`: the model would have gone on.
  void finish(std::vector<DialogEvent>& events, bool cut = false);

  // What came last is not decided yet: a marker or a call may become of it.
  bool holds() const {
    return !pending_.empty() || !partial_.empty() || (state_ == State::kBody && !in_call_);
  }
  bool in_reasoning() const {
    return state_ == State::kReasoning || (state_ == State::kMessage && thought_);
  }
  uint32_t calls() const { return calls_; }
  uint32_t whole_calls() const { return whole_calls_; }

 private:
  enum class State : uint8_t {
    kBetween,  // the beginning, and what follows a thought or a call
    kText,
    kReasoning,
    kBody,
    kClose,
    kAfterCall,
    kHeader,   // kHarmony: before a message
    kMessage,  // kHarmony: in one that is text or a thought
    kCallMessage,
  };
  struct Found {
    Fit fit = Fit::kNo;
    size_t length = 0;
    int which = -1;
  };

  void take_bytes(std::string_view bytes);
  void take(Unit unit);
  bool step(bool last);
  bool step_text(bool last);
  bool step_after_call();
  bool step_close();
  bool step_body();
  void drop_undecided();
  void act(int which);
  void begin_body(size_t marker_units);
  void refuse_body();
  void note_call(const CallOutput& out);
  void end_call();
  bool step_header(bool last);
  bool is_header_part() const;
  bool step_message(bool last);
  bool step_call_message(bool last);
  void begin_message(std::string_view header);
  int message_end(bool last, size_t& length) const;
  Found find(std::span<const Pattern* const> patterns, size_t at) const;

  void drop(size_t count);
  void show(size_t count);  // as text of the present state
  void emit(DialogEvent::Kind kind, std::string_view text);
  void hand_out(std::vector<DialogEvent>& events);

  struct Piece {
    DialogEvent::Kind kind;
    uint32_t call;
    size_t begin, end;  // in shown_
  };

  std::shared_ptr<const AnswerSyntax> syntax_;
  State state_;
  bool begun_ = false;       // something has been shown, or a thought or call has been
  bool skip_space_ = false;  // white space that comes next is nobody's
  bool thought_ = false;     // kMessage: in a thought
  std::string partial_;      // a character that is not whole yet
  std::vector<Unit> pending_;
  std::unique_ptr<CallBody> body_;
  std::vector<Unit> undecided_;                 // what a body has taken before its call began
  size_t undecided_marker_ = 0;                 // units of it that were its marker
  std::unique_ptr<ArgumentsReader> arguments_;  // kCallMessage
  std::string shown_;
  std::vector<Piece> pieces_;
  uint32_t calls_ = 0, whole_calls_ = 0;
  bool in_call_ = false;
};

}  // namespace skein::dialog
