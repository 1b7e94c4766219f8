#include "server/http/stream.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace skein::http {
namespace {

constexpr auto kAwaitBytes = asio::as_tuple(asio::use_awaitable);

}  // namespace

Stream::Stream(asio::ip::tcp::socket socket, std::shared_ptr<asio::ssl::context> tls)
    : socket_(std::move(socket)), context_(std::move(tls)) {
  if (context_) {
    tls_ = std::make_unique<asio::ssl::stream<asio::ip::tcp::socket&>>(socket_, *context_);
  }
}

std::string Stream::peer() const {
  ErrorCode error;
  const auto endpoint = socket_.remote_endpoint(error);
  return error ? std::string() : endpoint.address().to_string();
}

asio::awaitable<ErrorCode> Stream::handshake() {
  if (!tls_) co_return ErrorCode();
  const auto [error] = co_await tls_->async_handshake(asio::ssl::stream_base::server, kAwaitBytes);
  co_return error;
}

void Stream::read_some(asio::mutable_buffer buffer, std::function<void(ErrorCode, size_t)> done) {
  if (tls_) {
    tls_->async_read_some(buffer, std::move(done));
  } else {
    socket_.async_read_some(buffer, std::move(done));
  }
}

asio::awaitable<std::pair<ErrorCode, size_t>> Stream::write_some(std::string_view bytes) {
  const auto buffer = asio::buffer(bytes.data(), bytes.size());
  if (tls_) {
    const auto [error, written] = co_await tls_->async_write_some(buffer, kAwaitBytes);
    co_return std::pair<ErrorCode, size_t>(error, written);
  }
  const auto [error, written] = co_await socket_.async_write_some(buffer, kAwaitBytes);
  co_return std::pair<ErrorCode, size_t>(error, written);
}

size_t Stream::try_write(std::string_view bytes, ErrorCode& error) {
  error = {};
  if (tls_) return 0;
  const size_t written = socket_.write_some(asio::buffer(bytes.data(), bytes.size()), error);
  if (error == asio::error::would_block || error == asio::error::try_again) error = {};
  return written;
}

void Stream::wait_for_reset(std::function<void(ErrorCode)> done) {
  socket_.async_wait(asio::ip::tcp::socket::wait_error, std::move(done));
}

asio::awaitable<void> Stream::shut_down() {
  if (tls_) co_await tls_->async_shutdown(kAwaitBytes);
  ErrorCode ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

void Stream::close() {
  ErrorCode ignored;
  socket_.close(ignored);
}

}  // namespace skein::http
