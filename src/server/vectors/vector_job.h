// VectorJob: one request for vectors of texts, from its parsed body to its answer.
//
//   start      on a worker: texts become prompts, the first of them engine requests
//   advance    on the delivery thread: vectors are taken as they come, and as many more prompts
//              submitted
//   write      on a worker: all vectors together become the body
//
// A request of 2,048 texts holds no more places in the queue than its key may: its texts are engine
// requests of their own, at most two batches of them at a time, and one that the door refuses waits
// here until another of them has ended. Only when the door refuses it and none is under way, the
// answer is 429. What the vectors and their text take is held in the byte budget before anything is
// computed. A client that leaves cancels all of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/loop/token_stream.h"
#include "server/answer/job.h"

namespace skein {

using Vector = std::vector<float>;

// The ids of a text, or of two.
struct VectorPrompt {
  std::vector<TokenId> ids;
  uint32_t second_from = 0;  // as in GenerationRequest
};

// The work that a request asks for. One thread uses it at a time.
class VectorWork {
 public:
  virtual ~VectorWork() = default;

  virtual std::string_view id_prefix() const = 0;  // "embd-"
  virtual const std::string& model() const = 0;    // empty: the first
  virtual std::optional<TimeUs> timeout_us() const = 0;

  // The ids of each text, all of them within the context; or why this model cannot do it.
  virtual api::Parsed<std::vector<VectorPrompt>> make_prompts(const ServerContext& context,
                                                              const ServedModel& served) = 0;
  // The most bytes that the ids can take: a text has no more tokens than bytes.
  virtual uint64_t prompt_bytes() const = 0;
  // The most bytes that the body can have.
  virtual uint64_t answer_bytes(const ServedModel& served) const = 0;
  // The body; `vectors` are in the order of the prompts. Fails where one has no direction.
  virtual Result<std::string> write(const ServedModel& served, const std::string& id,
                                    uint64_t prompt_tokens, std::vector<Vector> vectors) const = 0;
};

class VectorJob final : public Job {
 public:
  // The body of the call is parsed already: it is in `work`.
  VectorJob(ServerContext& context, Call call, std::unique_ptr<VectorWork> work,
            std::unique_ptr<AnswerSink> sink);

  void advance() override;

 private:
  const std::string& wanted_model() const override { return work_->model(); }
  std::optional<TimeUs> timeout_us() const override { return work_->timeout_us(); }
  void open(std::function<void()> hung_up) override { sink_->on_hangup(std::move(hung_up)); }
  std::optional<api::Error> start() override;
  bool send_error(const api::Error& error) override { return sink_->fail(identity_.id, error, {}); }
  void abandon() noexcept override { sink_.reset(); }
  void release() override;
  void cancel_running() override;
  void describe(RequestExplanation& explanation, std::vector<Running>& running) const override;

  std::optional<api::Error> prepare();
  std::optional<api::Error> hold_memory(uint64_t bytes);
  std::optional<api::Error> submit_more();
  std::optional<api::Error> take_ended();
  void write();

  const std::unique_ptr<VectorWork> work_;
  std::unique_ptr<AnswerSink> sink_;
  ByteBudget::Hold hold_;  // for the vectors and the body

  std::vector<VectorPrompt> prompts_;  // an empty one was submitted
  size_t next_ = 0;                    // the first that was not
  std::vector<Vector> vectors_;
  size_t ended_ = 0;
  StreamChunk chunk_;
  std::map<uint32_t, RequestHandle> running_;  // by the prompt's number; with the mutex held
};

}  // namespace skein
