// InferenceService: one loaded model that answers requests, as its owner holds it, with its
// thread and its watchdog. BatchInferenceEngine is the one that serves; DirectService is what
// it degrades to.
//
//   SKEIN_ASSIGN(RequestHandle request, service.submit(std::move(wanted), on_ready));
//   while (request.stream().wait(chunk)) { ...; if (chunk.end) break; }
//
// Every accepted request ends exactly once, in its stream, with the true reason. Any thread may
// call any member.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/time.h"
#include "engine/loop/generation.h"
#include "engine/loop/snapshot.h"
#include "engine/loop/step_watch.h"
#include "engine/loop/token_stream.h"
#include "sched/queue_door.h"
#include "sched/scheduler.h"
#include "sched/types.h"

namespace skein {

// What the scheduler is to know of a request, but for its id, its prompt and its deadline.
RequestSpec spec_of(const GenerationRequest& request);

// Takes a handle's cancel; it outlives the service, and ignores what is not live.
class RequestCanceller {
 public:
  virtual ~RequestCanceller() = default;
  virtual void cancel(RequestId id, FinishReason reason) = 0;
};

// The reader's end of a request. Letting go of it before the end cancels the request.
class RequestHandle {
 public:
  RequestHandle() = default;
  RequestHandle(RequestId id, std::shared_ptr<TokenStream> stream,
                std::shared_ptr<RequestCanceller> canceller)
      : id_(id), stream_(std::move(stream)), canceller_(std::move(canceller)) {}
  RequestHandle(RequestHandle&&) = default;
  RequestHandle& operator=(RequestHandle&& other) noexcept {
    if (this != &other) {
      cancel(FinishReason::kClient);
      id_ = other.id_;
      stream_ = std::move(other.stream_);
      canceller_ = std::move(other.canceller_);
    }
    return *this;
  }
  ~RequestHandle() { cancel(FinishReason::kClient); }

  RequestId id() const { return id_; }
  TokenStream& stream() const { return *stream_; }

  // kClient: nobody wants the rest. kStop: the reader saw a stop string; the request is complete.
  // The end still arrives in the stream. Only the first call counts.
  void cancel(FinishReason reason) {
    if (canceller_ != nullptr && !stream_->ended()) canceller_->cancel(id_, reason);
    canceller_ = nullptr;
  }

 private:
  RequestId id_;
  std::shared_ptr<TokenStream> stream_;
  std::shared_ptr<RequestCanceller> canceller_;
};

// A request under way to whoever serves it, or from a service that failed to the next one.
struct Submission {
  RequestId id;
  GenerationRequest request;
  std::shared_ptr<TokenStream> stream;
  TimeUs arrived = 0;
  TimeUs deadline = kNever;
};

struct ServiceOptions {
  SchedulerConfig scheduler;
  TimeUs step_timeout_us = 60 * kUsPerSecond;
  TimeUs stall_timeout_us = 60 * kUsPerSecond;  // a reader that takes nothing for so long is cut
  Speculation speculation = Speculation::kOff;  // of requests that do not say
  bool auto_speculates = true;                  // what kAuto comes to

