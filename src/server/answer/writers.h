// How an answer is written: as a stream of frames or whole, in OpenAI's words or Anthropic's.
//
// An answer tells its writer what happens, in order: for each choice pieces and one finish, then
// the end; or, at any point, an error after which nothing comes. A writer appends bytes to `out`;
// what is written whole appears at the end. One thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/answers.h"
#include "server/api/errors.h"
#include "server/api/openai_stream.h"

namespace skein {

enum class AnswerForm : uint8_t { kChat, kCompletion, kMessage };

api::Dialect dialect_of(AnswerForm form);

// What a choice gained.
struct Piece {
  uint32_t index = 0;
  std::string_view text;                        // whole characters; may be empty
  std::span<const api::Logprob> logprobs = {};  // of the tokens below, where they were asked for
  std::span<const TokenId> token_ids = {};
};

class AnswerWriter {
 public:
  struct Options {
    AnswerForm form = AnswerForm::kChat;
    api::Identity identity;
    api::StreamExtras extras;
    bool logprobs = false;
    bool token_ids = false;
    std::vector<TokenId> prompt_token_ids;  // where they were asked for
  };

  virtual ~AnswerWriter() = default;
  virtual void piece(std::string& out, const Piece& piece, const Usage& usage,
                     const api::Timings* timings) = 0;
  // `choice` has no text: its pieces had.
  virtual void finish(std::string& out, const api::Choice& choice, const Usage& usage) = 0;
  virtual void end(std::string& out, const Usage& usage, const api::Timings& timings) = 0;
  virtual void error(std::string& out, const api::Error& error) = 0;
  virtual void progress(std::string&, uint64_t, uint64_t) {}  // done and all tokens of the prompt
  // Whether there is anything in a piece for the client to see.
  virtual bool shows(const Piece& piece) const = 0;
};

std::unique_ptr<AnswerWriter> make_stream_writer(AnswerWriter::Options options);
// `end` gives the JSON body.
std::unique_ptr<AnswerWriter> make_whole_writer(AnswerWriter::Options options, size_t choices);

}  // namespace skein
