#include "server/router.h"

#include <utility>

#include "server/context.h"

namespace skein {

namespace endpoints {
#define SKEIN_ROUTE(method, path, endpoint, ...) Endpoint endpoint;
#include "server/routes.def"
OpenSink open_upload;
}  // namespace endpoints

namespace {

constexpr uint64_t kRetryAfterDrainS = 5;
constexpr uint64_t kJson = kJsonBodyBytes;
constexpr uint64_t kUpload = kUploadBytes;

// A page runs nothing but its own files, loads nothing from elsewhere, and is shown in no frame:
// whatever stands in an answer of a model, a browser does not act on it.
constexpr std::pair<std::string_view, std::string_view> kPageHeaders[] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
     "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
};

constexpr Route with_dialect(Route route) {
  route.dialect = dialect_of(route.pattern);
  return route;
}

constexpr Route kRoutes[] = {
#define SKEIN_ROUTE(http_method, path, function, who, rule, limit_bytes, ...) \
  with_dialect({.method = http_method,                                        \
                .pattern = path,                                              \
                .endpoint = endpoints::function,                              \
                .auth = Auth::who,                                            \
                .class_rule = ClassRule::rule,                                \
                .body_limit_bytes = limit_bytes __VA_OPT__(, ) __VA_ARGS__}),
#include "server/routes.def"
};

// Whether the path is the pattern; `id` gets what stands for its placeholder.
bool matches(std::string_view pattern, std::string_view path, std::string& id) {
  const size_t open = pattern.find('{');
  if (open == std::string_view::npos) return pattern == path;
  const size_t close = pattern.find('}', open);
  const std::string_view prefix = pattern.substr(0, open);
  const std::string_view suffix = pattern.substr(close + 1);
  if (path.size() <= prefix.size() + suffix.size()) return false;
  if (!path.starts_with(prefix) || !path.ends_with(suffix)) return false;
  const std::string_view raw =
      path.substr(prefix.size(), path.size() - prefix.size() - suffix.size());
  const bool one_segment = pattern.substr(open, close + 1 - open) == "{id}";
  if (one_segment && raw.find('/') != std::string_view::npos) return false;
  auto decoded = http::percent_decoded(raw);
  if (!decoded) return false;
  id = std::move(*decoded);
  return true;
}

std::string_view media_type_of(const Route& route) {
  return route.open_sink != nullptr ? "multipart/form-data" : "application/json";
}

// A page of another site can send the types of a form without asking first, and these alone.
bool has_right_type(const Route& route, const http::RequestHead& head) {
  if (route.body_limit_bytes == 0) return true;
  const bool has_body = head.framing == http::Framing::kChunked || head.content_length > 0;
  bool has_type = false;
  // Whoever reads the last of several must not come to another result.
  for (const http::Header& field : head.headers) {
    if (field.name != "content-type") continue;
    if (!is_media_type(field.value, media_type_of(route))) return false;
    has_type = true;
  }
  return has_type || !has_body;
}

// Answers a request whose path is unknown, or does not have its method.
http::Response unserved(const http::RequestHead& head, std::string allow) {
  const bool known = !allow.empty() || head.path == "*";
  if (known && head.method == "OPTIONS") {
    return {.status = 204, .headers = {{"Allow", std::move(allow)}}};
  }
  const api::Dialect dialect = dialect_of(head.path);
  if (allow.empty()) return error_response(dialect, api::not_found());
  http::Response response = error_response(dialect, api::method_not_allowed());
  response.headers.push_back({"Allow", std::move(allow)});
  return response;
}

}  // namespace

std::string_view credential_of(const http::RequestHead& head) {
  if (const std::string* key = head.header("x-api-key")) return *key;
  const std::string* authorization = head.header("authorization");
  if (authorization == nullptr) return {};
  const std::string_view text = *authorization;
  const size_t space = text.find(' ');
  if (space == std::string_view::npos) return {};
  if (!http::equals_ignoring_case(text.substr(0, space), "bearer")) return {};
  return http::trimmed(text.substr(space));
}

std::span<const Route> routes() {
  return kRoutes;
}

RouteMatch match_route(std::string_view method, std::string_view path) {
  RouteMatch match;
  for (const Route& route : kRoutes) {
    std::string id;
    if (!matches(route.pattern, path, id)) continue;
    if (route.method == method || (method == "HEAD" && route.method == "GET")) {
      return {&route, std::move(id), {}};
    }
    if (!match.allow.empty()) match.allow.append(", ");
    match.allow.append(route.method);
    if (route.method == "GET") match.allow.append(", HEAD");
  }
  if (!match.allow.empty()) match.allow.append(", OPTIONS");
  return match;
}

Priority class_of(const Route& route, Priority key_tier) {
  return request_class(route.class_rule == ClassRule::kLow, key_tier);
}

