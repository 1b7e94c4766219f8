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
#include "server/http/connection.h"

namespace skein::http {
namespace {

using asio::ip::tcp;
using namespace std::chrono_literals;

constexpr auto kLastWords = 500ms;  // for the answers of what was dropped
constexpr auto kCutting = 500ms;    // for what was cut off, and for handlers that run
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
      : shared_(std::move(options), application, workers, memory) {}
  ~Impl() { stop(0ms); }

  Status start();
  Status reload_certificate() {
    return shared_.options.tls ? shared_.tls.load(*shared_.options.tls) : ok_status();
  }
  bool stop(std::chrono::milliseconds grace);
  uint16_t port() const { return port_; }
  ServerStats stats() const {
    return {shared_.connections, shared_.exchanges, shared_.accept_errors};
  }

 private:
  Status listen();
  asio::awaitable<void> accept_clients();
  void adopt(IoThread& thread, tcp::socket socket);
  void run(IoThread& thread);
  template <class Function>
  void for_each_connection(Function function);
  bool wait_for_connections(std::chrono::milliseconds timeout) const;

  Shared shared_;
  std::vector<std::unique_ptr<IoThread>> io_;
  std::vector<std::thread> threads_;
  std::unique_ptr<tcp::acceptor> acceptor_;  // of the first I/O thread
  uint16_t port_ = 0;
};

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
          if (exchange->owner != nullptr) exchange->owner->on_output();
        }
        exchanges.clear();
      });
    });
  }
  SKEIN_TRY(listen());
  for (const auto& thread : io_) threads_.emplace_back([this, &thread] { run(*thread); });
  asio::co_spawn(
      io_.front()->context, [this] { return accept_clients(); }, asio::detached);
  return {};
}

Status HttpServer::Impl::listen() {
  const ServerOptions& options = shared_.options;
  asio::io_context& context = io_.front()->context;
  SKEIN_ASSIGN(const tcp::endpoint endpoint, resolve(context, options.host, options.port));
  auto acceptor = std::make_unique<tcp::acceptor>(context);
  ErrorCode error;
  acceptor->open(endpoint.protocol(), error);
  if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor->bind(endpoint, error);
  if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
  if (!error) port_ = acceptor->local_endpoint(error).port();
  if (error) {
    return unavailable("cannot listen on {}:{}: {}", options.host, options.port, error.message());
  }
  acceptor_ = std::move(acceptor);
  return {};
}

asio::awaitable<void> HttpServer::Impl::accept_clients() {
  asio::steady_timer pause(io_.front()->context);
  for (size_t turn = 0; acceptor_->is_open(); ++turn) {
    if (shared_.connections >= shared_.options.max_connections) {
      pause.expires_after(10ms);
      co_await pause.async_wait(kAwait);
      continue;
    }
    IoThread& thread = *io_[turn % io_.size()];
    auto [error, socket] = co_await acceptor_->async_accept(thread.context, kAwait);
    if (!acceptor_->is_open()) break;
    if (!error) {
      adopt(thread, std::move(socket));
    } else if (is_out_of_files(error)) {
      // The client stays in the kernel's queue, where it would wake us again at once.
      if (shared_.accept_errors.fetch_add(1) % 100 == 0) {
        log_warning("cannot accept clients: {}", error.message());
      }
      pause.expires_after(shared_.options.accept_retry);
      co_await pause.async_wait(kAwait);
    }
  }
}

void HttpServer::Impl::adopt(IoThread& thread, tcp::socket socket) {
  ErrorCode ignored;
  socket.non_blocking(true, ignored);
  socket.set_option(tcp::no_delay(true), ignored);
  const int unsent = shared_.options.unsent_bytes;
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
  asio::post(thread.context, [this, &thread, socket = std::move(socket)]() mutable {
    std::make_shared<Connection>(shared_, thread, std::move(socket))->start();
  });
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
  while (shared_.connections > 0) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

bool HttpServer::Impl::stop(std::chrono::milliseconds grace) {
  if (threads_.empty()) return true;
  shared_.draining = true;
  asio::post(io_.front()->context, [this] {
    ErrorCode ignored;
    acceptor_->close(ignored);
  });
  for_each_connection([](Connection& connection) { connection.drain(); });
  if (!wait_for_connections(grace)) {
    shared_.workers.drop();
    wait_for_connections(kLastWords);
    for_each_connection([](Connection& connection) { connection.cut(); });
    if (!wait_for_connections(kCutting)) {
      log_warning("{} connections do not end", shared_.connections);
    }
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

ServerStats HttpServer::stats() const {
  return impl_->stats();
}

bool HttpServer::stop(std::chrono::milliseconds grace) {
  return impl_->stop(grace);
}

}  // namespace skein::http
