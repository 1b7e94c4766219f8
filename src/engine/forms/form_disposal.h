// FormDisposal: forms that nobody holds any more, given back on a thread that gives way.
//
// What a large form has grown to takes milliseconds to give back, and the last to hold it may be a
// thread that everybody waits for: the engine's, or the one that delivers. Small ones go at once.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace skein {

class FormDisposal {
 public:
  FormDisposal() = default;
  ~FormDisposal() { stop(); }
  FormDisposal(const FormDisposal&) = delete;
  FormDisposal& operator=(const FormDisposal&) = delete;

  // Any thread. It goes here and now where there is no thread for it or no memory, and after
  // stop().
  void add(std::shared_ptr<const void> form) noexcept;
  // Waits for what was added. By the thread that owns it, once.
  void stop();

 private:
  bool queue(std::shared_ptr<const void>& form) noexcept;
  void serve();

  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<std::shared_ptr<const void>> waiting_;
  bool stopping_ = false;
  std::thread thread_;  // from the first one on
};

}  // namespace skein
