// Failover: where the requests go of an engine that cannot go on.
//
// Requests that have sent nothing are handed over, under their ids and with their streams, to
// whoever was named for that; from then on their cancels go there, too. Any thread may cancel.
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

  explicit Failover(HandOver hand_over) : hand_over_(std::move(hand_over)) {}

  // False: nobody was named, and the requests have to end where they are.
  bool possible() const { return hand_over_ != nullptr; }
  // What the receiver throws passes through; it has taken nothing then.
  void hand_over(std::vector<Submission> requests, const Status& why) {
    std::shared_ptr<RequestCanceller> successor = hand_over_(std::move(requests), why);
    const std::lock_guard lock(mutex_);
    successor_ = std::move(successor);
  }
  // Cancels a request that may have been handed over.
  void cancel(RequestId id, FinishReason reason) {
    std::unique_lock lock(mutex_);
    const std::shared_ptr<RequestCanceller> successor = successor_;
    lock.unlock();
    if (successor) successor->cancel(id, reason);
  }

 private:
  const HandOver hand_over_;
  std::mutex mutex_;
  std::shared_ptr<RequestCanceller> successor_;
};

}  // namespace skein
