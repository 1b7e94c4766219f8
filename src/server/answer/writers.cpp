#include "server/answer/writers.h"

#include <utility>

#include "server/api/message_stream.h"

namespace skein {
namespace {

// Chunks of chats and completions.
class OpenAiStreamWriter final : public AnswerWriter {
 public:
  explicit OpenAiStreamWriter(Options options)
      : options_(std::move(options)),
        stream_(options_.form == AnswerForm::kChat ? api::OpenAiStream::Kind::kChat
                                                   : api::OpenAiStream::Kind::kCompletion,
                options_.identity, options_.extras) {}

  void piece(std::string& out, const Piece& piece, const Usage& usage,
             const api::Timings* timings) override {
    begin(out, piece.index);
    api::Delta delta;
    delta.index = piece.index;
    delta.text = piece.text;
    delta.token_ids = piece.token_ids;
    delta.usage = &usage;
    delta.timings = timings;
    if (options_.logprobs) delta.logprobs = &piece.logprobs;
    stream_.text(out, delta);
  }
  void finish(std::string& out, const api::Choice& choice, const Usage& usage) override {
    begin(out, choice.index);
    stream_.finish(out, choice.index, choice.finish, &usage);
  }
  void end(std::string& out, const Usage& usage, const api::Timings& timings) override {
    if (options_.extras.include_usage) stream_.usage(out, usage, &timings);
    api::OpenAiStream::done(out);
  }
  void error(std::string& out, const api::Error& error) override {
    api::OpenAiStream::error(out, error);
  }
  void progress(std::string& out, uint64_t done, uint64_t all) override {
    stream_.progress(out, done, all);
  }
  bool shows(const Piece& piece) const override {
    return !piece.text.empty() || !piece.logprobs.empty() ||
           (options_.token_ids && !piece.token_ids.empty());
  }

 private:
  // The role, once for each choice.
  void begin(std::string& out, uint32_t index) {
    if (options_.form != AnswerForm::kChat) return;
    if (begun_.size() <= index) begun_.resize(index + 1, false);
    if (begun_[index]) return;
    begun_[index] = true;
    stream_.begin(out, index);
  }

  const Options options_;
  const api::OpenAiStream stream_;
  std::vector<bool> begun_;
};

// The events of one message.
class MessageStreamWriter final : public AnswerWriter {
 public:
  explicit MessageStreamWriter(Options options) : options_(std::move(options)) {}

  void piece(std::string& out, const Piece& piece, const Usage& usage,
             const api::Timings*) override {
    begin(out, usage);
    api::MessageStream::text(out, piece.text);
  }
  void finish(std::string& out, const api::Choice& choice, const Usage& usage) override {
    begin(out, usage);
    api::MessageStream::finish(out, choice, usage);
  }
  void end(std::string&, const Usage&, const api::Timings&) override {}
  void error(std::string& out, const api::Error& error) override {
    api::MessageStream::error(out, error);
  }
  bool shows(const Piece& piece) const override { return !piece.text.empty(); }

 private:
  void begin(std::string& out, const Usage& usage) {
    if (!std::exchange(begun_, true)) {
      api::MessageStream::begin(out, options_.identity, usage);
    }
  }

  const Options options_;
  bool begun_ = false;
};

class WholeWriter final : public AnswerWriter {
 public:
  WholeWriter(Options options, size_t choices) : form_(options.form), logprobs_(options.logprobs) {
    answer_.identity = std::move(options.identity);
    answer_.with_token_ids = options.token_ids;
    answer_.prompt_token_ids = std::move(options.prompt_token_ids);
    answer_.choices.resize(choices);
    for (size_t i = 0; i < choices; ++i) {
      answer_.choices[i].index = static_cast<uint32_t>(i);
      if (logprobs_) answer_.choices[i].logprobs.emplace();
    }
  }

  void piece(std::string&, const Piece& piece, const Usage&, const api::Timings*) override {
    api::Choice& choice = answer_.choices[piece.index];
    choice.text.append(piece.text);
    choice.token_ids.insert(choice.token_ids.end(), piece.token_ids.begin(), piece.token_ids.end());
    if (logprobs_) {
      choice.logprobs->insert(choice.logprobs->end(), piece.logprobs.begin(), piece.logprobs.end());
    }
  }
  void finish(std::string&, const api::Choice& finished, const Usage&) override {
    api::Choice& choice = answer_.choices[finished.index];
    choice.finish = finished.finish;
    choice.stop_sequence = finished.stop_sequence;
  }
  void end(std::string& out, const Usage& usage, const api::Timings& timings) override {
    answer_.usage = usage;
    if (form_ != AnswerForm::kMessage) answer_.timings = timings;
    switch (form_) {
      case AnswerForm::kChat:
        out.append(api::chat_answer(answer_));
        break;
      case AnswerForm::kCompletion:
        out.append(api::completion_answer(answer_));
        break;
      case AnswerForm::kMessage:
        out.append(api::message_answer(answer_));
        break;
    }
  }
  void error(std::string& out, const api::Error& error) override {
    out = api::error_body(dialect_of(form_), error);
  }
  bool shows(const Piece&) const override { return true; }

 private:
  const AnswerForm form_;
  const bool logprobs_;
  api::Answer answer_;
};

}  // namespace

api::Dialect dialect_of(AnswerForm form) {
  return form == AnswerForm::kMessage ? api::Dialect::kAnthropic : api::Dialect::kOpenAi;
}

std::unique_ptr<AnswerWriter> make_stream_writer(AnswerWriter::Options options) {
  if (options.form == AnswerForm::kMessage) {
    return std::make_unique<MessageStreamWriter>(std::move(options));
  }
  return std::make_unique<OpenAiStreamWriter>(std::move(options));
}

std::unique_ptr<AnswerWriter> make_whole_writer(AnswerWriter::Options options, size_t choices) {
  return std::make_unique<WholeWriter>(std::move(options), choices);
}

}  // namespace skein
