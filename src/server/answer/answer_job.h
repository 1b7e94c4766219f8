// AnswerJob: one request from its parsed body to the last byte of its answer.
//
//   begin      on a worker, or on the thread of batches: the model is acquired; a worker goes on at
//              once where it is loaded
//   submit     on a worker: the prompts are made, one engine request per choice is submitted
//   advance    on the delivery thread: events become bytes, until all choices have ended
//   keep       on the delivery thread, where the answer is to be kept: the store gets it, and the
//              answer ends when the store has said whether it has it
//
// What an answer costs is its AnswerAccount's business, what is sent its AnswerOutput's. A job
// keeps itself alive while it is live: the engine's streams hold it until the end, which always
// comes. cancel() and explain() may be called by any thread at any time.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "generate/events.h"
#include "server/answer/answer_account.h"
#include "server/answer/delivery.h"
#include "server/answer/prompts.h"
#include "server/router.h"

namespace skein {

class AnswerJob final : public Deliverable,
                        public LiveRequest,
                        public std::enable_shared_from_this<AnswerJob> {
 public:
  // The body of the call is parsed already: it is in `request`.
  AnswerJob(ServerContext& context, Call call, const api::AnswerKind& kind, AnswerRequest request,
            std::unique_ptr<AnswerSink> sink);

  void begin();

  void advance() override;
  void give_up() noexcept override;
  void explain(std::function<void(RequestExplanation)> done) override;
  void cancel() override;

 private:
  struct Choice {
    std::unique_ptr<Completion> completion;
    uint32_t index = 0;
    bool counts_prompt = false;  // the first of its prompt
    bool on_account = false;     // max_tokens is its share of what the key had left
    bool has_finished = false;   // its end was written
    FinishReason reason = FinishReason::kStop;
  };

  void on_model(Result<ModelLease> lease, bool at_once);
  void submit(const std::shared_ptr<ModelLease>& lease);
  std::optional<api::Error> take_shape(const PromptTokens& prompt);
  std::optional<api::Error> check(const std::vector<PromptTokens>& prompts);
  Status submit_choices(const std::vector<PromptTokens>& prompts);
  GenerationRequest request_of(const PromptTokens& prompt, uint32_t index,
                               const SamplingParams& sampling, bool on_account) const;
  bool advance_choice(Choice& choice);
  template <class Part>
  void write_part(const Choice& choice, const Part& part);
  bool finish_choice(Choice& choice, const AnswerEnd& end);
  std::optional<api::Error> failure(const GenerationEnd& end);
  api::Error submit_error(const Status& status);
  uint64_t tenant() const;
  bool keep();
  void on_kept(const Status& status);
  void complete();
  void fail(const api::Error& error);
  void close(int status);

  ServerContext& context_;
  Call call_;
  const api::AnswerKind kind_;
  const bool is_background_;
  api::AnswerOptions wanted_;
  AnswerRequest request_;         // its text goes with its memory_, once its prompts are made
  std::shared_ptr<void> memory_;  // of the request
  api::Identity identity_;
  const TimeUs arrived_us_;
  uint64_t seed_ = 0;  // as given or drawn
  AnswerShape shape_;
  AnswerAccount account_;
  AnswerOutput output_;

  mutable std::mutex mutex_;  // for what cancel() and explain() share with the rest
  bool cancelled_ = false;
  std::optional<ModelLease> lease_;
  std::deque<Choice> choices_;

  std::atomic<bool> submitted_{false};  // choices_ is complete: advance() may look at it
  std::vector<AnswerEvent> events_;     // of a choice, while they are written
  uint32_t wanted_choices_ = 0;
  size_t unfinished_ = 0;
  bool used_up_ = false;  // a choice has come to the end of its share
  // Whether the answer was given to the store, and what became of it.
  bool is_being_kept_ = false;
  std::atomic<bool> store_has_answered_{false};
  bool was_kept_ = false;  // once the store has answered
  bool closed_ = false;
};

}  // namespace skein
