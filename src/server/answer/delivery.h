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

namespace skein {

class Deliverable {
 public:
  virtual ~Deliverable() = default;
  // Takes what there is. Calls do not overlap.
  virtual void advance() = 0;
  // advance() has thrown, for want of memory: this answer ends, and nobody else's.
  virtual void give_up() noexcept = 0;

 private:
  friend class Delivery;
  // Guarded by the Delivery's mutex. The list hangs together by itself, so that posting needs no
  // memory and cannot fail.
  bool listed_ = false;
  std::shared_ptr<Deliverable> next_;
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
  std::shared_ptr<Deliverable> first_;
  Deliverable* last_ = nullptr;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace skein
