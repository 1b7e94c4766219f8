#include "server/router.h"

#include <utility>

#include "base/check.h"
#include "server/origin_guard.h"

namespace skein {
namespace {

std::string_view media_type_of(const Route& route) {
  return route.upload ? "multipart/form-data" : "application/json";
}

// A page of another site can send the types of a form without asking first, and these alone.
bool has_right_type(const Route& route, const http::RequestHead& head) {
  const std::string* type = head.header("content-type");
  const bool has_body = head.framing == http::Framing::kChunked || head.content_length > 0;
  if (route.body_limit_bytes == 0 || (!has_body && type == nullptr)) return true;
  return type != nullptr && is_media_type(*type, media_type_of(route));
}

}  // namespace

http::Response error_response(api::Dialect dialect, const api::Error& error) {
  http::Response response{.status = error.status, .body = api::error_body(dialect, error)};
  if (error.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  if (error.retry_after_s) {
    response.headers.push_back({"Retry-After", std::to_string(*error.retry_after_s)});
  }
  return response;
}

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

void Router::bind(Endpoint endpoint, EndpointFunction function) {
  Binding& binding = bindings_[static_cast<size_t>(endpoint)];
  SKEIN_CHECK(!binding.function, "endpoint {} is bound twice", static_cast<int>(endpoint));
  binding.function = std::move(function);
}

void Router::bind_quick(Endpoint endpoint, EndpointFunction function) {
  bind(endpoint, std::move(function));
  bindings_[static_cast<size_t>(endpoint)].is_quick = true;
}

void Router::bind_upload(Endpoint endpoint, SinkFunction sink, EndpointFunction function) {
  bind(endpoint, std::move(function));
  bindings_[static_cast<size_t>(endpoint)].sink = std::move(sink);
}

std::optional<http::Response> Router::screen(const http::RequestHead& head,
                                             const std::string& peer) {
  if (!gate_.is_open()) return std::nullopt;
  auto error = gate_.screen(match_route(head.method, head.path).route, head, peer);
  if (!error) return std::nullopt;
  return error_response(dialect_of(head.path), *error);
}

std::variant<http::Accepted, http::Response> Router::admit(const http::RequestHead& head,
                                                           const std::string& peer) {
  RouteMatch match = match_route(head.method, head.path);
  if (match.route == nullptr) {
    const bool known = !match.allow.empty() || head.path == "*";
    if (known && head.method == "OPTIONS") {
      return http::Response{.status = 204, .headers = {{"Allow", std::move(match.allow)}}};
    }
    if (match.allow.empty()) return error_response(dialect_of(head.path), api::not_found());
    http::Response response = error_response(dialect_of(head.path), api::method_not_allowed());
    response.headers.push_back({"Allow", std::move(match.allow)});
    return response;
  }
  const Route& route = *match.route;
  auto principal = gate_.enter(route, head, peer);
  if (!principal.ok()) return error_response(route.dialect, principal.error());
  if (gate_.is_open() && !has_right_type(route, head)) {
    return error_response(route.dialect, api::unsupported_media_type(media_type_of(route)));
  }
  Call call{.route = &route, .id = std::move(match.id), .principal = *principal};
  call.priority = class_of(route, call.principal->tier);
  return accept(std::move(call), head);
}

std::variant<http::Accepted, http::Response> Router::probe(const http::RequestHead& head) {
  if (auto error = gate_.screen_probe(head)) return error_response(dialect_of(head.path), *error);
  const RouteMatch match = match_route(head.method, head.path);
  if (match.route == nullptr || !match.route->is_probe) {
    return error_response(dialect_of(head.path), api::not_found());
  }
  Call call{.route = match.route, .id = {}, .principal = std::make_shared<const Principal>()};
  return accept(std::move(call), head);
}

std::variant<http::Accepted, http::Response> Router::accept(Call call,
                                                            const http::RequestHead& head) {
  const Route& route = *call.route;
  const Binding& binding = bindings_[static_cast<size_t>(route.endpoint)];
  if (!binding.function) {
    return error_response(route.dialect, api::not_supported("This endpoint"));
  }
  if (route.upload && binding.sink) {
    call.request.head = head;
    call.sink = binding.sink(call);
  }
  http::Accepted accepted;
  accepted.priority = call.priority;
  accepted.account = call.principal->key_id;
  accepted.body_limit_bytes = route.body_limit_bytes;
  accepted.sink = call.sink;
  accepted.is_quick = binding.is_quick;
  accepted.caller = call.principal->key_id;
  if (route.is_page) {
    accepted.headers.push_back({"Content-Security-Policy", "frame-ancestors 'none'"});
  }
  accepted.handler = [&binding, call = std::move(call)](http::Request request,
                                                        const http::Responder& responder) mutable {
    call.request = std::move(request);
    binding.function(std::move(call), responder);
  };
  return accepted;
}

void Router::answered(const http::Answered& answer) {
  gate_.answered(match_route(answer.method, answer.path).route, answer);
}

http::Response Router::refusal(int status, std::string_view message, std::string_view path) {
  return error_response(dialect_of(path), {.status = status,
                                           .message = std::string(message),
                                           .code = status == 503 ? "overloaded" : ""});
}

}  // namespace skein
