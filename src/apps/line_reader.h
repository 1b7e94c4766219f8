// Lines from the user: edited, with a history, on a terminal; as they come where there is none.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace skein::apps {

class LineReader {
 public:
  // Edits lines when stdin and stdout are both terminals.
  static std::unique_ptr<LineReader> create(const std::string& prompt);
  virtual ~LineReader() = default;

  enum class Event { kLine, kInterrupt, kEnd };
  // The next line without its end, into `line`. kInterrupt when Ctrl-C was pressed
  // (apps/interrupt.h must be in force), kEnd at the end of the input.
  virtual Event read(std::string& line) = 0;
  virtual bool edits() const = 0;
};

}  // namespace skein::apps
