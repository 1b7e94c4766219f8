// VectorJob: one request for vectors of texts, from its parsed body to its answer.
//
//   begin      on a worker, or on the thread of batches: the model is acquired
//   submit     on a worker: texts become prompts, the first of them engine requests
//   advance    on the delivery thread: vectors are taken as they come, and as many more prompts
//              submitted
//   write      on a worker: all vectors together become the body
//
// A request of 2,048 texts holds no more places in the queue than its key may: its texts are engine
// requests of their own, at most two batches of them at a time, and one that the door refuses waits
// here until another of them has ended. Only when the door refuses it and none is under way, the
// answer is 429. What the vectors and their text take is held in the byte budget before anything is
// computed. A client that leaves cancels all of it.
//
// A job keeps itself alive while it is live: the engine's streams hold it until the end, which
// always comes. cancel() and explain() may be called by any thread at any time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/loop/token_stream.h"
#include "server/answer/answer_account.h"
#include "server/answer/delivery.h"
#include "server/answer/live_requests.h"
#include "server/context.h"
#include "server/router.h"

namespace skein {

using Vector = std::vector<float>;

// What is asked for. Used by one thread at a time.
class VectorWork {
 public:
  virtual ~VectorWork() = default;

  virtual std::string_view id_prefix() const = 0;  // "embd-"
  virtual const std::string& model() const = 0;    // empty: the first
  virtual std::optional<TimeUs> timeout_us() const = 0;

  // The ids of each text, all of them within the context; or why this model cannot do it.
  virtual api::Parsed<std::vector<std::vector<TokenId>>> make_prompts(
      const ServerContext& context, const ServedModel& served) = 0;
  // Of the ids, at most: a text of so many bytes has no more tokens.
  virtual uint64_t prompt_bytes() const = 0;
  // Of the body, at most.
  virtual uint64_t answer_bytes(const ServedModel& served) const = 0;
  // The body; `vectors` are in the order of the prompts. Fails where one has no direction.
  virtual Result<std::string> write(const ServedModel& served, const std::string& id,
                                    uint64_t prompt_tokens, std::vector<Vector> vectors) const = 0;
};

class VectorJob final : public Deliverable,
                        public LiveRequest,
                        public std::enable_shared_from_this<VectorJob> {
 public:
  // The body of the call is parsed already: it is in `work`.
  VectorJob(ServerContext& context, Call call, std::unique_ptr<VectorWork> work,
            std::unique_ptr<AnswerSink> sink);

  void begin();

  void advance() override;
  void give_up() noexcept override;
  void explain(std::function<void(RequestExplanation)> done) override;
  void cancel() override;

 private:
  void on_model(Result<ModelLease> lease, bool at_once);
  void submit(const std::shared_ptr<ModelLease>& lease);
  std::optional<api::Error> prepare();
  std::optional<api::Error> hold_memory(uint64_t bytes);
  std::optional<api::Error> submit_more();
  GenerationRequest request_of(const std::vector<TokenId>& prompt) const;
  std::optional<api::Error> take_ended();
  std::optional<api::Error> failure(const GenerationEnd& end);
  void write();
  void fail(const api::Error& error);
  void close(int status);
  bool is_cancelled() const;

  ServerContext& context_;
  Call call_;
  const std::unique_ptr<VectorWork> work_;
  std::unique_ptr<AnswerSink> sink_;
  const bool is_background_;
  std::shared_ptr<void> memory_;  // of the request, until all of its prompts are submitted
  const std::string id_;
  std::string model_;
  const TimeUs arrived_us_;
  AnswerAccount account_;
  ByteBudget::Hold hold_;  // for the vectors and the body

  std::vector<std::vector<TokenId>> prompts_;  // an empty one was submitted
  size_t next_ = 0;                            // the first that was not
  std::vector<Vector> vectors_;
  size_t ended_ = 0;
  StreamChunk chunk_;
  std::atomic<bool> submitted_{false};  // advance() may look at all this
  bool closed_ = false;

  mutable std::mutex mutex_;  // for what cancel() and explain() share with the rest
  bool cancelled_ = false;
  std::optional<ModelLease> lease_;
  std::map<uint32_t, RequestHandle> running_;  // by the prompt's number
};

}  // namespace skein
