// POST /v1/chat/completions, /v1/completions and /v1/messages, and the first two under /v1/batch/.
#include <charconv>
#include <utility>

#include "server/answer/answer_job.h"
#include "server/endpoints/reply.h"

namespace skein::endpoints {
namespace {

// An answer that goes to a client of HTTP.
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

std::optional<TimeUs> header_timeout_us(const http::RequestHead& head) {
  const std::string* header = head.header("x-request-timeout-ms");
  if (header == nullptr) return std::nullopt;
  int64_t ms = 0;
  const char* end = header->data() + header->size();
  const auto parsed = std::from_chars(header->data(), end, ms);
  constexpr int64_t kDayMs = int64_t{24} * 3600 * 1000;
  const bool is_whole = parsed.ec == std::errc() && parsed.ptr == end;
  if (!is_whole || ms <= 0 || ms > kDayMs) return std::nullopt;
  return ms * kUsPerMs;
}

api::Parsed<api::ChatRequest> parse_chat(std::string_view body) {
  auto request = api::parse_chat_request(body);
  if (!request.ok()) return request;
  if (auto problem = api::find_unsupported(*request)) return std::move(*problem);
  return request;
}

api::Parsed<api::ChatRequest> parse_message(std::string_view body) {
  auto request = api::parse_messages_request(body, false);
  if (!request.ok()) return request;
  if (auto problem = api::find_unsupported(*request)) return std::move(*problem);
  return request;
}

// Reads the body and has it answered; what a header says of the time counts where the body is
// silent.
template <class Request>
void begin_answer(ServerContext& context, Call& call, const http::Responder& responder,
                  const api::AnswerKind& kind, api::Parsed<Request> request) {
  if (!request.ok()) return send_error(call, responder, request.error());
  std::optional<TimeUs>& timeout_us = request->options.timeout_us;
  if (!timeout_us) timeout_us = header_timeout_us(call.request.head);
  auto sink = std::make_unique<HttpSink>(responder, call.route->dialect);
  std::make_shared<AnswerJob>(context, std::move(call), kind, std::move(*request), std::move(sink))
      ->begin();
}

}  // namespace

void chat_completions(ServerContext& context, Call& call, const http::Responder& responder) {
  begin_answer(context, call, responder, api::AnswerKind::kChat, parse_chat(call.request.body));
}

void messages(ServerContext& context, Call& call, const http::Responder& responder) {
  begin_answer(context, call, responder, api::AnswerKind::kMessage,
               parse_message(call.request.body));
}

void completions(ServerContext& context, Call& call, const http::Responder& responder) {
  begin_answer(context, call, responder, api::AnswerKind::kCompletion,
               api::parse_completion_request(call.request.body));
}

}  // namespace skein::endpoints
