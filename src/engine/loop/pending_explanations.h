// PendingExplanations: who asked about requests and waits for the engine's thread to say.
//
// They are not messages, because a watchdog answers those that wait too long. Any thread may call
// any member; every `done` is called exactly once, without a lock held.
#pragma once

#include <mutex>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/time.h"
#include "engine/loop/inference_service.h"

namespace skein {

class PendingExplanations {
 public:
  static constexpr size_t kMax = 256;
  static constexpr TimeUs kPatienceUs = 10 * kUsPerSecond;

  struct Asked {
    std::vector<RequestId> ids;
    InferenceService::Explained done;
    TimeUs at = 0;
  };

  // Refused at once, with kResourceExhausted, where too many wait.
  void add(std::vector<RequestId> ids, InferenceService::Explained done, TimeUs now);
  // Those that were asked before that time, in the order of their asking.
  std::vector<Asked> take(TimeUs asked_before = kNever);
  // Takes and answers them.
  void refuse(const Status& why, TimeUs asked_before = kNever);

 private:
  std::mutex mutex_;
  std::vector<Asked> asked_;
};

}  // namespace skein
