// AnswerJob: one request from its parsed body to its last byte.
//
//   begin      on a worker: the model is acquired
//   submit     on a worker: the prompts are made, one engine request per choice is submitted
//   advance    on the delivery thread: tokens become text, text becomes frames, until all have
//   ended
//
// It keeps itself alive while it is live: the engine's streams hold it until the end, which always
// comes. cancel() and explain() may be called by any thread at any time.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/inference_service.h"
#include "generate/events.h"
#include "server/answer/generate.h"
#include "server/answer/writers.h"

namespace skein {

// One prompt, ready for the model.
struct PromptTokens {
  std::vector<TokenId> ids;
  std::string echo;  // goes before the answer
};

// What a kind of request adds to the common path.
struct AnswerSpec {
  AnswerForm form = AnswerForm::kChat;
  api::Generation generation;
  // On a worker, when the model is there.
  std::function<api::Parsed<std::vector<PromptTokens>>(const ServedModel&)> make_prompts;
};

class AnswerJob final : public Deliverable,
                        public LiveRequest,
                        public std::enable_shared_from_this<AnswerJob> {
 public:
  AnswerJob(ServerContext& context, Caller caller, AnswerSpec spec);

  void begin(http::Responder responder);
  void begin(LineDone done);

  void advance() override;
  void give_up() noexcept override;
  void explain(std::function<void(RequestExplanation)> done) override;
  void cancel() override;

 private:
  struct Choice {
    std::unique_ptr<Completion> completion;
    api::Choice result;
    std::optional<GenerationEnd> end;
    uint64_t characters = 0;  // before the next token, for its text_offset
    uint32_t prompt = 0;      // which of the prompts
    bool on_account = false;  // max_tokens is its share of what the key had left
    bool finished = false;    // its end was written
  };

  // answer_job.cpp: up to the engine
  bool find_model();
  void start();
  void start_answer();
  void acquire();
  void on_model(Result<ModelLease> lease, bool at_once);
  void submit(const std::shared_ptr<ModelLease>& lease);
  void make_requests(ModelLease lease);
  Status submit_choices(std::vector<PromptTokens> prompts);
  std::optional<api::Error> check_ids() const;
  std::optional<api::Error> check_size(const std::vector<PromptTokens>& prompts) const;
  std::optional<api::Error> check_rate(const std::vector<PromptTokens>& prompts);
  AnswerWriter::Options writer_options() const;
  api::Error submit_error(const Status& status);
  uint64_t tenant() const;
  static api::Error cancelled_error();

  // answer_delivery.cpp: from the engine
  bool advance_choice(Choice& choice);
  void write_content(Choice& choice, const AnswerContent& content);
  void note_tokens(size_t tokens);
  std::vector<api::Logprob> logprobs_of(Choice& choice, const AnswerContent& content) const;
  bool finish_choice(Choice& choice, const AnswerEnd& end);
  void flush();
  api::Error memory_error() const;
  Usage usage() const;
  api::Timings timings() const;
  std::optional<api::Error> failure(const Choice& choice);
  void fail(const api::Error& error);
  void complete();
  void count(FinishReason reason);
  void close(int status);

  ServerContext& context_;
  Caller caller_;
  AnswerSpec spec_;
  api::Identity identity_;
  const TimeUs arrived_;
  uint64_t seed_ = 0;

  std::optional<http::Responder> responder_;
  LineDone done_;
  std::unique_ptr<AnswerWriter> writer_;  // of a stream: before its head can leave
  std::vector<AnswerEvent> events_;       // of a choice, while they are written
  std::string out_;                       // written by the writer, not yet taken by the responder
  bool stalled_ = false;                  // the responder is full
  // What a plain answer has grown to, or what a stream holds back while its reader is behind.
  ByteBudget::Hold memory_;
  bool has_memory_ = true;

  mutable std::mutex mutex_;  // for what cancel() and explain() share with the rest
  bool cancelled_ = false;
  std::optional<ModelLease> lease_;
  std::deque<Choice> choices_;  // their places never change

  std::atomic<bool> submitted_{false};  // choices_ is complete: advance() may look at it
  bool end_written_ = false;
  FinishedRequest finished_;  // for the log, once it was counted
  bool counted_ = false;
  bool closed_ = false;
  uint32_t wanted_choices_ = 0;
  size_t unfinished_ = 0;
  uint64_t prompt_tokens_ = 0;
  uint64_t reserved_tokens_ = 0;  // at the rate limiter
  // Of a request without max_tokens whose key has a limit: what each choice may generate.
  std::optional<uint32_t> share_tokens_;
  bool used_up_ = false;  // a choice has come to the end of its share
  TimeUs first_token_ = 0;
  TimeUs last_tokens_ = 0;
};

}  // namespace skein
