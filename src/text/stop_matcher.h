// Looks for up to 16 stop strings in a stream of bytes, in linear time (Knuth, Morris and Pratt,
// one automaton a string).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace skein {

inline constexpr size_t kMaxStops = 16;
inline constexpr size_t kMaxStopBytes = 1024;

class StopMatcher {
 public:
  static Result<StopMatcher> create(std::vector<std::string> stops);

  bool empty() const { return stops_.empty(); }

  // Takes the next byte. True when it completes a stop string; of several, the longest, which is
  // the one that began first, is matched().
  bool push(char byte);
  size_t matched() const { return matched_; }
  size_t matched_bytes() const { return stops_[matched_].text.size(); }

  // How many of the last bytes may be the start of a stop string.
  size_t pending() const { return pending_; }

 private:
  struct Stop {
    std::string text;
    std::vector<uint16_t> fallback;  // by length matched: the longest border of that prefix
    uint16_t length = 0;             // matched so far
  };
  std::vector<Stop> stops_;
  size_t matched_ = 0;
  size_t pending_ = 0;
};

}  // namespace skein
