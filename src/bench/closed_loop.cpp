#include "bench/closed_loop.h"

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace skein::bench {
namespace {

constexpr std::chrono::milliseconds kLookForCancel{50};

// Streams that have something, in the order in which they said so. Shared with the callbacks, which
// may come from any thread.
class ReadyList {
 public:
  void add(size_t request) {
    {
      const std::lock_guard lock(mutex_);
      ready_.push_back(request);
    }
    changed_.notify_one();
  }
  // Replaces what is in `out`; waits for something, but not for long.
  void take(std::vector<size_t>& out) {
    out.clear();
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLookForCancel, [this] { return !ready_.empty(); });
    std::swap(out, ready_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> ready_;
};

class ClosedLoop {
 public:
  ClosedLoop(InferenceService& service, std::span<const BenchRequest> requests,
             uint32_t concurrency, const Clock& clock)
      : service_(service),
        requests_(requests),
        concurrency_(concurrency),
        clock_(clock),
        handles_(requests.size()) {
    run_.requests.resize(requests.size());
  }

  LoadRun run(const std::function<void(uint64_t)>& on_tokens, const std::atomic<bool>& cancel) {
    run_.began = clock_.now();
    fill();
    std::vector<size_t> ready;
    while (live_ > 0) {
      ready_->take(ready);
      if (cancel.load(std::memory_order_relaxed) && !run_.interrupted) stop_all();
      for (const size_t i : ready) receive(i);
      if (!ready.empty()) on_tokens(tokens_);
    }
    run_.ended = clock_.now();
    run_.requests.resize(next_);  // the others were never sent
    return std::move(run_);
  }

 private:
  // A refused request leaves its place to the next one.
  void fill() {
    while (live_ < concurrency_ && next_ < requests_.size() && !run_.interrupted) send();
  }

  void send() {
    const size_t i = next_++;
    GenerationRequest request;
    request.prompt = requests_[i].prompt;
    request.max_tokens = requests_[i].max_tokens;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    RequestRecord& record = run_.requests[i];
    record.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
    record.sent = record.ended = clock_.now();
    auto handle = service_.submit(std::move(request), [ready = ready_, i] { ready->add(i); });
    if (!handle.ok()) {
      record.status = handle.status();
      return;
    }
    handles_[i] = std::move(*handle);
    ++live_;
  }

  void receive(size_t i) {
    RequestRecord& record = run_.requests[i];
    if (!handles_[i].stream().take(chunk_)) return;
    const TimeUs now = clock_.now();
    record.arrivals.insert(record.arrivals.end(), chunk_.tokens.size(), now);
    record.generated_tokens += static_cast<uint32_t>(chunk_.tokens.size());
    tokens_ += chunk_.tokens.size();
    if (!chunk_.end) return;
    record.ended = now;
    record.complete = is_completed(chunk_.end->reason);
    record.cached_tokens = chunk_.end->cached_tokens;
    record.preemptions = chunk_.end->preemptions;
    if (!record.complete && !run_.interrupted) {
      record.status = chunk_.end->status.ok()
                          ? internal_error("a request ended as {}", name_of(chunk_.end->reason))
                          : chunk_.end->status;
    }
    --live_;
    fill();
  }

  void stop_all() {
    run_.interrupted = true;
    for (size_t i = 0; i < next_; ++i) {
      if (run_.requests[i].status.ok() && !run_.requests[i].complete) {
        handles_[i].cancel(FinishReason::kClient);
      }
    }
  }

  InferenceService& service_;
  const std::span<const BenchRequest> requests_;
  const uint32_t concurrency_;
  const Clock& clock_;
  const std::shared_ptr<ReadyList> ready_ = std::make_shared<ReadyList>();
  std::vector<RequestHandle> handles_;
  LoadRun run_;
  StreamChunk chunk_;
  size_t next_ = 0;
  uint64_t live_ = 0;
  uint64_t tokens_ = 0;
};

}  // namespace

LoadRun run_closed_loop(InferenceService& service, std::span<const BenchRequest> requests,
                        uint32_t concurrency, const Clock& clock,
                        const std::function<void(uint64_t)>& on_tokens,
                        const std::atomic<bool>& cancel) {
  return ClosedLoop(service, requests, concurrency, clock).run(on_tokens, cancel);
}

}  // namespace skein::bench
