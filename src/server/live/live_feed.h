// LiveFeed: frames of what the server is doing, to everybody who watches (GET /v1/live).
//
// At most four frames a second, made once for all watchers of one key, on a thread of its own. It
// asks each engine one question a frame and never waits for the answer: a frame has what the engine
// said last. While nobody watches, nothing runs and nobody is asked; before the first one there is
// not even the thread. A watcher that reads slowly misses frames, and one whose key is no longer
// valid, or cannot be known to be, is cut off. Any thread may call any member.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/status.h"
#include "sched/types.h"
#include "server/http/responder.h"
#include "server/live/live_text.h"

namespace skein {

class LiveFeed {
 public:
  static constexpr size_t kMaxWatchers = 256;
  static constexpr size_t kMaxOfOwner = 64;
  static constexpr std::chrono::milliseconds kInterval{250};

  LiveFeed() = default;
  ~LiveFeed() { close(); }
  LiveFeed(const LiveFeed&) = delete;
  LiveFeed& operator=(const LiveFeed&) = delete;

  // Begins the stream. kResourceExhausted where too many watch, kUnavailable after close().
  // `credential` is the key that the watcher shows, `owner` its id. `context` outlives the feed.
  Status watch(const ServerContext& context, std::string credential, std::string owner,
               http::Responder responder);
  // Ends all streams. Idempotent.
  void close();
  size_t watchers() const;

 private:
  struct Watcher {
    std::string credential;
    std::string owner;
    http::Responder responder;
  };
  // The engine's latest answer. It is shared with the next one, which may come when nobody waits
  // any more.
  struct Answer {
    std::mutex mutex;
    std::shared_ptr<const SchedulerView> view;
    bool is_asked = false;
  };

  // mutex_. False: nobody has more places than a key that has `own` of them should.
  bool make_room(size_t own);
  void serve();
  LivePicture picture();
  static void ask(ServedModel& served, const std::shared_ptr<Answer>& answer);
  void send_frames(std::vector<Watcher>& watchers);
  // All with that key, with the reason as the last event.
  void end_watchers(const Watcher& like, std::string_view code);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const ServerContext* context_ = nullptr;  // set with the first watcher
  std::vector<Watcher> watchers_;
  bool closed_ = false;
  std::thread thread_;

  std::map<std::string, std::shared_ptr<Answer>> answers_;  // the thread's own; by model
};

}  // namespace skein
