// Delivery: the thread that turns token ids into text and frames.
//
// An engine says that a stream has news; the answer it belongs to is put on the list, once however
// often it is said, and its advance() is called here. So an engine's thread never formats anything,
// and all tokens of a step are written in one go.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace skein {

class Deliverable {
 public:
  virtual ~Deliverable() = default;
  // Takes what there is. Calls do not overlap.
  virtual void advance() = 0;

 private:
  friend class Delivery;
  bool listed_ = false;  // guarded by the Delivery's mutex
};

class Delivery {
 public:
  Delivery();
  ~Delivery();  // what is on the list is still delivered
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  // Any thread.
  void post(std::shared_ptr<Deliverable> answer);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable posted_;
  std::vector<std::shared_ptr<Deliverable>> list_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace skein
