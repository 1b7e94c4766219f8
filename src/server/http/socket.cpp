#include "server/http/socket.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace skein::http {
namespace {

constexpr auto kAwaitBytes = asio::as_tuple(asio::use_awaitable);

}  // namespace

Socket::Socket(asio::ip::tcp::socket socket, std::shared_ptr<asio::ssl::context> tls)
    : socket_(std::move(socket)), context_(std::move(tls)) {
  if (context_) {
    tls_ = std::make_unique<asio::ssl::stream<asio::ip::tcp::socket&>>(socket_, *context_);
  }
}

std::string Socket::peer() const {
  ErrorCode error;
  const auto endpoint = socket_.remote_endpoint(error);
  return error ? std::string() : endpoint.address().to_string();
}

asio::awaitable<ErrorCode> Socket::handshake() {
  if (!tls_) co_return ErrorCode();
  const auto [error] = co_await tls_->async_handshake(asio::ssl::stream_base::server, kAwaitBytes);
  co_return error;
}

void Socket::read_some(asio::mutable_buffer buffer, std::function<void(ErrorCode, size_t)> done) {
  if (tls_) {
    tls_->async_read_some(buffer, std::move(done));
  } else {
    socket_.async_read_some(buffer, std::move(done));
  }
}

asio::awaitable<std::pair<ErrorCode, size_t>> Socket::write_some(std::string_view bytes) {
  const auto buffer = asio::buffer(bytes.data(), bytes.size());
  if (tls_) {
    const auto [error, written] = co_await tls_->async_write_some(buffer, kAwaitBytes);
    co_return std::pair<ErrorCode, size_t>(error, written);
  }
  const auto [error, written] = co_await socket_.async_write_some(buffer, kAwaitBytes);
  co_return std::pair<ErrorCode, size_t>(error, written);
}

size_t Socket::try_write(std::string_view bytes, ErrorCode& error) {
  error = {};
  if (tls_) return 0;
  const size_t written = socket_.write_some(asio::buffer(bytes.data(), bytes.size()), error);
  if (error == asio::error::would_block || error == asio::error::try_again) error = {};
  return written;
}

void Socket::wait_for_reset(std::function<void(ErrorCode)> done) {
  socket_.async_wait(asio::ip::tcp::socket::wait_error, std::move(done));
}

asio::awaitable<void> Socket::shut_down() {
  if (tls_) co_await tls_->async_shutdown(kAwaitBytes);
  ErrorCode ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

void Socket::close() {
  ErrorCode ignored;
  socket_.close(ignored);
}

Status TlsCertificate::load(const TlsFiles& files) {
  auto fresh = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(fresh->native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_mode(fresh->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  ErrorCode error;
  fresh->use_certificate_chain_file(files.certificate_chain, error);
  if (error) {
    return invalid_argument("TLS certificate {}: {}", files.certificate_chain, error.message());
  }
  // It is also held against the certificate.
  fresh->use_private_key_file(files.private_key, asio::ssl::context::pem, error);
  if (error) return invalid_argument("TLS key {}: {}", files.private_key, error.message());
  const std::lock_guard lock(mutex_);
  context_ = std::move(fresh);
  return {};
}

std::shared_ptr<asio::ssl::context> TlsCertificate::context() const {
  const std::lock_guard lock(mutex_);
  return context_;
}

}  // namespace skein::http
