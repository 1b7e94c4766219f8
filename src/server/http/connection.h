// One client's connection: reads requests, has them answered, writes the answers. Internal to
// http/.
//
// Everything runs on the I/O thread it was made for. One coroutine does the talking, in order; a
// read is always under way (within bounds), so that a hang-up is noticed while an answer is being
// computed; and once a stream runs, what its writers post goes straight from on_output() to the
// socket, without waking the coroutine.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "server/http/exchange.h"
#include "server/http/http_server.h"
#include "server/http/input_buffer.h"
#include "server/http/places.h"
#include "server/http/request_parser.h"
#include "server/http/socket.h"
#include "server/http/workers.h"

namespace skein::http {

// The connections of one server share these.
struct Shared {
  Shared(ServerOptions o, Application& a, Workers& w, ByteBudget& m);

  const ServerOptions options;
  Application& application;
  Workers& workers;
  ByteBudget& memory;
  // For the answers of quick requests, so that a server whose budget is used up can still be
  // watched.
  ByteBudget quick_memory{8 << 20};
  TlsCertificate tls;
  std::atomic<bool> draining = false;
  std::atomic<uint64_t> exchanges = 0;
  std::atomic<uint64_t> accept_errors = 0;
  std::atomic<uint64_t> requests = 0;
  const uint64_t id_salt;
};

// One I/O thread.
struct IoThread {
  std::shared_ptr<Wakeups> wakeups;
  std::unordered_set<Connection*> connections;
  asio::io_context context{1};  // goes first: the coroutines it still has leave `connections`
};

// An answer needs to know this of its request.
struct Current {
  std::string method;
  std::string path;
  std::optional<std::string> caller;  // set once the request is admitted
  std::string origin;
  std::string request_id;
  std::vector<Header> headers;  // for the answer
  bool head_only = false;       // HEAD
  bool http10 = false;
  bool keep_alive = false;
  bool is_endless = false;               // the answer: StreamHead
  Priority priority = Priority::NORMAL;  // of its text work
  std::string account;                   // pays for what the request holds in memory
};

// A coroutine waits here for a deadline, or to be woken. A wake that comes while nobody waits ends
// the next wait. Only the thread of its context uses it.
class Alarm {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Alarm(asio::io_context& context) : timer_(context) {}
  asio::awaitable<void> wait(Clock::time_point deadline);
  void wake();

 private:
  asio::steady_timer timer_;
  bool is_waiting_ = false;
  bool is_woken_ = false;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `is_probe`: it came to the probe port.
  Connection(Shared& shared, IoThread& thread, asio::ip::tcp::socket socket, bool is_probe);

  // Before start(). The place is free again when the connection has ended.
  void take_place(Places& places, const Address& address);
  // Serves until the end; its coroutine keeps the connection alive.
  void start();
  // The exchange has output.
  void on_output();
  // No further request; an idle connection closes now.
  void drain() { alarm_.wake(); }
  void cut_endless() {
    if (current_.is_endless) cut();
  }
  void cut();

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr Fault kOverloaded{
      503, "The server has as much work as it can hold; try again later."};
  struct HeadOutcome {
    ParseState state;  // kNeedMore: the client is done
    Fault fault;
  };

  // Requests.
  asio::awaitable<void> run();
  void end();
  asio::awaitable<bool> serve_one();
  asio::awaitable<HeadOutcome> read_head(HeadParser& parser);
  asio::awaitable<bool> serve(RequestHead head);
  asio::awaitable<std::optional<Response>> read_body(const RequestHead& head, uint64_t limit_bytes,
                                                     BodySink* sink, std::string& body,
                                                     ByteBudget::Hold& memory);
  asio::awaitable<std::optional<Response>> feed(BodySink& sink, const std::string& piece,
                                                bool last);
  std::variant<Accepted, Response> admit(const RequestHead& head);
  void begin_request(const RequestHead& head);
  bool dispatch(const Accepted& accepted, Request request);
  void end_exchange();
  void decode(BodyDecoder& decoder, std::string& out, uint64_t& received);
  void start_reading();
  void on_read(const ErrorCode& error, size_t bytes);
  void take_read(const ErrorCode& error, size_t bytes);
  void consume(size_t bytes);
  std::string_view unread() const { return in_.unread(); }
  Response refusal(const Fault& fault) const;
  Response overloaded() const;  // with Retry-After

  // Answers. What they return: whether the connection can go on.
  asio::awaitable<bool> answer();
  void ask_for_peer();
  asio::awaitable<bool> send_response(Response response);
  asio::awaitable<bool> refuse(Response response);
  asio::awaitable<bool> write_wire();
  asio::awaitable<bool> write_all(std::string_view bytes);
  asio::awaitable<void> close_gently();
  void pass_on();
  void fill_wire();
  void append_piece(std::string_view bytes);
  void append_head(int status, std::string_view content_type, const std::vector<Header>& headers,
                   std::optional<uint64_t> length);
  void cut_after(std::chrono::milliseconds timeout);
  void keep_on() { ++cut_turn_, write_timer_.cancel(); }

  Shared& shared_;
  IoThread& thread_;
  const bool is_probe_;
  std::unique_ptr<Places::Place> place_;
  Socket socket_;
  Alarm alarm_;  // of the coroutine
  asio::steady_timer write_timer_;
  uint64_t cut_turn_ = 0;  // the timer's handler counts only for the turn it was set in
  std::string peer_;

  std::vector<char> chunk_;  // of the read under way
  InputBuffer in_;           // read, not consumed yet
  size_t read_ahead_;
  bool reading_ = false;       // a read is under way
  bool peer_closed_ = false;   // the client sends nothing more; it may still read
  bool awaits_reset_ = false;  // a reset by the client will be noticed
  bool broken_ = false;        // nothing can be written or read any more
  bool closing_ = false;       // what comes in is dropped
  bool quiet_ = false;         // it ends between requests: there is no answer to be read
  // When a client that has closed its side is asked whether it still reads.
  Clock::time_point ask_at_ = Clock::time_point::max();

  uint64_t requests_ = 0;  // that began on this connection
  Current current_;
  std::shared_ptr<Exchange> exchange_;
  Exchange::Output output_;
  std::string wire_;  // bytes for the socket: from wire_begin_ on
  size_t wire_begin_ = 0;
  bool chunked_ = false;
  // How far a stream is, on the socket or in wire_: kBegun with its head, kEnded with its end.
  enum class Streamed : uint8_t { kNothing, kBegun, kEnded };
  Streamed streamed_ = Streamed::kNothing;
  bool stream_idle_ = false;  // it has begun, all of wire_ is out, and the coroutine waits
  Clock::time_point last_write_;
};

}  // namespace skein::http
