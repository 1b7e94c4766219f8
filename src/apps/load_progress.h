// The line that a terminal shows while models load.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace skein::apps {

// On stderr, redrawn in place; nothing where stderr is no terminal.
class LoadProgress {
 public:
  explicit LoadProgress(std::vector<std::string> models);
  ~LoadProgress() { clear(); }
  LoadProgress(const LoadProgress&) = delete;
  LoadProgress& operator=(const LoadProgress&) = delete;

  void done(size_t model);
  void draw();
  void clear();  // before something else is written

 private:
  const bool shown_;
  const std::vector<std::string> models_;
  std::vector<bool> loaded_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  bool drawn_ = false;
};

}  // namespace skein::apps
