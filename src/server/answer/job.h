// Job: one request that has an engine work for it, from its parsed body to the end of its answer.
//
//   begin      on a worker, or on the thread of batches: the model is acquired; a worker goes on at
//              once where it is loaded
//   start      on a worker, with the model: what the engine is to do is submitted
//   advance    on the delivery thread, whenever the engine's streams have news
//   fail, close
//
// What every job does alike is here; AnswerJob makes text of it, VectorJob vectors. A job keeps
// itself alive while it is live: the engine's streams hold it until the end, which always comes.
// cancel() and explain() may be called by any thread at any time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/loop/generation.h"
#include "engine/manager/served_model.h"
#include "server/answer/answer_account.h"
#include "server/answer/delivery.h"
#include "server/answer/live_requests.h"
#include "server/context.h"
#include "server/router.h"

namespace skein {

class Job : public Deliverable, public LiveRequest, public std::enable_shared_from_this<Job> {
 public:
  void begin();

  void give_up() noexcept final;
  void explain(std::function<void(RequestExplanation)> done) final;
  RequestBrief brief() const final;
  void cancel() final;

 protected:
  // One engine request of a job.
  struct Running {
    uint32_t index = 0;
    RequestId id;
  };

  // `about`: what a job of this kind knows of itself from the start; the call says the rest.
  Job(ServerContext& context, Call call, std::string_view id_prefix, bool is_background,
      FinishedRequest about);

  virtual const std::string& wanted_model() const = 0;  // empty: the first
  // It may have to be compiled, which takes long.
  virtual bool has_form() const { return false; }
  virtual std::optional<TimeUs> timeout_us() const = 0;
  // Hands `hung_up` to the sink.
  virtual void open(std::function<void()> hung_up) = 0;
  // The lease is there. Why nothing was begun, where that is so.
  virtual std::optional<api::Error> start() = 0;
  // The end, badly; true: as a frame of a stream.
  virtual bool send_error(const api::Error& error) = 0;
  // Not even an error can be said: the sink goes without an end.
  virtual void abandon() noexcept = 0;
  // After the end: what is held goes, and with the engine's streams what holds this.
  virtual void release() = 0;
  // With the mutex held.
  virtual void cancel_running() = 0;
  virtual void describe(RequestExplanation& explanation, std::vector<Running>& running) const = 0;

  // Runs it on one of `workers`, in its owner's turn; fails where none takes it.
  void on_worker(http::Workers& workers, std::function<void()> run);
  // For the engine's streams, which hold this by it: there is something for advance().
  std::function<void()> news();
  // A request of this job for the engine; what is sampled or pooled is for others to say.
  GenerationRequest engine_request(std::vector<TokenId> prompt) const;
  // Why an engine request did not end well; nothing when it did.
  std::optional<api::Error> failure(const GenerationEnd& end);
  // Tells the client why the engine refused its request, or failed; counts it.
  api::Error engine_error(const Status& status);
  // A tenant is a key, also where prefixes are shared. Lines of its batches are another tenant:
  // they take nothing of what the key itself may have waiting.
  uint64_t tenant() const;
  // The client's time is over.
  bool is_late() const;
  bool is_cancelled() const;
  static api::Error cancelled_error();
  // The end of the whole answer, badly: a plain error while nothing has left, else a last frame.
  void fail(const api::Error& error);
  void close(int status);

  ServerContext& context_;
  Call call_;
  const bool is_background_;
  std::shared_ptr<void> memory_;  // of the request's text
  api::Identity identity_;
  const TimeUs arrived_us_;
  AnswerAccount account_;

  mutable std::mutex mutex_;  // for what cancel() and explain() share with the rest
  bool cancelled_ = false;
  std::optional<ModelLease> lease_;

  std::atomic<bool> submitted_{false};  // advance() may look at what start() has made
  bool closed_ = false;

 private:
  // What is thrown, for want of memory, ends this job and nobody else's.
  template <class Run>
  void guard(const Run& run);
  void on_model(Result<ModelLease> lease, bool at_once);
  void submit(const std::shared_ptr<ModelLease>& lease);
};

}  // namespace skein
