#include "server/http/connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <ctime>
#include <exception>
#include <random>
#include <utility>

#include "base/log.h"
#include "base/patience.h"
#include "base/rng.h"
#include "server/http/cors.h"

namespace skein::http {
namespace {

constexpr size_t kSmallRead = 4 << 10;        // while heads come, or nothing does
constexpr size_t kLargeRead = 64 << 10;       // while a body comes
constexpr size_t kReadAhead = 16 << 10;       // of what follows the request being answered
constexpr size_t kBodyReadAhead = 256 << 10;  // of a body whose sink is busy
constexpr uint64_t kDroppedBody = 64 << 10;   // read for the sake of the connection
constexpr size_t kMaxClientRequestId = 128;
constexpr auto kAskDelay = std::chrono::milliseconds(100);  // most answers are there before it

// Before its prompt is submitted, a body becomes so many bytes for each of its own: the JSON value,
// the request that is read from it, the template's context, and the prompt while it grows.
constexpr size_t kWorkFactor = 6;

constexpr Fault kStopping{503, "The server is shutting down; try again later."};

bool is_visible(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

}  // namespace

asio::awaitable<void> Alarm::wait(Clock::time_point deadline) {
  if (!std::exchange(is_woken_, false)) {
    timer_.expires_at(deadline);
    is_waiting_ = true;
    co_await timer_.async_wait(asio::as_tuple(asio::use_awaitable));
    is_waiting_ = is_woken_ = false;
  }
}

void Alarm::wake() {
  is_woken_ = true;
  if (is_waiting_) timer_.cancel();
}

Shared::Shared(ServerOptions o, Application& a, Workers& w, ByteBudget& m)
    : options(std::move(o)),
      application(a),
      workers(w),
      memory(m),
      id_salt((uint64_t{std::random_device{}()} << 32) | std::random_device{}()) {}

Connection::Connection(Shared& shared, IoThread& thread, asio::ip::tcp::socket socket,
                       bool is_probe)
    : shared_(shared),
      thread_(thread),
      is_probe_(is_probe),
      socket_(std::move(socket), is_probe ? nullptr : shared.tls.context()),
      alarm_(thread.context),
      write_timer_(thread.context),
      peer_(socket_.peer()),
      read_ahead_(kReadAhead) {}

void Connection::take_place(Places& places, const Address& address) {
  place_ = places.take(address, [weak = weak_from_this(), &context = thread_.context] {
    asio::post(context, [weak] {
      if (const auto self = weak.lock()) self->cut();
    });
  });
}

void Connection::start() {
  const PatientScope patient;  // from here on it is counted, and its coroutine takes that back
  thread_.connections.insert(this);
  asio::co_spawn(
      thread_.context, [self = shared_from_this()] { return self->run(); }, asio::detached);
}

asio::awaitable<void> Connection::run() {
  // Also where memory runs short inside Asio, which then destroys the coroutine without a word.
  struct Ending {
    ~Ending() { connection.end(); }
    Connection& connection;
  } const ending{*this};
  try {
    cut_after(shared_.options.head_timeout);
    const ErrorCode error = co_await socket_.handshake();
    keep_on();
    if (!error) {
      start_reading();
      while (co_await serve_one()) {
      }
      end_exchange();
      co_await close_gently();
    }
  } catch (const std::exception& error) {  // memory is short, or Asio's
    log_error("a connection ended early: {}", error.what());
  }
}

void Connection::end() {
  const PatientScope patient;
  broken_ = true;
  end_exchange();
  socket_.close();
  thread_.connections.erase(this);
  place_.reset();
}

asio::awaitable<bool> Connection::serve_one() {
  HeadParser parser({shared_.options.head.bytes, shared_.options.head.fields, is_probe_});
  const HeadOutcome outcome = co_await read_head(parser);
  quiet_ = outcome.state == ParseState::kNeedMore;
  if (quiet_ || broken_) co_return false;
  begin_request(parser.head());
  if (outcome.state == ParseState::kFailed) {
    Response response = refusal(outcome.fault);
    co_return co_await refuse(std::move(response));
  }
  co_return co_await serve(std::move(parser.head()));
}

asio::awaitable<Connection::HeadOutcome> Connection::read_head(HeadParser& parser) {
  const ServerOptions& options = shared_.options;
  Clock::time_point deadline = Clock::now() + options.idle_timeout;
  bool started = false;
  while (!broken_) {
    size_t consumed = 0;
    const ParseState state = parser.advance(unread(), consumed);
    consume(consumed);
    if (state != ParseState::kNeedMore) co_return HeadOutcome{state, parser.fault()};
    if (peer_closed_) {
      if (!parser.started()) break;
      co_return HeadOutcome{ParseState::kFailed, {400, "the request ended early"}};
    }
    if (!parser.started() && shared_.draining) break;
    if (parser.started() && !std::exchange(started, true)) {
      deadline = Clock::now() + options.head_timeout;
    }
    place_->set(started ? PlaceState::kHead : PlaceState::kIdle);
    if (Clock::now() >= deadline) {
      if (!started) break;
      co_return HeadOutcome{ParseState::kFailed, {408, "the request took too long to arrive"}};
    }
    co_await alarm_.wait(deadline);
  }
  co_return HeadOutcome{ParseState::kNeedMore, {}};
}

void Connection::begin_request(const RequestHead& head) {
  current_ = {};
  current_.method = head.method;
  current_.path = head.path;
  current_.head_only = head.method == "HEAD";
  current_.http10 = head.minor_version == 0;
  current_.keep_alive =
      head.keep_alive && ++requests_ < shared_.options.max_requests_per_connection;
  if (const std::string* origin = head.header("origin")) current_.origin = *origin;
  const std::string* id = head.header("x-request-id");
  if (id != nullptr && !id->empty() && id->size() <= kMaxClientRequestId && is_visible(*id)) {
    current_.request_id = *id;
  } else {
    current_.request_id = fmt::format("{}req-{:016x}", shared_.options.id_prefix(),
                                      random_at(shared_.id_salt, shared_.requests.fetch_add(1)));
  }
}

std::variant<Accepted, Response> Connection::admit(const RequestHead& head) {
  if (is_probe_) return shared_.application.probe(head, peer_);
  if (auto refused = shared_.application.screen(head, peer_)) return std::move(*refused);
  if (auto response = preflight(shared_.options.cors_origins, head)) return std::move(*response);
  return shared_.application.admit(head, peer_);
}

asio::awaitable<bool> Connection::serve(RequestHead head) {
  std::variant<Accepted, Response> admission = admit(head);
  Accepted accepted;
  if (auto* response = std::get_if<Response>(&admission)) {
    const bool drop = head.framing == Framing::kNone ||
                      (head.content_length <= kDroppedBody && !head.expects_continue &&
                       head.framing == Framing::kLength);
    if (!drop) co_return co_await refuse(std::move(*response));
    accepted.body_limit_bytes = kDroppedBody;
  } else {
    accepted = std::move(std::get<Accepted>(admission));
    current_.priority = accepted.priority;
    current_.account = accepted.account;
    current_.headers = std::move(accepted.headers);
    current_.caller = std::move(accepted.caller);
  }
  Request request{std::move(head), {}, peer_, current_.request_id};
  auto memory = std::make_shared<ByteBudget::Hold>(shared_.memory, current_.account);
  std::optional<Response> fault = co_await read_body(request.head, accepted.body_limit_bytes,
                                                     accepted.sink.get(), request.body, *memory);
  if (fault) co_return co_await refuse(std::move(*fault));
  if (auto* response = std::get_if<Response>(&admission)) {
    co_return co_await send_response(std::move(*response));
  }
  const bool fits = memory->resize(kWorkFactor * request.body.size());
  request.memory = std::move(memory);
  if (!fits || !dispatch(accepted, std::move(request))) {
    co_return co_await send_response(overloaded());
  }
  accepted = {};
  const bool go_on = co_await answer();
  end_exchange();
  co_return go_on;
}

void Connection::decode(BodyDecoder& decoder, std::string& out, uint64_t& received) {
  while (decoder.state() == ParseState::kNeedMore && !unread().empty()) {
    const BodyDecoder::Step step = decoder.advance(unread());
    out.append(step.piece);
    received += step.consumed;
    consume(step.consumed);
  }
}

asio::awaitable<std::optional<Response>> Connection::read_body(const RequestHead& head,
                                                               uint64_t limit_bytes, BodySink* sink,
                                                               std::string& body,
                                                               ByteBudget::Hold& memory) {
  BodyDecoder decoder(head, limit_bytes);
  if (head.expects_continue && decoder.state() == ParseState::kNeedMore && unread().empty()) {
    if (!co_await write_all("HTTP/1.1 100 Continue\r\n\r\n")) co_return Response{};
  }
  const ServerOptions& options = shared_.options;
  const Clock::time_point begun = Clock::now();
  Clock::time_point last = begun;
  uint64_t received = 0;
  read_ahead_ = sink != nullptr ? kBodyReadAhead : kLargeRead;
  while (true) {
    const uint64_t before = received;
    decode(decoder, body, received);
    if (received > before) last = Clock::now();
    if (decoder.state() == ParseState::kFailed) co_return refusal(decoder.fault());
    const size_t held = sink != nullptr ? kBodyReadAhead + body.capacity() : body.capacity();
    if (!memory.resize(held)) co_return overloaded();
    const bool done = decoder.state() == ParseState::kDone;
    if (sink != nullptr && (done || !body.empty())) {
      std::optional<Response> refused = co_await feed(*sink, body, done);
      if (refused) co_return refused;
      body.clear();
      last = Clock::now();
    }
    if (done) break;
    if (!unread().empty()) continue;  // it came while the sink was busy
    if (peer_closed_) co_return refusal({400, "the request ended early"});
    const auto rate_deadline = begun + options.body_timeout +
                               std::chrono::seconds(received / options.body_bytes_per_second);
    const Clock::time_point deadline = std::min(last + options.body_timeout, rate_deadline);
    if (Clock::now() >= deadline) co_return refusal({408, "the request took too long to arrive"});
    place_->set(PlaceState::kBody);
    co_await alarm_.wait(deadline);
  }
  place_->set(PlaceState::kServing);
  read_ahead_ = kReadAhead;
  in_.release_unused();
  co_return std::nullopt;
}

// The worker reads `piece` while this coroutine waits, so it stays as it is.
asio::awaitable<std::optional<Response>> Connection::feed(BodySink& sink, const std::string& piece,
                                                          bool last) {
  std::optional<Response> refused;
  bool finished = false;
  const auto go_on = [&finished, self = shared_from_this()] {
    const PatientScope patient;  // the coroutine waits for it
    asio::post(self->thread_.context, [&finished, self] {
      finished = true;
      self->alarm_.wake();
    });
  };
  const auto write = [&, go_on] {
    try {
      if (!piece.empty()) refused = sink.write(piece);
      if (!refused && last) refused = sink.finish();
    } catch (const std::exception& error) {  // memory is short: this upload alone fails
      const PatientScope patient;            // the coroutine waits for an answer
      log_error("an upload failed: {}", error.what());
      refused = refusal(kOverloaded);
    }
    go_on();
  };
  const auto dropped = [&, go_on] {
    refused = refusal(kStopping);
    go_on();
  };
  if (!shared_.workers.post(current_.priority, current_.account, write, dropped))
    co_return overloaded();
  while (!finished) co_await alarm_.wait(Clock::time_point::max());
  co_return refused;
}

bool Connection::dispatch(const Accepted& accepted, Request request) {
  ByteBudget& memory = accepted.is_quick ? shared_.quick_memory : shared_.memory;
  std::string_view account = current_.account;
  if (accepted.is_quick && is_probe_) account = "probe";
  exchange_ =
      std::make_shared<Exchange>(thread_.wakeups, shared_.options.outbox_bytes, memory, account);
  exchange_->owner = this;
  shared_.exchanges.fetch_add(1);
  last_write_ = Clock::now();
  struct Job {
    Handler handler;
    Request request;
    Responder responder;
  };
  auto job = std::make_shared<Job>(Job{accepted.handler, std::move(request), Responder(exchange_)});
  const auto run = [job] { job->handler(std::move(job->request), std::move(job->responder)); };
  const auto dropped = [job, &application = shared_.application, path = current_.path] {
    Response stopping = application.refusal(kStopping.status, kStopping.message, path);
    stopping.headers.push_back({"Retry-After", "1"});
    job->responder.send(std::move(stopping));
  };
  if (accepted.is_quick) {
    try {
      run();
    } catch (const std::exception& error) {  // memory is short: this request alone fails
      log_error("a request handler failed: {}", error.what());
    }
  } else if (!shared_.workers.post(accepted.priority, accepted.account, run, dropped)) {
    job.reset();
    end_exchange();
    return false;
  }
  if (peer_closed_) ask_at_ = Clock::now() + kAskDelay;
  return true;
}

void Connection::end_exchange() {
  if (!exchange_) return;
  exchange_->owner = nullptr;
  exchange_->detach();
  exchange_.reset();
  shared_.exchanges.fetch_sub(1);
  streamed_ = Streamed::kNothing;
  stream_idle_ = false;
  output_ = {};
}

void Connection::start_reading() {
  if (reading_ || peer_closed_ || broken_ || unread().size() >= read_ahead_) return;
  reading_ = true;
  const size_t size = read_ahead_ > kReadAhead ? kLargeRead : kSmallRead;
  if (chunk_.size() != size) chunk_ = std::vector<char>(size);
  socket_.read_some(asio::buffer(chunk_),
                    [self = shared_from_this()](const ErrorCode& error, size_t bytes) {
                      self->on_read(error, bytes);
                    });
}

void Connection::on_read(const ErrorCode& error, size_t bytes) {
  try {
    take_read(error, bytes);
  } catch (const std::bad_alloc&) {
    cut();
  }
}

void Connection::take_read(const ErrorCode& error, size_t bytes) {
  reading_ = false;
  if (error) {
    peer_closed_ = true;
    ask_at_ = Clock::now() + kAskDelay;
    if (error != asio::error::eof && error != asio::ssl::error::stream_truncated) broken_ = true;
    if (broken_ && exchange_) exchange_->hang_up();
  } else if (!closing_) {
    in_.append(std::string_view(chunk_.data(), bytes));
  }
  start_reading();
  alarm_.wake();
}

void Connection::consume(size_t bytes) {
  in_.consume(bytes);
  start_reading();
}

void Connection::cut() {
  broken_ = true;
  socket_.close();
  alarm_.wake();
}

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
    current_.is_endless = head.is_endless;
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
  if (status != 204 && status != 304) append_field(wire_, "Content-Type", content_type);
  if (length && status != 204 && status != 304) {
    append_field(wire_, "Content-Length", std::to_string(*length));
  } else if (status != 204 && chunked_) {
    append_field(wire_, "Transfer-Encoding", "chunked");
  }
  if (!current_.keep_alive) append_field(wire_, "Connection", "close");
  if (current_.keep_alive && current_.http10) append_field(wire_, "Connection", "keep-alive");
  append_field(wire_, "X-Request-Id", current_.request_id);
  if (!shared_.options.node.empty()) append_field(wire_, "X-Skein-Node", shared_.options.node);
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
