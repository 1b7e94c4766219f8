// Where an answer goes: to a client of HTTP, or into the results of a batch.
//
// An answer ends with exactly one send(), finish() or fail(). Where not even that can be said, the
// sink goes without an end: a client of HTTP then gets a 500, or sees that its stream is cut.
// Functions are called by one thread at a time, and none blocks.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "server/api/errors.h"
#include "server/http/responder.h"

namespace skein {

class AnswerSink {
 public:
  virtual ~AnswerSink() = default;

  // A line of a batch: nobody waits for it, and it never asks for a stream.
  virtual bool is_background() const = 0;

  // Before all else, on the thread that begins the answer. `hung_up` is called when nobody wants
  // it any more, by any thread.
  virtual void on_hangup(std::function<void()> hung_up) = 0;

  // A stream begins; `ready` as http::Responder::on_ready. Nothing leaves before the first write or
  // keepalive.
  virtual void start(http::StreamHead head, std::function<void()> ready) = 0;
  virtual http::WriteResult write(std::string_view frames) = 0;
  virtual void finish() = 0;

  // The whole answer.
  virtual void send(const std::string& id, std::string body) = 0;
  // The end, badly. Where a stream has begun, `frame` is its last, and the result is true.
  virtual bool fail(const std::string& id, const api::Error& error, std::string_view frame) = 0;
};

}  // namespace skein
