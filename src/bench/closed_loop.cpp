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
             uint32_t concurrency, const Clock& clock, const LongPrompts& long_prompts)
      : service_(service),
        requests_(requests),
        concurrency_(concurrency),
        clock_(clock),
        long_prompts_(long_prompts),
        handles_(requests.size()) {
    run_.requests.resize(requests.size());
  }

  LoadRun run(const std::function<void(uint64_t)>& on_tokens, const std::atomic<bool>& cancel) {
    run_.began = clock_.now();
    fill();
    if (long_prompts_) send_long();
    std::vector<size_t> ready;
    while (live_ > 0) {
      ready_->take(ready);
      if (cancel.load(std::memory_order_relaxed) && !run_.interrupted) stop_all();
      for (const size_t i : ready) receive(i);
      if (!ready.empty()) on_tokens(tokens_);
    }
    run_.ended = clock_.now();
    if (long_prompts_) end_long();
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

  // Its place in the ready list is the one behind the requests'.
  void send_long() {
    GenerationRequest request;
    request.prompt = long_prompts_(long_sent_++);
    request.max_tokens = 1;
    request.sampling.temperature = 0;
    long_tokens_ = request.prompt.size();
    auto handle = service_.submit(std::move(request),
                                  [ready = ready_, i = requests_.size()] { ready->add(i); });
    if (handle.ok()) {
      long_ = std::move(*handle);
    } else {
      run_.long_prompts = handle.status();
    }
  }

  void receive_long() {
    if (!long_.stream().take(chunk_) || !chunk_.end) return;
    if (!is_completed(chunk_.end->reason)) {
      run_.long_prompts = chunk_.end->status;
      return;
    }
    run_.long_prompt_tokens += long_tokens_ - chunk_.end->cached_tokens;
    if (live_ > 0 && !run_.interrupted) send_long();
  }

  // The one that is under way counts with what there is of it.
  void end_long() {
    if (!run_.long_prompts.ok()) return;
    const auto last = service_.explain(long_.id());
    if (last.ok()) run_.long_prompt_tokens += last->computed_tokens;
    long_.cancel(FinishReason::kClient);
  }

  void receive(size_t i) {
    if (i == requests_.size()) return receive_long();
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
  const LongPrompts& long_prompts_;
  const std::shared_ptr<ReadyList> ready_ = std::make_shared<ReadyList>();
  std::vector<RequestHandle> handles_;
  RequestHandle long_;
  uint64_t long_tokens_ = 0;
  uint32_t long_sent_ = 0;
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
                        const std::atomic<bool>& cancel, const LongPrompts& long_prompts) {
  return ClosedLoop(service, requests, concurrency, clock, long_prompts).run(on_tokens, cancel);
}

}  // namespace skein::bench
