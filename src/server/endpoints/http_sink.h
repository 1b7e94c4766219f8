// An answer that goes to a client of HTTP.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"
#include "server/answer/delivery.h"
#include "server/http/responder.h"
#include "server/router.h"

namespace skein::endpoints {

class HttpSink final : public AnswerSink {
 public:
  HttpSink(http::Responder responder, api::Dialect dialect)
      : responder_(std::move(responder)), dialect_(dialect) {}

  bool is_background() const override { return false; }
  void on_hangup(std::function<void()> hung_up) override {
    responder_.on_hangup(std::move(hung_up));
  }
  void start(http::StreamHead head, std::function<void()> ready) override {
    has_started_ = true;
    head_ = head;
    responder_.start(std::move(head));
    responder_.on_ready(std::move(ready));
  }
  void add_header(const http::Header& header) override {
    head_.headers.push_back(header);
    if (has_started_) responder_.start(head_);
  }
  http::WriteResult write(std::string_view frames) override { return responder_.write(frames); }
  void finish() override { responder_.finish(); }
  void send(const std::string&, std::string body) override {
    responder_.send({.headers = std::move(head_.headers), .body = std::move(body)});
  }
  bool fail(const std::string&, const api::Error& error, std::string_view frame) override {
    if (responder_.send(error_response(dialect_, error)) || !has_started_) return false;
    responder_.finish_with(frame);  // or the client is gone
    return true;
  }

 private:
  const http::Responder responder_;
  const api::Dialect dialect_;
  http::StreamHead head_;  // of a plain answer only its headers
  bool has_started_ = false;
};

// The value of X-Request-Timeout-Ms, which counts where the body is silent.
std::optional<TimeUs> header_timeout_us(const http::RequestHead& head);

}  // namespace skein::endpoints
