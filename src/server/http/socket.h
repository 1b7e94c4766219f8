// The socket of one client, with or without TLS, and the certificate that new ones get. Internal to
// http/.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "server/http/http_server.h"

namespace skein::http {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

// One I/O thread uses it. At most one read and one write at a time.
class Socket {
 public:
  // `tls` null: plain.
  Socket(asio::ip::tcp::socket socket, std::shared_ptr<asio::ssl::context> tls);

  // The address of the other side, without its port; empty when it has left already.
  std::string peer() const;

  asio::awaitable<ErrorCode> handshake();
  void read_some(asio::mutable_buffer buffer, std::function<void(ErrorCode, size_t)> done);
  // Writes at least one byte; how many, or an error.
  asio::awaitable<std::pair<ErrorCode, size_t>> write_some(std::string_view bytes);
  // Writes as much as fits without waiting, which may be nothing, and with TLS always is.
  size_t try_write(std::string_view bytes, ErrorCode& error);
  // Calls back when the other side has reset the connection, also after its end was read.
  void wait_for_reset(std::function<void(ErrorCode)> done);
  // Tells the other side that nothing more will come.
  asio::awaitable<void> shut_down();
  void close();

 private:
  asio::ip::tcp::socket socket_;
  std::shared_ptr<asio::ssl::context> context_;
  std::unique_ptr<asio::ssl::stream<asio::ip::tcp::socket&>> tls_;
};

// The certificate of the connections to come. Any thread may call any member.
class TlsCertificate {
 public:
  // Reads the files. Connections that are open keep what they have. A pair that cannot be used
  // leaves everything as it was; the error names the file.
  Status load(const TlsFiles& files);

  // Null until one was loaded: connections are plain.
  std::shared_ptr<asio::ssl::context> context() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<asio::ssl::context> context_;
};

}  // namespace skein::http
