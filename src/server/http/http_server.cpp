#include "server/http/http_server.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <thread>

#include "base/log.h"
#include "base/patience.h"
#include "server/http/connection.h"

namespace skein::http {
namespace {

using asio::ip::tcp;
using namespace std::chrono_literals;

constexpr auto kLastWords = 500ms;  // for the answers of what was dropped, and for endless ones
constexpr auto kCutting = 500ms;    // for what was cut off, and for handlers that run
constexpr size_t kEvicted = 32;     // at most, when all places are taken
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

Result<tcp::endpoint> resolve(asio::io_context& context, const std::string& host, uint16_t port) {
  ErrorCode error;
  if (const auto address = asio::ip::make_address(host, error); !error) {
    return tcp::endpoint(address, port);
  }
  tcp::resolver resolver(context);
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (error || found.empty()) return not_found("host {}: {}", host, error.message());
  return found.begin()->endpoint();
}

bool is_out_of_files(const ErrorCode& error) {
  return error == boost::system::errc::too_many_files_open ||
         error == boost::system::errc::too_many_files_open_in_system ||
         error == boost::system::errc::no_buffer_space ||
         error == boost::system::errc::not_enough_memory;
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(ServerOptions options, Application& application, Workers& workers, ByteBudget& memory)
      : shared_(std::move(options), application, workers, memory) {
    make_doors();
  }
  ~Impl() {
    stop(0ms);
    for (const auto& door : doors_) door->acceptor.reset();  // before the context it is of
  }

  Status start();
  Status reload_certificate() {
    return shared_.options.tls ? shared_.tls.load(*shared_.options.tls) : ok_status();
  }
  bool stop(std::chrono::milliseconds grace);
  uint16_t port() const { return doors_.front()->port; }
  uint16_t probe_port() const { return doors_.size() > 1 ? doors_[1]->port : 0; }
  ServerStats stats() const { return {connections(), shared_.exchanges, shared_.accept_errors}; }

 private:
  // A port to come in by, and who came.
  struct Door {
    Door(std::string h, uint16_t p, size_t connections, size_t waiting_per_address,
         std::vector<AddressRange> trusted)
        : host(std::move(h)),
          port(p),
          max_connections(connections),
          places(waiting_per_address, std::move(trusted)) {}
    const std::string host;
    uint16_t port;  // 0 until it is open: any
    const size_t max_connections;
    bool is_probe = false;
    Places places;
    std::unique_ptr<tcp::acceptor> acceptor;  // of the first I/O thread
  };

  void make_doors();
  Status open(Door& door);
  void keep_accepting(Door& door);
  asio::awaitable<void> accept_clients(Door& door);
  asio::awaitable<void> wait_for_place(Door& door, asio::steady_timer& pause);
  void adopt(Door& door, IoThread& thread, tcp::socket socket);
  uint64_t connections() const;
  void run(IoThread& thread);
  template <class Function>
  void for_each_connection(Function function);
  bool wait_for_connections(std::chrono::milliseconds timeout) const;

  Shared shared_;
  std::vector<std::unique_ptr<Door>> doors_;  // the second is for probes
  std::vector<std::unique_ptr<IoThread>> io_;
  std::vector<std::thread> threads_;
};

void HttpServer::Impl::make_doors() {
  const ServerOptions& options = shared_.options;
  const auto half = [](size_t all) { return std::max<size_t>(1, all / 2); };
  const size_t waiting = options.max_waiting_per_address;
  doors_.push_back(std::make_unique<Door>(options.host, options.port, options.max_connections,
                                          waiting > 0 ? waiting : half(options.max_connections),
                                          options.trusted_proxies));
  if (!options.probe) return;
  const size_t probes = options.max_probe_connections;
  doors_.push_back(std::make_unique<Door>(options.probe->host, options.probe->port, probes,
                                          half(probes), std::vector<AddressRange>()));
  doors_.back()->is_probe = true;
}

Status HttpServer::Impl::start() {
  SKEIN_CHECK(threads_.empty(), "an HTTP server starts once");
  SKEIN_TRY(reload_certificate());
  for (size_t i = 0; i < std::max<size_t>(1, shared_.options.io_threads); ++i) {
    io_.push_back(std::make_unique<IoThread>());
    IoThread& thread = *io_.back();
    thread.wakeups = std::make_shared<Wakeups>([&thread] {
      asio::post(thread.context, [&thread] {
        auto& exchanges = thread.wakeups->drain();
        for (const auto& exchange : exchanges) {
          if (exchange->owner != nullptr) exchange->owner->on_output();  // does not throw
        }
        exchanges.clear();
      });
    });
  }
  for (const auto& door : doors_) SKEIN_TRY(open(*door));
  for (const auto& thread : io_) threads_.emplace_back([this, &thread] { run(*thread); });
  for (const auto& door : doors_) keep_accepting(*door);
  return {};
}

void HttpServer::Impl::keep_accepting(Door& door) {
  const PatientScope patient;  // a server that cannot accept is gone
  asio::co_spawn(
      io_.front()->context, [this, &door] { return accept_clients(door); }, asio::detached);
}

Status HttpServer::Impl::open(Door& door) {
  asio::io_context& context = io_.front()->context;
  SKEIN_ASSIGN(const tcp::endpoint endpoint, resolve(context, door.host, door.port));
  auto acceptor = std::make_unique<tcp::acceptor>(context);
  ErrorCode error;
  acceptor->open(endpoint.protocol(), error);
  if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor->bind(endpoint, error);
  if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
  uint16_t port = 0;
  if (!error) port = acceptor->local_endpoint(error).port();
  if (error) {
    return unavailable("cannot listen on {}:{}: {}", door.host, door.port, error.message());
  }
  door.port = port;
  door.acceptor = std::move(acceptor);
  return {};
}

asio::awaitable<void> HttpServer::Impl::accept_clients(Door& door) {
  // Asio allocates at every turn. Where that fails the coroutine ends by an exception, or is just
  // destroyed, and another one takes its place.
  struct Successor {
    ~Successor() {
      if (gate.acceptor != nullptr && gate.acceptor->is_open() &&
          !server.io_.front()->context.stopped()) {
        server.keep_accepting(gate);
      }
    }
    Impl& server;
    Door& gate;
  } const successor{*this, door};
  tcp::acceptor& acceptor = *door.acceptor;
  asio::steady_timer pause(io_.front()->context);
  for (size_t turn = 0; acceptor.is_open(); ++turn) {
    if (door.places.taken() >= door.max_connections) {
      co_await wait_for_place(door, pause);
      continue;
    }
    IoThread& thread = *io_[turn % io_.size()];
    auto [error, socket] = co_await acceptor.async_accept(thread.context, kAwait);
    if (!acceptor.is_open()) break;
    if (!error) {
      adopt(door, thread, std::move(socket));
    } else if (is_out_of_files(error)) {
      // The client stays in the kernel's queue, where it would wake us again at once.
      if (shared_.accept_errors.fetch_add(1) % 100 == 0) {
        log_warning("cannot accept clients: {}", error.message());
      }
      door.places.evict(kEvicted);
      pause.expires_after(shared_.options.accept_retry);
      co_await pause.async_wait(kAwait);
    }
  }
}

// All places are taken. Once somebody asks for one, those go that put theirs to no use.
asio::awaitable<void> HttpServer::Impl::wait_for_place(Door& door, asio::steady_timer& pause) {
  co_await door.acceptor->async_wait(tcp::acceptor::wait_read, kAwait);
  if (!door.acceptor->is_open() || door.places.taken() < door.max_connections) co_return;
  const size_t evicted =
      door.places.evict(std::clamp<size_t>(door.max_connections / 8, 1, kEvicted));
  pause.expires_after(evicted > 0 ? 1ms : 10ms);
  co_await pause.async_wait(kAwait);
}

void HttpServer::Impl::adopt(Door& door, IoThread& thread, tcp::socket socket) {
  ErrorCode error;
  const auto peer = socket.remote_endpoint(error);
  if (error) return;  // it has left already
  const auto address = parse_address(peer.address().to_string());
  socket.non_blocking(true, error);
  socket.set_option(tcp::no_delay(true), error);
  const int unsent = shared_.options.unsent_bytes;
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
  try {
    auto connection =
        std::make_shared<Connection>(shared_, thread, std::move(socket), door.is_probe);
    connection->take_place(door.places, address.value_or(Address{}));
    asio::post(thread.context, [connection] { connection->start(); });
  } catch (const std::exception& failure) {  // memory is short: one client is turned away
    log_error("a client could not be taken: {}", failure.what());
  }
}

uint64_t HttpServer::Impl::connections() const {
  uint64_t all = 0;
  for (const auto& door : doors_) all += door->places.taken();
  return all;
}

void HttpServer::Impl::run(IoThread& thread) {
  const auto guard = asio::make_work_guard(thread.context);
  while (!thread.context.stopped()) {
    try {
      thread.context.run();
    } catch (
        const std::exception& error) {  // memory is short: one handler was lost, not the thread
      log_error("an I/O thread goes on after: {}", error.what());
    }
  }
}

template <class Function>
void HttpServer::Impl::for_each_connection(Function function) {
  for (const auto& thread : io_) {
    asio::post(thread->context, [&thread = *thread, function] {
      for (Connection* connection : thread.connections) function(*connection);
    });
  }
}

bool HttpServer::Impl::wait_for_connections(std::chrono::milliseconds timeout) const {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (connections() > 0) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

bool HttpServer::Impl::stop(std::chrono::milliseconds grace) {
  const PatientScope patient;
  if (threads_.empty()) return true;
  shared_.draining = true;
  asio::post(io_.front()->context, [this] {
    ErrorCode ignored;
    for (const auto& door : doors_) door->acceptor->close(ignored);
  });
  for_each_connection([](Connection& connection) { connection.drain(); });
  const auto first = std::min(grace, std::chrono::milliseconds(kLastWords));
  if (!wait_for_connections(first)) {
    for_each_connection([](Connection& connection) { connection.cut_endless(); });
  }
  if (!wait_for_connections(grace - first)) {
    shared_.workers.drop();
    wait_for_connections(kLastWords);
    for_each_connection([](Connection& connection) { connection.cut(); });
    if (!wait_for_connections(kCutting)) log_warning("{} connections do not end", connections());
  }
  shared_.workers.drop();
  const bool joined = shared_.workers.join(kCutting);
  for (const auto& thread : io_) thread->wakeups->close();
  for (const auto& thread : io_) thread->context.stop();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  return joined;
}

HttpServer::HttpServer(ServerOptions options, Application& application, Workers& workers,
                       ByteBudget& memory)
    : impl_(std::make_unique<Impl>(std::move(options), application, workers, memory)) {}
HttpServer::~HttpServer() = default;

Status HttpServer::start() {
  return impl_->start();
}

Status HttpServer::reload_certificate() {
  return impl_->reload_certificate();
}

uint16_t HttpServer::port() const {
  return impl_->port();
}

uint16_t HttpServer::probe_port() const {
  return impl_->probe_port();
}

ServerStats HttpServer::stats() const {
  return impl_->stats();
}

bool HttpServer::stop(std::chrono::milliseconds grace) {
  return impl_->stop(grace);
}

}  // namespace skein::http
