// One request being answered: where the threads that answer it meet the I/O thread that writes.
// It ends once, by the first answer or end that counts; callbacks are called without its lock.
// Internal to http/.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/byte_budget.h"
#include "server/http/message.h"
#include "server/http/responder.h"

namespace skein::http {

class Connection;
class Exchange;

// Tells an I/O thread which of its exchanges have something to write. However many are pushed
// between two of its turns, the thread is woken once.
class Wakeups {
 public:
  // `wake` makes the I/O thread call drain() soon.
  explicit Wakeups(std::function<void()> wake) : wake_(std::move(wake)) {}

  void push(std::shared_ptr<Exchange> exchange);
  // No wake() begins after this.
  void close();
  // On the I/O thread: everything pushed since the last time, to be given back for its memory.
  std::vector<std::shared_ptr<Exchange>>& drain();

 private:
  std::mutex mutex_;
  std::function<void()> wake_;
  std::vector<std::shared_ptr<Exchange>> pushed_;
  std::vector<std::shared_ptr<Exchange>> drained_;  // of the I/O thread
  bool closed_ = false;
};

class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  // `outbox_limit`: bytes held before a writer is told kFull. A whole answer larger than that is
  // held on `account`, or becomes a 503.
  Exchange(std::shared_ptr<Wakeups> wakeups, size_t outbox_limit, ByteBudget& memory,
           std::string_view account)
      : wakeups_(std::move(wakeups)), outbox_limit_(outbox_limit), memory_(memory, account) {}

  // A Responder calls these, on any thread: its finish() is end(true), its abort() end(false), and
  // abandon() is called when its last copy goes.
  bool send(Response response);
  bool start(StreamHead head);
  WriteResult write(std::string_view bytes);
  bool finish_with(std::string_view bytes);
  void end(bool whole);
  void abandon();
  void on_hangup(std::function<void()> callback);
  void on_ready(std::function<void()> callback);
  bool hung_up() const;

  // The I/O thread writes this next.
  struct Output {
    std::optional<Response> response;
    std::optional<StreamHead> head;  // the stream begins
    std::string bytes;               // of the stream; keeps its memory between turns
    bool ended = false;              // with the bytes, the stream is complete
    bool whole = true;
  };
  // On the I/O thread. With `keepalive` the head comes although nothing was written yet. May call
  // on_ready.
  void take(Output& output, bool keepalive = false);
  // The keepalive of a stream that has started; nullopt before. I/O thread.
  std::optional<std::pair<std::string, std::chrono::milliseconds>> keepalive() const;
  // The client is gone; may call on_hangup. I/O thread.
  void hang_up();
  // Nothing will be taken any more. I/O thread.
  void detach();

  Connection* owner = nullptr;  // of the I/O thread

 private:
  // kStreaming: something was written, or a keepalive sent, so there is no way back.
  enum class Stage : uint8_t { kOpen, kStarted, kStreaming, kEnded, kDetached };

  void notify(std::unique_lock<std::mutex>& lock);

  const std::shared_ptr<Wakeups> wakeups_;
  const size_t outbox_limit_;
  mutable std::mutex mutex_;
  Stage stage_ = Stage::kOpen;
  ByteBudget::Hold memory_;  // for response_, until it was read
  std::optional<Response> response_;
  std::optional<StreamHead> head_;
  std::string keepalive_;
  std::chrono::milliseconds keepalive_interval_{0};
  std::string outbox_;
  bool has_stream_ = false;  // it started, and no send() replaced it
  bool whole_ = true;
  bool notified_ = false;
  bool full_ = false;
  bool hung_up_ = false;
  std::function<void()> on_hangup_;
  std::function<void()> on_ready_;
};

}  // namespace skein::http
