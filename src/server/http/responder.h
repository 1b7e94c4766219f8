// How a request is answered, from any thread: at once, or as a stream.
//
//   responder.send({.status = 404, .body = error});
//
//   responder.start({.keepalive = ": keepalive\n\n"});
//   responder.on_hangup([id] { cancel(id); });
//   switch (responder.write(frame)) { ... }
//   responder.finish();
//
// A request ends exactly once: the first send, finish or abort counts, later ones do nothing. When
// the last copy of a Responder goes without any of them, the client gets a 500, or its stream is
// cut off.
//
// Thread-safety: every function may be called by any thread at any time, and none blocks. Callbacks
// run on an I/O thread, or within on_hangup when it is too late already; they must be quick and may
// call the Responder. A callback that holds a Responder keeps the request open until it is ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/message.h"

namespace skein::http {

class Exchange;

enum class WriteResult : uint8_t {
  kTaken,
  kFull,  // nothing was taken: the reader is slow; on_ready tells when to try again
  kGone,  // nothing was taken: the stream has ended, or never started
};

struct StreamHead {
  int status = 200;
  std::string content_type = "text/event-stream";
  std::vector<Header> headers = {};
  std::optional<uint64_t> content_length = {};  // without one the body is chunked
  // Sent as it is whenever nothing else was for the interval; empty: never. It must be whole
  // frames.
  std::string keepalive = {};
  std::chrono::milliseconds keepalive_interval{15'000};
  // It would never end by itself and its end says nothing: a server that stops does not wait until
  // a client has read it.
  bool is_endless = false;
};

class Responder {
 public:
  explicit Responder(std::shared_ptr<Exchange> exchange);

  // The whole answer. Also replaces a stream of which nothing is on its way yet; false when it is
  // too late for that.
  bool send(Response response) const;

  // Nothing leaves before the first write or keepalive; until then another head replaces it.
  bool start(StreamHead head) const;
  // All of `bytes` or nothing. One write is one flush unless the reader is behind; at most the
  // outbox limit and one write are held for it.
  WriteResult write(std::string_view bytes) const;
  void finish() const;
  // finish() with last bytes that the outbox limit does not hold back: for an error, which must be
  // said whether or not the reader is behind. False when the stream has ended, or never started.
  bool finish_with(std::string_view bytes) const;
  // The client can tell that the stream is not whole.
  void abort() const;

  // Called once, when the client has hung up before the end, or was cut off because it does not
  // read.
  void on_hangup(std::function<void()> callback) const;
  // Called once for each kFull: there is room again, or nobody reads any more.
  void on_ready(std::function<void()> callback) const;
  bool hung_up() const;

 private:
  struct Ticket;
  std::shared_ptr<Ticket> ticket_;
};

}  // namespace skein::http
