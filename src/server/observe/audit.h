// Audit: who was turned away and who gave the server orders, as lines of the log that are written
// whatever its level is. It knows keys by their ids and names, never the keys, and bodies not at
// all. Any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

#include "base/clock.h"
#include "server/auth/principal.h"

namespace skein {

class Audit {
 public:
  // A request, as far as its head tells.
  struct RequestLine {
    std::string_view method;
    std::string_view path;
    std::string_view peer;
  };

  explicit Audit(const Clock& clock) : clock_(clock) {}

  // 401 or 403. The first ten of a minute have a line each; the others are counted, and told with
  // the first of a later minute. `key_id` empty: nobody knows whose.
  void refused(int status, const RequestLine& request, std::string_view key_id);
  void admin_call(const RequestLine& request, const Principal& who);

 private:
  // Whether this one has a line of its own; `more`: how many before it had none.
  bool takes_line(uint64_t& more);

  const Clock& clock_;
  std::mutex mutex_;
  TimeUs minute_begun_ = 0;
  uint64_t lines_ = 0;  // of this minute
  uint64_t untold_ = 0;
};

}  // namespace skein
