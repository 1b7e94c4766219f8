// AnswerJob: one request for text, from its parsed body to the last byte of its answer.
//
//   start      on a worker: the prompts are made, one engine request per choice is submitted, as
//   far
//              as the engine's door lets them in
//   advance    on the delivery thread: events become bytes, and the choices that were left come in,
//              until all have ended
//   keep       on the delivery thread, where the answer is to be kept: the store gets it, and the
//              answer ends when the store has said whether it has it, or has taken too long
//
// What an answer costs is its AnswerAccount's business, what is sent its AnswerOutput's.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "generate/events.h"
#include "server/answer/job.h"
#include "server/answer/prompts.h"

namespace skein {

class AnswerJob final : public Job {
 public:
  // The body of the call is parsed already: it is in `request`.
  AnswerJob(ServerContext& context, Call call, const api::AnswerKind& kind, AnswerRequest request,
            std::unique_ptr<AnswerSink> sink);

  void advance() override;

 private:
  struct Choice {
    std::unique_ptr<Completion> completion;
    uint32_t index = 0;
    bool counts_prompt = false;  // the first of its prompt
    bool on_account = false;     // max_tokens is its share of what the key had left
    bool has_finished = false;   // its end was written
    FinishReason reason = FinishReason::kStop;
  };

  const std::string& wanted_model() const override { return wanted_.model; }
  std::optional<TimeUs> timeout_us() const override { return wanted_.timeout_us; }
  bool has_form() const override;
  void open(std::function<void()> hung_up) override;
  std::optional<api::Error> start() override;
  bool send_error(const api::Error& error) override;
  void abandon() noexcept override { output_.abandon(); }
  void release() override;
  void cancel_running() override;
  void describe(RequestExplanation& explanation, std::vector<Running>& running) const override;

  std::optional<api::Error> take_shape(const PromptTokens& prompt);
  std::optional<api::Error> check(uint64_t prompt_tokens);
  std::optional<api::Error> submit_more();
  Status submit_choice(uint32_t index);
  GenerationRequest request_of(const PromptTokens& prompt, uint32_t index, bool on_account) const;
  bool advance_choice(Choice& choice);
  template <class Part>
  void write_part(const Choice& choice, const Part& part);
  bool finish_choice(Choice& choice, const AnswerEnd& end);
  std::optional<api::Error> choice_failure(const GenerationEnd& end);
  bool keep();
  void give_to_store();
  void on_kept(const Status& status);
  void complete();

  const api::AnswerKind kind_;
  api::AnswerOptions wanted_;
  AnswerRequest request_;  // its text goes with its memory_, once its prompts are made
  uint64_t seed_ = 0;      // as given or drawn
  AnswerShape shape_;
  AnswerOutput output_;
  std::vector<PromptTokens> prompts_;  // until all choices are submitted
  uint32_t count_ = 0;                 // of the choices of all prompts
  std::deque<Choice> choices_;         // added to and dropped with the mutex held

  std::vector<AnswerEvent> events_;  // of a choice, while they are written
  size_t unfinished_ = 0;
  uint32_t ended_ = 0;    // choices whose places in the batch are for those to come
  bool used_up_ = false;  // a choice has come to the end of its share
  // Whether the answer was given to the store, and what became of it.
  enum class Keeping : uint8_t { kNotAsked, kAsked, kKept, kNotKept };
  std::atomic<Keeping> keeping_{Keeping::kNotAsked};
  std::chrono::steady_clock::time_point keep_by_;  // the store's time is over
};

}  // namespace skein
