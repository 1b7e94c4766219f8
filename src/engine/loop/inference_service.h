// InferenceService: one loaded model that answers requests. BatchInferenceEngine is the one that
// serves; DirectService is what it degrades to.
//
//   SKEIN_ASSIGN(RequestHandle request, service.submit(std::move(wanted), on_ready));
//   while (request.stream().wait(chunk)) { ...; if (chunk.end) break; }
//
// Every accepted request ends exactly once, in its stream, with the true reason. Any thread may
// call any member.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/time.h"
#include "engine/loop/generation.h"
#include "engine/loop/snapshot.h"
#include "engine/loop/token_stream.h"
#include "sched/types.h"

namespace skein {

// Where a handle's cancel goes; outlives the service, and ignores what is not live.
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

class InferenceService {
 public:
  virtual ~InferenceService() = default;

  // Refused at once, and nothing has changed: kInvalidArgument (a parameter), kOutOfRange (can
  // never fit), kResourceExhausted (the queue is full, or the tenant holds its share of it),
  // kUnavailable (draining, failed, or hung).
  // What only the engine's thread can know arrives as the stream's end.
  virtual Result<RequestHandle> submit(GenerationRequest request,
                                       std::function<void()> on_ready) = 0;
  // Where others ask too and so many more requests of this tenant are beyond its share: how long it
  // takes, as things go, until they are not.
  virtual std::optional<TimeUs> share_retry_us(uint64_t tenant, uint32_t requests) = 0;
  // Explains those of `ids` that are live. `done` is called once, soon or at once, by some thread
  // (often the engine's, which must not be kept): with kUnavailable where the engine does not come
  // to it within ten seconds, kResourceExhausted where too many ask. One message for all ids.
  using Explained = std::function<void(Result<std::vector<Explanation>>)>;
  virtual void explain(std::vector<RequestId> ids, Explained done) = 0;
  // Waits for the explanation of one; kNotFound when it is not live.
  Result<Explanation> explain(RequestId id);
  virtual EngineSnapshot snapshot() const = 0;

  // From here on submit() answers kUnavailable; what is queued or runs goes on.
  virtual void drain() = 0;
  // Ends everything: what runs or waits gets kDrained. False when a step hung and did not come back
  // within the time; the service must not be destroyed by static destructors then, but the process
  // may exit.
  virtual bool stop(TimeUs timeout_us) = 0;
};

}  // namespace skein
