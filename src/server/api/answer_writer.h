// How an answer is written: as a stream of frames or whole, in the words of OpenAI's chats, its
// completions, its Responses, or of Anthropic's messages.
//
// A writer is told what happens, in order: for each choice progress, thoughts, content and calls in
// any order, and one finish; then the end. It appends bytes to `out`; what is written whole appears
// at the end. One thread at a time. An error is no part of an answer: its body is sent instead of
// one, or as the last frame of a stream that has begun.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "generate/events.h"
#include "server/api/errors.h"
#include "server/api/fields.h"
#include "text/tokenizer.h"

namespace skein::api {

// One for all frames of an answer.
struct Identity {
  std::string id;
  int64_t created = 0;
  std::string model;
};

struct Timings {
  double queue_ms = 0;
  double prefill_ms = 0;
  double decode_ms = 0;
  double prompt_per_second = 0;
  double predicted_per_second = 0;
};

// The cost of an answer so far.
struct Figures {
  Usage usage = {};
  std::optional<Timings> timings = {};  // where they are to be written
};

// An answer as it is kept: JSON text in three parts, of which `output` is a list of items.
struct KeptAnswer {
  std::string head;
  std::string output;
  std::string tail;
};

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  virtual void progress(std::string& out, uint64_t computed_tokens, uint64_t prompt_tokens) = 0;
  virtual void write(std::string& out, uint32_t choice, const AnswerContent& part,
                     const Figures& now) = 0;
  virtual void write(std::string& out, uint32_t choice, const AnswerReasoning& part,
                     const Figures& now) = 0;
  virtual void write(std::string& out, uint32_t choice, const AnswerCallBegin& part,
                     const Figures& now) = 0;
  virtual void write(std::string& out, uint32_t choice, const AnswerArguments& part,
                     const Figures& now) = 0;
  virtual void write(std::string& out, uint32_t choice, const AnswerCallEnd& part,
                     const Figures& now) = 0;
  // Tokens that show nothing, for those who write ids.
  virtual void pass(std::string& /*out*/, uint32_t /*choice*/, const AnswerHidden& /*part*/,
                    const Figures& /*now*/) {}
  virtual void finish(std::string& out, uint32_t choice, const AnswerEnd& end,
                      const Figures& now) = 0;
  // Between the last finish() and end(), where AnswerOptions::kept asks for it: what is to be kept,
  // and whether it was.
  virtual KeptAnswer kept(const Figures& /*all*/) { return {}; }
  virtual void set_kept(bool /*was_kept*/) {}
  virtual void end(std::string& out, const Figures& all) = 0;
  // The last frames of a stream that ends badly, where they tell of the answer so far; empty: those
  // of its kind.
  virtual std::string failure(const Error& /*error*/) { return {}; }
  // Bytes that are kept for the end, as they are and once more as JSON; most streams keep none.
  virtual uint64_t held_bytes() const = 0;
};

struct AnswerStart {
  const Identity& identity;
  const AnswerOptions& wanted;  // a stream or a whole answer, and what is in it
  const Tokenizer& tokenizer;   // outlives the writer
  uint32_t choices = 1;
  std::span<const TokenId> prompt_ids = {};  // for those who asked for them
  SamplingParams sampling = {};              // the model's defaults included
};

// A kind of answer, as the file of its dialect defines it.
struct AnswerKind {
  std::string_view id_prefix;     // of the answer's id: "chatcmpl-"
  std::string_view prompt_field;  // of the request, for errors about the prompt
  std::string_view keepalive;     // a frame of a stream that says nothing
  // The last frame of a stream that ends badly.
  std::string (*error_frame)(const Error& error);
  std::unique_ptr<AnswerWriter> (*make_writer)(const AnswerStart& start);

  static const AnswerKind kChat, kCompletion, kMessage, kResponse;
};

}  // namespace skein::api