  // How guesses are made for a request.
  Speculation speculation_for(const GenerationRequest& request) const {
    if (scheduler.step_drafts == 0 || request.pooling != Pooling::kNone) return Speculation::kOff;
    const Speculation how = request.speculation.value_or(speculation);
    return how == Speculation::kAuto && !auto_speculates ? Speculation::kOff : how;
  }
};

// All services have this in common: ids, places in the queue, streams, deadlines, the state and the
// end. How requests are served is the derived class's. Its thread and the handles of its requests
// hold it too, so that a thread that hangs in a step for ever finds its things in place.
class InferenceService : public RequestCanceller,
                         public std::enable_shared_from_this<InferenceService> {
 public:
  // Stops a service when its owner lets go of it.
  struct Stop {
    void operator()(InferenceService* service) const;
  };
  template <class Service>
  using Owned = std::unique_ptr<Service, Stop>;

  InferenceService(const InferenceService&) = delete;
  InferenceService& operator=(const InferenceService&) = delete;

  // Refused at once, and nothing has changed: kInvalidArgument (a parameter), kOutOfRange (can
  // never fit), kResourceExhausted (the queue is full, or the tenant holds its share of it),
  // kUnavailable (draining, failed, or hung).
  // What only the service's thread can know arrives as the stream's end.
  Result<RequestHandle> submit(GenerationRequest request, std::function<void()> on_ready);
  // Where others ask too and so many more requests of this tenant are beyond its share: how long it
  // takes, as things go, until they are not.
  std::optional<TimeUs> share_retry_us(uint64_t tenant);
  // Explains those of `ids` that are live. `done` is called once, soon or at once, by some thread
  // (often the engine's, which must not be kept): with kUnavailable where the engine does not come
  // to it within ten seconds, kResourceExhausted where too many ask. One message for all ids.
  using Explained = std::function<void(Result<std::vector<Explanation>>)>;
  virtual void explain(std::vector<RequestId> ids, Explained done) = 0;
  // Everything that is live, by one message as well; `done` as there. Who asks at once gets the
  // same one.
  using Viewed = std::function<void(Result<std::shared_ptr<const SchedulerView>>)>;
  virtual void view(Viewed done) = 0;
  // Waits for the explanation of one; kNotFound when it is not live.
  Result<Explanation> explain(RequestId id);
  virtual EngineSnapshot snapshot() const;

  // From here on submit() answers kUnavailable; what is queued or runs goes on.
  virtual void drain() { draining_ = true; }
  // Ends everything: what runs or waits gets kDrained. False when a step hung and did not come back
  // within the time; the service must not be destroyed by static destructors then, but the process
  // may exit.
  bool stop(TimeUs timeout_us);
  // Waits until the thread has ended by itself, but no longer than that.
  bool wait_for_end(TimeUs timeout_us);

 protected:
  // `slots`: requests that run at a time. Ids are counted from `first_id` on.
  InferenceService(const ServiceOptions& options, uint32_t slots, uint64_t first_id,
                   const Clock& clock);
  // Starts the threads; the name is for top and debuggers. Throws std::system_error where one
  // cannot be had.
  template <class Service>
  static Owned<Service> start(const std::shared_ptr<Service>& service, const char* thread_name) {
    service->start_threads(thread_name);
    return Owned<Service>(service.get());
  }

  // The thread: serves until stopping(), or until it cannot go on.
  virtual void serve() = 0;
  virtual void wake() = 0;  // it is stopping
  // Takes a request that has a place in the queue; what it refuses leaves it.
  virtual Status accept(Submission submission) = 0;
  // Called by the watchdog: ends what a step keeps waiting.
  virtual void watch() { watch_.look(clock_.now()); }

  bool stopping() const { return stopping_; }
  void leave_queue(uint64_t tenant);
  void note_end(TimeUs now);            // of a request that ran
  void set_open_slots(uint32_t slots);  // that are free for others
  void forget(RequestId id);            // before its stream is told the end
  void publish(const EngineSnapshot& snapshot);
  void set_state(EngineState state);

  const ServiceOptions options_;
  const Clock& clock_;
  StepWatch watch_;
  std::atomic<uint32_t> live_count_{0};  // submitted, and not ended yet

 private:
  void start_threads(const char* name);

  std::atomic<uint64_t> next_id_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> draining_{false};

  // Places of those that were submitted and never started yet.
  std::mutex queue_mutex_;
  QueueDoor door_;

  mutable std::mutex snapshot_mutex_;
  EngineSnapshot snapshot_;  // its state says no more than running, failed or stopped

  std::mutex stopped_mutex_;
  std::condition_variable stopped_changed_;
  bool stopped_ = false;

  std::shared_ptr<InferenceService> self_;  // for the owner
  std::unique_ptr<Watchdog> watchdog_;
  std::thread thread_;
};

}  // namespace skein
