// How an answer is written: as a stream of frames or whole, in OpenAI's words or Anthropic's.
//
// A writer is told what happens, in order: for each choice progress, content and one finish; then
// the end. It appends bytes to `out`; what is written whole appears at the end. One thread at a
// time. An error is no part of an answer: error_body() says it instead of one, error_frame() in a
// stream that has begun, after which nothing comes.
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
#include "server/api/generation.h"
#include "text/tokenizer.h"

namespace skein::api {

enum class AnswerForm : uint8_t { kChat, kCompletion, kMessage };

Dialect dialect_of(AnswerForm form);
std::string_view id_prefix(AnswerForm form);                   // "chatcmpl-", "cmpl-", "msg_"
std::string_view keepalive_frame(AnswerForm form);             // of a stream that says nothing
std::string error_frame(AnswerForm form, const Error& error);  // of a stream: its last

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

// What an answer has cost so far.
struct Figures {
  Usage usage = {};
  std::optional<Timings> timings = {};  // where they are to be written
};

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  virtual void progress(std::string& out, uint64_t computed_tokens, uint64_t prompt_tokens) = 0;
  virtual void content(std::string& out, uint32_t choice, const AnswerContent& content,
                       const Figures& now) = 0;
  virtual void finish(std::string& out, uint32_t choice, const AnswerEnd& end,
                      const Figures& now) = 0;
  virtual void end(std::string& out, const Figures& all) = 0;
  // What is kept for the end: as it is, and once more as JSON. 0 of a stream.
  virtual uint64_t held_bytes() const = 0;
};

struct AnswerStart {
  AnswerForm form = AnswerForm::kChat;
  const Identity& identity;
  const Generation& wanted;    // a stream or a whole answer, and what is in it
  const Tokenizer& tokenizer;  // outlives the writer
  uint32_t choices = 1;
  std::span<const TokenId> prompt_ids = {};  // for those who asked for them
};

std::unique_ptr<AnswerWriter> make_writer(const AnswerStart& start);

// What the dialects' files give to make_writer.
std::unique_ptr<AnswerWriter> make_openai_writer(const AnswerStart& start);
std::unique_ptr<AnswerWriter> make_anthropic_writer(const AnswerStart& start);

}  // namespace skein::api
