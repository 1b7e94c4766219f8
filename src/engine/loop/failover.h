// Failover: where the requests go of an engine that cannot go on.
//
// Requests that have sent nothing are handed over, under their ids and with their streams, to
// whoever was named for that; from then on their cancels go there, too. Cancels that come while the
// requests are under way are kept and follow them. Any thread may cancel.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/loop/inference_service.h"

namespace skein {

class Failover {
 public:
  // Takes the requests over and returns where their cancels go from now on (nullptr: nowhere).
  // Called on the failing engine's thread.
  using HandOver = std::function<std::shared_ptr<RequestCanceller>(std::vector<Submission> requests,
                                                                   const Status& why)>;

  // `max_cancels`: that can come while requests are handed over, one for each that is live.
  Failover(HandOver hand_over, size_t max_cancels) : hand_over_(std::move(hand_over)) {
    kept_.reserve(max_cancels);
  }

  // False: nobody was named, and the requests have to end where they are.
  bool possible() const { return hand_over_ != nullptr; }
  // From here on cancels are kept for the one who takes the requests.
  void begin() {
    const std::lock_guard lock(mutex_);
    keeps_ = true;
  }
  // What the receiver throws passes through; it has taken nothing then.
  void hand_over(std::vector<Submission> requests, const Status& why) {
    std::shared_ptr<RequestCanceller> successor = hand_over_(std::move(requests), why);
    std::unique_lock lock(mutex_);
    successor_ = successor;
    keeps_ = false;
    const std::vector<Kept> kept = std::exchange(kept_, {});
    lock.unlock();
    if (!successor) return;
    for (const auto& [id, reason] : kept) successor->cancel(id, reason);
  }
  // Cancels a request that may have been handed over.
  void cancel(RequestId id, FinishReason reason) {
    std::unique_lock lock(mutex_);
    // Without allocating, which a destructor that cancels could not bear to fail.
    if (keeps_ && kept_.size() < kept_.capacity()) kept_.emplace_back(id, reason);
    const std::shared_ptr<RequestCanceller> successor = successor_;
    lock.unlock();
    if (successor) successor->cancel(id, reason);
  }

 private:
  using Kept = std::pair<RequestId, FinishReason>;

  const HandOver hand_over_;
  std::mutex mutex_;
  std::vector<Kept> kept_;                       // mutex_
  bool keeps_ = false;                           // mutex_
  std::shared_ptr<RequestCanceller> successor_;  // mutex_
};

}  // namespace skein
