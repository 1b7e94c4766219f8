// An HTTP/1.1 server: bytes of many clients in, checked requests out, answers back.
//
//   HttpServer server(options, application, workers, memory);
//   SKEIN_TRY(server.start());
//   ...
//   server.stop(30s);
//
// A connection lives on one I/O thread, and I/O threads only move bytes: handlers run on worker
// threads. Requests of a connection are answered one after the other, in order (pipelining);
// whatever cannot be read strictly (request_parser.h) gets a 4xx and the connection closes. Nothing
// is unbounded: heads, bodies, connections, queued handlers, what is held for a slow reader, and
// every wait have their limits below.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "server/http/byte_budget.h"
#include "server/http/message.h"
#include "server/http/places.h"
#include "server/http/request_parser.h"
#include "server/http/responder.h"
#include "server/http/workers.h"

namespace skein::http {

struct TlsFiles {
  std::string certificate_chain;  // paths of PEM files
  std::string private_key;
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free one, see HttpServer::port
  size_t io_threads = 2;
  size_t max_connections = 8192;  // beyond, who has waited longest goes, else clients queue
  // Connections of one address (of an IPv6 network of 64 bits) without a whole request; 0: half of
  // all. Beyond, the one that has waited longest goes.
  size_t max_waiting_per_address = 0;
  std::vector<AddressRange> trusted_proxies;  // have no such limit: behind them are many clients
  // A second port, for Application::probe alone: plain HTTP, and connections of its own, so that
  // whoever watches the server gets in whatever the others do.
  struct Probe {
    std::string host;
    uint16_t port = 0;  // 0: any free one, see HttpServer::probe_port
  };
  std::optional<Probe> probe;
  size_t max_probe_connections = 64;
  // The answer to the last one says `Connection: close`, so that no client keeps its place and its
  // I/O thread for ever.
  uint64_t max_requests_per_connection = 10'000;

  HeadLimits head;
  size_t outbox_bytes = 16 << 10;  // held for a slow reader before a writer is told kFull
  // The kernel takes so many bytes beyond what the client lets it send. Its own choice is
  // megabytes, in which a reader that does not read would go unnoticed.
  int unsent_bytes = 16 << 10;

  std::chrono::milliseconds idle_timeout{75'000};   // between requests
  std::chrono::milliseconds head_timeout{10'000};   // from a head's first byte to its last
  std::chrono::milliseconds body_timeout{30'000};   // without a byte of a body
  std::chrono::milliseconds write_timeout{60'000};  // without the client taking a byte
  std::chrono::milliseconds linger_timeout{1'000};  // for the client to read why it was refused
  std::chrono::milliseconds accept_retry{100};      // when no file descriptor is left
  uint64_t body_bytes_per_second = 1024;            // a body that comes slower is cut off

  std::optional<TlsFiles> tls;
  std::vector<std::string> cors_origins;  // "*", or exact origins; empty: no CORS
  // The name of this server among several, in X-Skein-Node and in the ids of requests. Empty:
  // neither.
  std::string node;
  std::string id_prefix() const { return node.empty() ? node : node + "-"; }
};

// Where a large body goes instead of into memory. Called on worker threads, one call at a time; it
// is destroyed without finish() when the body does not arrive whole.
class BodySink {
 public:
  virtual ~BodySink() = default;
  // A Response refuses the rest of the body.
  virtual std::optional<Response> write(std::string_view piece) = 0;
  virtual std::optional<Response> finish() = 0;
};

using Handler = std::function<void(Request request, Responder responder)>;

struct Accepted {
  Handler handler;                       // runs on a worker thread when the body is there
  bool is_quick = false;                 // it runs on the I/O thread, and neither works nor waits
  Priority priority = Priority::NORMAL;  // its turn at the workers
  std::string account;                   // whose part of the budget of bytes it uses
  uint64_t body_limit_bytes = 0;         // beyond: 413
  std::vector<Header> headers;           // for the answer, whatever it will be
  std::string caller;                    // who asks, for Application::answered
  std::shared_ptr<BodySink> sink;        // null: the body comes in Request::body
};

// A request whose answer is on its way.
struct Answered {
  std::string_view method;  // empty, as the path, when they could not be read
  std::string_view path;
  int status = 0;
  std::string_view peer;
  // The caller of Accepted; nothing when the request was not admitted.
  std::optional<std::string_view> caller;
};

// The application that the server serves; it outlives the server.
class Application {
 public:
  virtual ~Application() = default;
  // Looked at before everything else, a preflight among it: an answer here turns the request away,
  // whatever it asks for. As admit otherwise.
  virtual std::optional<Response> screen(const RequestHead&, const std::string&) {
    return std::nullopt;
  }
  // Decides about a request by its head, before its body is read. On an I/O thread, many at
  // once: no text work and no waiting.
  virtual std::variant<Accepted, Response> admit(const RequestHead& head,
                                                 const std::string& peer) = 0;
  // The same for what comes to the probe port.
  virtual std::variant<Accepted, Response> probe(const RequestHead& head,
                                                 const std::string& /*peer*/) {
    return refusal(404, "there is nothing at this URL", head.path);
  }
  // Called once for every answer, before its first byte leaves. On an I/O thread.
  virtual void answered(const Answered&) {}
  // The answer to what could not be read or run; `path` is empty when it is not known. Any thread.
  virtual Response refusal(int status, std::string_view message, std::string_view path) = 0;
};

struct ServerStats {
  uint64_t connections = 0;  // open now
  uint64_t exchanges = 0;    // requests being answered now
  uint64_t accept_errors = 0;
};

// Thread-safety: start and stop by one thread, the others by any.
class HttpServer {
 public:
  // All outlive the server; `workers` does no more work once the server has stopped.
  HttpServer(ServerOptions options, Application& application, Workers& workers, ByteBudget& memory);
  ~HttpServer();  // stops at once
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Binds and begins to serve. Errors name the address or the file.
  Status start();
  // The certificate's files are read again, for connections to come. One that cannot be used
  // changes nothing. Fine without TLS.
  Status reload_certificate();
  uint16_t port() const;
  uint16_t probe_port() const;  // 0: there is none
  ServerStats stats() const;

  // Accepts nobody any more, closes idle connections, and lets running answers end until the
  // deadline. Then what waits for a worker gets a 503, and the rest is cut off. That takes no more
  // than a second and a half: false when a handler still ran then and was left behind, so that the
  // process must end without destructors. Idempotent.
  bool stop(std::chrono::milliseconds grace);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skein::http
