#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <ctime>
#include <utility>

#include "server/http/connection.h"
#include "server/http/cors.h"

namespace skein::http {
namespace {

constexpr size_t kJoinedBody = 16 << 10;  // goes out in one write with its head
constexpr auto kAskInterval = std::chrono::seconds(15);
constexpr size_t kKeptWire = 16 << 10;  // memory that an idle stream may keep

void append_number(std::string& out, uint64_t number, int base) {
  std::array<char, 20> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, base);
  out.append(digits.data(), end.ptr);
}

void append_field(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ").append(value).append("\r\n");
}

void append_date(std::string& out) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 40> text;
  // The server never sets a locale, so the names of days and months are English ones.
  const size_t size = std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &utc);
  append_field(out, "Date", std::string_view(text.data(), size));
}

}  // namespace

asio::awaitable<bool> Connection::answer() {
  while (!broken_) {
    const auto keepalive = exchange_->keepalive();
    const Clock::time_point now = Clock::now();
    const bool ask = now >= ask_at_;
    const bool due = keepalive && (now >= last_write_ + keepalive->second ||
                                   (ask && streamed_ != Streamed::kNothing));
    exchange_->take(output_, due);
    if (output_.response) {
      Response response = std::move(*output_.response);
      co_return co_await send_response(std::move(response));
    }
    fill_wire();
    if (due && output_.bytes.empty() && !output_.ended) append_piece(keepalive->first);
    if (ask) ask_for_peer();
    if (!co_await write_wire()) co_return false;
    if (output_.ended) co_return output_.whole&& current_.keep_alive;
    const auto deadline = keepalive ? last_write_ + keepalive->second : Clock::time_point::max();
    stream_idle_ = streamed_ != Streamed::kNothing;
    co_await alarm_.wait(std::min(deadline, ask_at_));
    stream_idle_ = false;
    if (!co_await write_wire()) co_return false;
  }
  co_return false;
}

// The client has closed its side. It may have closed that one alone and wait for its answer, or be
// gone; what is sent now makes its system say so by a reset. A stream's keepalive does, and before
// an answer has begun an interim one does, which every client of HTTP/1.1 passes over.
void Connection::ask_for_peer() {
  ask_at_ = Clock::now() + kAskInterval;
  if (!std::exchange(awaits_reset_, true)) {
    socket_.wait_for_reset([self = shared_from_this()](const ErrorCode& error) {
      if (error || self->closing_) return;
      self->broken_ = true;
      self->alarm_.wake();
    });
  }
  if (streamed_ != Streamed::kNothing) return;
  if (current_.http10) {
    broken_ = true;  // there is no way to ask
  } else {
    wire_.append("HTTP/1.1 100 Continue\r\n\r\n");
  }
}

// The hot path of a stream: from its writers to the socket, one write each turn.
void Connection::on_output() {
  if (!stream_idle_) return alarm_.wake();
  try {
    pass_on();
  } catch (const std::bad_alloc&) {  // what was taken is lost, so the client must not see an end
    cut();
  }
}

void Connection::pass_on() {
  exchange_->take(output_);
  fill_wire();
  ErrorCode error;
  wire_begin_ += socket_.try_write(std::string_view(wire_).substr(wire_begin_), error);
  if (error) broken_ = true;
  if (wire_begin_ == wire_.size()) {
    wire_.clear();
    wire_begin_ = 0;
    last_write_ = Clock::now();
  }
  if (broken_ || output_.ended || !wire_.empty()) {
    stream_idle_ = false;
    alarm_.wake();
  }
}

// Appends to the wire what was taken from the exchange.
void Connection::fill_wire() {
  if (output_.head) {
    const StreamHead head = std::move(*output_.head);
    output_.head.reset();
    streamed_ = Streamed::kBegun;
    chunked_ = !head.content_length && !current_.http10;
    if (current_.http10 || !output_.whole) current_.keep_alive = false;
    append_head(head.status, head.content_type, head.headers, head.content_length);
  }
  if (streamed_ != Streamed::kBegun) return;
  append_piece(output_.bytes);
  if (output_.ended) {
    streamed_ = Streamed::kEnded;
    if (chunked_ && output_.whole && !current_.head_only) wire_.append("0\r\n\r\n");
  }
}

void Connection::append_piece(std::string_view bytes) {
  if (bytes.empty() || current_.head_only) return;
  if (chunked_) {
    append_number(wire_, bytes.size(), 16);
    wire_.append("\r\n");
  }
  wire_.append(bytes);
  if (chunked_) wire_.append("\r\n");
}

