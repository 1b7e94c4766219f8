// Router: the application behind the HTTP server. It finds the route of a request (routes.def),
// asks the keys who may use it, and hands the request to the route's endpoint.
//
// Unknown paths get 404, known ones with another method 405 and Allow, each in the dialect of its
// path. Nothing of a Router changes after it was made: any thread may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "sched/types.h"
#include "server/api/errors.h"
#include "server/auth/principal.h"
#include "server/http/http_server.h"
#include "server/observe/audit.h"
#include "server/origin_guard.h"

namespace skein {

struct Route;
struct ServerContext;
using PrincipalPtr = std::shared_ptr<const Principal>;

// A request that was admitted, on its way to its endpoint.
struct Call {
  const Route* route = nullptr;
  std::string id;  // stands in the path for {id} or {path}
  PrincipalPtr principal;
  Priority priority = Priority::NORMAL;
  http::Request request = {};
  std::shared_ptr<http::BodySink> sink = nullptr;  // has the body of an upload
};

// Answers a call, on a worker unless its route is quick. It may take the call's parts.
using Endpoint = void(ServerContext& context, Call& call, const http::Responder& responder);
// Says where the body of an upload goes. Runs on an I/O thread, when the call's request has its
// head alone.
using OpenSink = std::shared_ptr<http::BodySink>(ServerContext& context, const Call& call);

enum class Auth : uint8_t {
  kNone,   // never needs a key
  kKey,    // needs one where keys are configured
  kAdmin,  // needs the admin right; never open
};

// Where the class of a request's work comes from: the tier of its key, or LOW for batches. It never
// comes from the client.
enum class ClassRule : uint8_t { kTier, kLow };

struct Route {
  std::string_view method;
  std::string_view pattern;
  Endpoint* endpoint = nullptr;
  Auth auth = Auth::kAdmin;
  ClassRule class_rule = ClassRule::kTier;
  uint64_t body_limit_bytes = 0;
  bool begins_work = false;  // it is refused while the server drains
  bool is_quick = false;     // its endpoint runs on an I/O thread, and neither works nor waits
  bool is_page = false;      // a page or its parts: may be opened from anywhere, but not in a frame
  bool is_probe = false;     // it is also served on the probe port, without a key
  OpenSink* open_sink = nullptr;  // uploads: the body goes to a sink and not into memory
  api::Dialect dialect = api::Dialect::kOpenAi;  // follows from the pattern
};

inline constexpr uint64_t kJsonBodyBytes = 8 << 20;
inline constexpr uint64_t kUploadBytes = (512ULL << 20) + (1 << 20);  // the file and its wrapping

std::span<const Route> routes();

struct RouteMatch {
  const Route* route = nullptr;  // null: nothing serves the request
  std::string id;                // stands for {id} or {path}
  std::string allow;  // without a route: the methods that the path has; empty: it is unknown
};

// HEAD is served by the route of GET.
RouteMatch match_route(std::string_view method, std::string_view path);

// The dialect of the errors that a path gets, also where nothing is.
constexpr api::Dialect dialect_of(std::string_view path) {
  constexpr std::string_view kMessages = "/v1/messages";
  const bool messages = path == kMessages || (path.starts_with(kMessages) &&
                                              path.substr(kMessages.size()).starts_with('/'));
  return messages ? api::Dialect::kAnthropic : api::Dialect::kOpenAi;
}

// The class that a route gives to its requests.
Priority class_of(const Route& route, Priority key_tier);

class Router final : public http::Application {
 public:
  // While there are no keys, `guard` decides by what a request says of where it comes from; on the
  // probe port, where nobody shows a key, `probe_guard` always does. `context` outlives the router.
  Router(ServerContext& context, OriginGuard guard, OriginGuard probe_guard);

  std::optional<http::Response> screen(const http::RequestHead& head,
                                       const std::string& peer) override;
  std::variant<http::Accepted, http::Response> admit(const http::RequestHead& head,
                                                     const std::string& peer) override;
  std::variant<http::Accepted, http::Response> probe(const http::RequestHead& head,
                                                     const std::string& peer) override;
  void answered(const http::Answered& answer) override;
  http::Response refusal(int status, std::string_view message, std::string_view path) override;

 private:
  api::Parsed<PrincipalPtr> enter(const Route& route, const http::RequestHead& head,
                                  const std::string& peer);
  http::Accepted accept(Call call, const http::RequestHead& head);

  ServerContext& context_;
  Audit audit_;
  const OriginGuard guard_;
  const OriginGuard probe_guard_;
  const PrincipalPtr anonymous_ = std::make_shared<const Principal>();
};

// The key that a request shows, in x-api-key or as `Authorization: Bearer`; empty: none.
std::string_view credential_of(const http::RequestHead& head);

// An error as an answer, with Retry-After and WWW-Authenticate where they belong.
http::Response error_response(api::Dialect dialect, const api::Error& error);

}  // namespace skein
