// Tokens in, events out: what becomes of a request, in the words that every API can be told in.
//
//   progress* (reasoning | content | call begin, arguments*, call end | hidden)* end
//
// Thoughts, text and calls may follow each other in any order. A call that was cut has no call end.
// Every token that was taken is named by exactly one event.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "dialog/answer_parser.h"
#include "dialog/history.h"
#include "engine/loop/generation.h"
#include "engine/loop/inference_service.h"
#include "engine/loop/token_stream.h"
#include "engine/manager/served_model.h"
#include "text/text_assembler.h"

namespace skein {

class DialogReader;

// What a request or an answer has used.
struct Usage {
  uint64_t prompt_tokens = 0;
  uint64_t completion_tokens = 0;
  uint64_t cached_tokens = 0;     // of the prompt
  uint64_t reasoning_tokens = 0;  // of the completion
};

// So many tokens of the prompt are computed.
struct AnswerProgress {
  uint32_t computed_tokens = 0;
};

struct AnswerContent {
  std::string_view text;            // whole characters; empty where the tokens show nothing yet
  std::span<const TokenId> tokens;  // as far as the text goes: those after a stop text are not
  std::span<const TokenLogprob> logprobs;  // of these tokens, as in StreamChunk
};

// A piece of a thought.
struct AnswerReasoning {
  std::string_view text;  // whole characters; empty where the tokens show nothing
  std::span<const TokenId> tokens;
};

// A call of a tool begins: its name is whole.
struct AnswerCallBegin {
  uint32_t call = 0;  // of the answer, from 0 on
  std::string_view id;
  std::string_view name;
  bool custom = false;  // the tool takes a text, and the arguments are that text
  std::span<const TokenId> tokens;
};

// A piece of a call's arguments: joined they are JSON text, or the text that a custom tool takes.
struct AnswerArguments {
  uint32_t call = 0;
  std::string_view text;
  std::span<const TokenId> tokens;
};

// The call's arguments are whole.
struct AnswerCallEnd {
  uint32_t call = 0;
  std::span<const TokenId> tokens;
};

// Tokens that show nothing: markers, and white space around thoughts and calls.
struct AnswerHidden {
  std::span<const TokenId> tokens;
};

struct AnswerEnd {
  // As the engine says it; but where a stop text was met it is kStop, where the model has stopped
  // after a whole call kToolCalls, and generated_tokens are those that were taken.
  GenerationEnd how;
  std::string_view stop;  // the stop text that was met; empty: none
};

using AnswerEvent = std::variant<AnswerProgress, AnswerReasoning, AnswerContent, AnswerCallBegin,
                                 AnswerArguments, AnswerCallEnd, AnswerHidden, AnswerEnd>;

struct ReadOptions {
  DecodeOptions decode = {};
  std::vector<std::string> stops = {};  // looked for in the content alone
  std::string prefix = {};              // text that goes before the answer's own
  // How thoughts and calls are told from text; nullptr: all of it is text. The rest is for those
  // that have one.
  std::shared_ptr<const dialog::AnswerSyntax> syntax = {};
  bool in_reasoning = false;  // the prompt has opened a thought
  uint64_t call_seed = 0;     // what the ids of calls are made of
  dialog::IdStyle id_style = dialog::IdStyle::kOpenAi;
  std::vector<std::string> custom_tools = {};  // those that take a text, by name
};

// Turns what a stream says into events. Nothing follows the end. For one thread at a time; the
// tokenizer outlives it. Events hold views of the reader and of the chunk: they count until the
// next call.
class EventReader {
 public:
  // Fails as TextAssembler does on stop texts.
  static Result<EventReader> create(const Tokenizer& tokenizer, ReadOptions options);

  // What was in `events` goes. A token outside the vocabulary ends the answer with kError.
  void read(const StreamChunk& chunk, std::vector<AnswerEvent>& events);

  EventReader(EventReader&&) noexcept;
  EventReader& operator=(EventReader&&) noexcept;
  ~EventReader();

  // No more tokens are wanted.
  bool stopped() const { return ended_ || met_stop(); }
  // Tokens that were taken, the one that completed a stop text included.
  uint64_t tokens() const;

 private:
  EventReader(TextAssembler text, std::unique_ptr<DialogReader> dialog, ReadOptions options);
  Status read_content(const StreamChunk& chunk, std::vector<AnswerEvent>& events);
  bool met_stop() const;

  TextAssembler text_;  // where there is no dialog
  std::unique_ptr<DialogReader> dialog_;
  std::vector<std::string> stops_;
  std::string content_;     // of the next event, or of the last one
  bool has_shown_ = false;  // content_ was in an event and goes with the next call
  uint32_t computed_tokens_ = 0;
  bool ended_ = false;
};

// One request of an engine, read as events. A stop text cancels what is left of it; so does letting
// go. cancel() may be called by any thread, the rest by one at a time.
class Completion {
 public:
  Completion(RequestHandle request, EventReader reader)
      : request_(std::move(request)), reader_(std::move(reader)) {}

  // As ServedModel::submit; `model` has a tokenizer, and outlives the result. `on_ready` may be
  // called before this returns.
  static Result<std::unique_ptr<Completion>> start(ServedModel& model, GenerationRequest request,
                                                   ReadOptions options,
                                                   std::function<void()> on_ready = {});

  // What has arrived since the last time; false when nothing has.
  bool take(std::vector<AnswerEvent>& events);
  // Sleeps until something arrives.
  void wait(std::vector<AnswerEvent>& events);

  void cancel();

  // How many tokens of the prompt were found computed; known with the first token.
  uint32_t cached_tokens() const { return chunk_.cached_tokens; }

  RequestId id() const { return request_.id(); }

 private:
  void read(std::vector<AnswerEvent>& events);
  void cancel(FinishReason reason);

  std::mutex cancelling_;  // request_.cancel()
  RequestHandle request_;
  EventReader reader_;
  StreamChunk chunk_;
};

}  // namespace skein
