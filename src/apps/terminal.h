// The terminal: Ctrl-C as a flag, lines that the user types, and the line that shows how far a load
// is.
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/manager/load_share.h"

namespace skein::apps {

// While one lives, SIGINT sets pressed() and ends a blocking read; before and after it ends the
// process. One at a time.
class InterruptFlag {
 public:
  InterruptFlag();
  ~InterruptFlag();
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;

  const std::atomic<bool>& pressed() const;
  void clear();

 private:
  struct sigaction before_ = {};
};

// Lines from the user: edited, with a history, on a terminal; as they come where there is none.
class LineReader {
 public:
  // Edits lines when stdin and stdout are both terminals.
  static std::unique_ptr<LineReader> create(const std::string& prompt);
  virtual ~LineReader() = default;

  enum class Event { kLine, kInterrupt, kEnd };
  // The next line without its end, into `line`. kInterrupt when Ctrl-C was pressed
  // (an InterruptFlag must be alive), kEnd at the end of the input.
  virtual Event read(std::string& line) = 0;
  virtual bool edits() const = 0;
};

// On stderr, redrawn in place; nothing where stderr is no terminal, nor before a second has passed.
class LoadProgress {
 public:
  LoadProgress(std::vector<std::string> models, const LoadShare& share);
  ~LoadProgress() { clear(); }
  LoadProgress(const LoadProgress&) = delete;
  LoadProgress& operator=(const LoadProgress&) = delete;

  void done(size_t model);
  void draw();   // unless it was just drawn
  void clear();  // before something else is written

 private:
  using Time = std::chrono::steady_clock::time_point;

  const bool shown_;
  const std::vector<std::string> models_;
  const LoadShare& share_;
  std::vector<bool> loaded_;
  const Time started_ = std::chrono::steady_clock::now();
  Time last_drawn_ = started_;
  bool drawn_ = false;
};

}  // namespace skein::apps