http::Response error_response(api::Dialect dialect, const api::Error& error) {
  http::Response response{.status = error.status, .body = api::error_body(dialect, error)};
  if (error.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  if (error.retry_after_s) {
    response.headers.push_back({"Retry-After", std::to_string(*error.retry_after_s)});
  }
  return response;
}

Router::Router(ServerContext& context, OriginGuard guard, OriginGuard probe_guard)
    : context_(context),
      audit_(context.clock),
      guard_(std::move(guard)),
      probe_guard_(std::move(probe_guard)) {}

std::optional<http::Response> Router::screen(const http::RequestHead& head,
                                             const std::string& peer) {
  if (!context_.keys.is_open()) return std::nullopt;
  const Route* route = match_route(head.method, head.path).route;
  const auto error = guard_.check(head, route != nullptr && route->is_page);
  if (!error) return std::nullopt;
  audit_.refused(error->status, {head.method, head.path, peer}, "");
  return error_response(dialect_of(head.path), *error);
}

std::variant<http::Accepted, http::Response> Router::admit(const http::RequestHead& head,
                                                           const std::string& peer) {
  RouteMatch match = match_route(head.method, head.path);
  if (match.route == nullptr) return unserved(head, std::move(match.allow));
  const Route& route = *match.route;
  auto principal = enter(route, head, peer);
  if (!principal.ok()) return error_response(route.dialect, principal.error());
  if (context_.keys.is_open() && !has_right_type(route, head)) {
    return error_response(route.dialect, api::unsupported_media_type(media_type_of(route)));
  }
  Call call{.route = &route, .id = std::move(match.id), .principal = *principal};
  call.priority = class_of(route, call.principal->tier);
  return accept(std::move(call), head);
}

api::Parsed<PrincipalPtr> Router::enter(const Route& route, const http::RequestHead& head,
                                        const std::string& peer) {
  PrincipalPtr who =
      route.auth == Auth::kNone ? anonymous_ : context_.keys.authenticate(credential_of(head));
  const Audit::RequestLine call{head.method, head.path, peer};
  const bool is_admin_call = route.auth == Auth::kAdmin;
  if (who == nullptr || (is_admin_call && who->is_anonymous())) {
    audit_.refused(401, call, "");
    return api::unauthorized();
  }
  if (is_admin_call && !who->admin) {
    audit_.refused(403, call, who->key_id);
    return api::forbidden("This needs a key with the admin right.");
  }
  if (is_admin_call) audit_.admin_call(call, *who);
  if (route.auth != Auth::kNone && context_.knows_keys_no_more()) {
    return api::storage_failed(unavailable("the store is away"));
  }
  if (context_.draining && route.begins_work) {
    context_.metrics.on_rejected("", Rejection::kDraining);
    return api::draining(kRetryAfterDrainS);
  }
  return who;
}

std::variant<http::Accepted, http::Response> Router::probe(const http::RequestHead& head,
                                                           const std::string& peer) {
  if (const auto error = probe_guard_.check(head, false)) {
    audit_.refused(error->status, {head.method, head.path, peer}, "");
    return error_response(dialect_of(head.path), *error);
  }
  const RouteMatch match = match_route(head.method, head.path);
  if (match.route == nullptr || !match.route->is_probe) {
    return error_response(dialect_of(head.path), api::not_found());
  }
  return accept({.route = match.route, .id = {}, .principal = anonymous_}, head);
}

http::Accepted Router::accept(Call call, const http::RequestHead& head) {
  const Route& route = *call.route;
  if (route.open_sink != nullptr) {
    call.request.head = head;
    call.sink = route.open_sink(context_, call);
  }
  http::Accepted accepted;
  accepted.priority = call.priority;
  accepted.account = call.principal->key_id;
  accepted.body_limit_bytes = route.body_limit_bytes;
  accepted.sink = call.sink;
  accepted.is_quick = route.is_quick;
  accepted.caller = call.principal->key_id;
  if (route.is_page) {
    for (const auto& [name, value] : kPageHeaders) {
      accepted.headers.push_back({std::string(name), std::string(value)});
    }
  }
  accepted.handler = [&context = context_, call = std::move(call)](
                         http::Request request, const http::Responder& responder) mutable {
    call.request = std::move(request);
    call.route->endpoint(context, call, responder);
  };
  return accepted;
}

void Router::answered(const http::Answered& answer) {
  context_.metrics.on_answer(match_route(answer.method, answer.path).route, answer.status);
  // Whoever was not admitted has a line already.
  if (!answer.caller || (answer.status != 401 && answer.status != 403)) return;
  audit_.refused(answer.status, {answer.method, answer.path, answer.peer}, *answer.caller);
}

http::Response Router::refusal(int status, std::string_view message, std::string_view path) {
  return error_response(dialect_of(path), {.status = status,
                                           .message = std::string(message),
                                           .code = status == 503 ? "overloaded" : ""});
}

}  // namespace skein
