// The application behind the HTTP server: the table of routes, who may use them, and the endpoints
// that serve them.
//
//   Router router(gate);
//   router.bind(Endpoint::kHealth, [](Call call, http::Responder responder) { ... });
//   http::HttpServer server(options, router);
//
// Everything is bound before the server starts; afterwards any thread may use it. Unknown paths get
// 404, known ones with another method 405 and Allow, routes without an endpoint 501, each in the
// dialect of its path.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "sched/types.h"
#include "server/api/errors.h"
#include "server/auth/principal.h"
#include "server/http/http_server.h"
#include "server/routes.h"

namespace skein {

using PrincipalPtr = std::shared_ptr<const Principal>;

// Decides who may come in. Called on I/O threads, many at once: quick, no waiting.
class Gate {
 public:
  virtual ~Gate() = default;
  // Nobody has a key: what a request says of where it comes from decides instead.
  virtual bool is_open() const = 0;
  // While the gate is open: why a request is turned away before its route is asked. `route` is null
  // where nothing serves it.
  virtual std::optional<api::Error> screen(const Route* route, const http::RequestHead& head,
                                           const std::string& peer) = 0;
  // The same for the probe port, whether the gate is open or not: nobody shows a key there.
  virtual std::optional<api::Error> screen_probe(const http::RequestHead& head) = 0;
  // By what came as x-api-key or Bearer. Also the place for what holds for all requests, as a drain
  // does.
  virtual api::Parsed<PrincipalPtr> enter(const Route& route, const http::RequestHead& head,
                                          const std::string& peer) = 0;
  // As Application::answered; `route` is null where nothing serves the path.
  virtual void answered(const Route* route, const http::Answered& answer) = 0;
};

// One request on its way to its endpoint.
struct Call {
  const Route* route = nullptr;
  std::string id;  // of the path
  PrincipalPtr principal;
  Priority priority = Priority::NORMAL;
  http::Request request = {};
  std::shared_ptr<http::BodySink> sink = nullptr;  // of uploads
};

using EndpointFunction = std::function<void(Call call, http::Responder responder)>;
using SinkFunction = std::function<std::shared_ptr<http::BodySink>(const Call& call)>;

class Router final : public http::Application {
 public:
  explicit Router(Gate& gate) : gate_(gate) {}

  void bind(Endpoint endpoint, EndpointFunction function);
  // The function runs on an I/O thread: it neither works nor waits.
  void bind_quick(Endpoint endpoint, EndpointFunction function);
  // For the routes with uploads: where the body goes. Called on an I/O thread; of the call's
  // request the head alone is there.
  void bind_upload(Endpoint endpoint, SinkFunction sink, EndpointFunction function);

  std::optional<http::Response> screen(const http::RequestHead& head,
                                       const std::string& peer) override;
  std::variant<http::Accepted, http::Response> admit(const http::RequestHead& head,
                                                     const std::string& peer) override;
  std::variant<http::Accepted, http::Response> probe(const http::RequestHead& head) override;
  void answered(const http::Answered& answer) override;
  http::Response refusal(int status, std::string_view message, std::string_view path) override;

 private:
  struct Binding {
    EndpointFunction function;
    SinkFunction sink;
    bool is_quick = false;
  };
  std::variant<http::Accepted, http::Response> accept(Call call, const http::RequestHead& head);

  Gate& gate_;
  std::array<Binding, static_cast<size_t>(Endpoint::kCount)> bindings_;
};

// An error as an answer, with Retry-After and WWW-Authenticate where they belong.
http::Response error_response(api::Dialect dialect, const api::Error& error);

// The key that a request shows, in x-api-key or as `Authorization: Bearer`; empty: none.
std::string_view credential_of(const http::RequestHead& head);

}  // namespace skein
