// DialogReader: an answer's tokens in, its thoughts, text and calls out, as the events of events.h.
//
// Every token is named by exactly one event, and which one depends on the tokens alone, not on how
// they are chunked: a token that may belong to a marker waits until that is decided. Where a token
// shows content it is content's; markers and white space that nobody sees are hidden, or the
// thought's that they end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dialog/answer_parser.h"
#include "dialog/arguments_reader.h"
#include "generate/events.h"
#include "text/text_assembler.h"

namespace skein {

// The text that a custom tool is given, out of the JSON object with one string that its call has.
class InputReader {
 public:
  void push(std::string_view json, std::string& out);

 private:
  enum class State : uint8_t { kKey, kValue, kText, kDone };
  State state_ = State::kKey;
  bool escaped_ = false;
  dialog::StringDecoder decoder_;
};

class DialogReader {
 public:
  // `options` has a syntax; the tokenizer outlives the reader.
  DialogReader(const Tokenizer& tokenizer, const ReadOptions& options, StopFilter stops);

  // Appends what the chunk brings. Views of the reader count until the next call. kOutOfRange for
  // a token outside the vocabulary.
  Status read(const StreamChunk& chunk, std::vector<AnswerEvent>& events);

  bool stopped() const { return stops_.stopped(); }
  size_t stop_index() const { return stops_.stop_index(); }
  uint64_t tokens() const { return taken_; }
  uint32_t whole_calls() const { return parser_.whole_calls(); }

 private:
  enum class Kind : uint8_t { kReasoning, kContent, kCallBegin, kArguments, kCallEnd, kHidden };
  struct Piece {
    Kind kind;
    uint32_t call = 0;
    bool custom = false;
    size_t id_bytes = 0;  // kCallBegin: how much of the text is the id
    size_t text_begin = 0, text_end = 0;
    size_t token_begin = 0, token_end = 0;
  };

  Status push(TokenId token);
  void take(bool was_thinking);
  void take_event(const dialog::DialogEvent& event, bool names_tokens);
  void flush_content();
  void add(Kind kind, uint32_t call, bool names_tokens);
  void begin_call(const dialog::DialogEvent& event, bool names_tokens);
  void hand_out(std::vector<AnswerEvent>& events) const;

  const Tokenizer& tokenizer_;
  const bool skip_special_;
  const uint64_t call_seed_;
  const dialog::IdStyle id_style_;
  const std::vector<std::string> custom_tools_;
  bool strip_space_;
  dialog::AnswerParser parser_;
  StopFilter stops_;
  std::unique_ptr<InputReader> input_;  // of a call of a custom tool

  uint64_t taken_ = 0;
  std::vector<dialog::DialogEvent> parsed_;
  std::string shown_;                   // the texts of the pieces, one after the other
  size_t piece_begin_ = 0;              // in shown_: of what is not in a piece yet
  std::vector<Piece> pieces_;           // of this chunk
  std::vector<TokenId> tokens_;         // of this chunk, behind those that waited
  std::vector<TokenLogprob> logprobs_;  // likewise
  size_t logprobs_per_token_ = 0;
  size_t named_ = 0;  // of tokens_
};

}  // namespace skein