void Connection::append_head(int status, std::string_view content_type,
                             const std::vector<Header>& headers, std::optional<uint64_t> length) {
  shared_.application.answered({current_.method, current_.path, status, peer_, current_.caller});
  if (shared_.draining) current_.keep_alive = false;
  wire_.append("HTTP/1.1 ");
  append_number(wire_, static_cast<uint64_t>(status), 10);
  wire_.append(" ").append(reason_phrase(status)).append("\r\n");
  append_date(wire_);
  if (status != 204) append_field(wire_, "Content-Type", content_type);
  if (length && status != 204) {
    wire_.append("Content-Length: ");
    append_number(wire_, *length, 10);
    wire_.append("\r\n");
  } else if (status != 204 && chunked_) {
    append_field(wire_, "Transfer-Encoding", "chunked");
  }
  if (!current_.keep_alive) append_field(wire_, "Connection", "close");
  if (current_.keep_alive && current_.http10) append_field(wire_, "Connection", "keep-alive");
  append_field(wire_, "X-Request-Id", current_.request_id);
  for (const Header& header : headers) append_field(wire_, header.name, header.value);
  for (const Header& header : current_.headers) append_field(wire_, header.name, header.value);
  for (const Header& header : cors_headers(shared_.options.cors_origins, current_.origin)) {
    append_field(wire_, header.name, header.value);
  }
  wire_.append("\r\n");
}

asio::awaitable<bool> Connection::send_response(Response response) {
  if (response.status >= 400 && response.body.empty()) {
    std::vector<Header> headers = std::move(response.headers);
    response = refusal({response.status, "the request could not be answered"});
    response.headers.insert(response.headers.end(), headers.begin(), headers.end());
  }
  chunked_ = false;
  append_head(response.status, response.content_type, response.headers, response.body.size());
  const bool has_body = !current_.head_only && response.status != 204;
  const bool joined = has_body && response.body.size() <= kJoinedBody;
  if (joined) wire_.append(response.body);
  if (!co_await write_wire()) co_return false;
  if (has_body && !joined && !co_await write_all(response.body)) co_return false;
  co_return current_.keep_alive;
}

Response Connection::overloaded() const {
  Response response = refusal(kOverloaded);
  response.headers.push_back({"Retry-After", "1"});
  return response;
}

Response Connection::refusal(const Fault& fault) const {
  return shared_.application.refusal(fault.status, fault.message, current_.path);
}

asio::awaitable<bool> Connection::refuse(Response response) {
  if (broken_) co_return false;
  current_.keep_alive = false;
  co_return co_await send_response(std::move(response));
}

asio::awaitable<bool> Connection::write_wire() {
  if (broken_) co_return false;
  if (wire_begin_ == wire_.size()) co_return true;
  const bool written = co_await write_all(std::string_view(wire_).substr(wire_begin_));
  wire_.clear();
  wire_begin_ = 0;
  if (wire_.capacity() > kKeptWire) wire_.shrink_to_fit();
  last_write_ = Clock::now();
  co_return written;
}

asio::awaitable<bool> Connection::write_all(std::string_view bytes) {
  while (!bytes.empty() && !broken_) {
    ErrorCode error;
    size_t written = socket_.try_write(bytes, error);
    if (!error && written == 0) {
      cut_after(shared_.options.write_timeout);
      const std::pair<ErrorCode, size_t> result = co_await socket_.write_some(bytes);
      keep_on();
      error = result.first;
      written = result.second;
    }
    if (error) broken_ = true;
    bytes.remove_prefix(written);
  }
  co_return !broken_;
}

// Lets the client read what it was sent before the connection is reset under it: it may still be
// sending.
asio::awaitable<void> Connection::close_gently() {
  if (broken_) co_return;
  closing_ = true;
  const Clock::time_point deadline = Clock::now() + shared_.options.linger_timeout;
  cut_after(shared_.options.linger_timeout);
  co_await socket_.shut_down();
  consume(unread().size());
  while (!quiet_ && !peer_closed_ && !broken_ && Clock::now() < deadline)
    co_await alarm_.wait(deadline);
  keep_on();
}

void Connection::cut_after(std::chrono::milliseconds timeout) {
  write_timer_.expires_after(timeout);
  write_timer_.async_wait([weak = weak_from_this(), turn = ++cut_turn_](const ErrorCode& error) {
    if (const auto self = weak.lock(); self && !error && self->cut_turn_ == turn) self->cut();
  });
}

}  // namespace skein::http
