#include "server/routes.h"

#include <gtest/gtest.h>
#include <set>

#include "server/http/exchange.h"
#include "server/router.h"

namespace skein {
namespace {

// A path for a pattern.
std::string example(std::string_view pattern) {
  std::string path(pattern);
  for (const std::string_view hole : {"{id}", "{path}"}) {
    if (const size_t at = path.find(hole); at != std::string::npos)
      path.replace(at, hole.size(), "x");
  }
  return path;
}

class KeyGate : public Gate {
 public:
  bool is_open() const override { return false; }
  std::optional<api::Error> screen(const Route*, const http::RequestHead&,
                                   const std::string&) override {
    return std::nullopt;
  }
  std::optional<api::Error> screen_probe(const http::RequestHead& head) override {
    return screen(nullptr, head, "");
  }
  api::Parsed<PrincipalPtr> enter(const Route& route, const http::RequestHead& head,
                                  const std::string&) override {
    const std::string_view credential = credential_of(head);
    auto principal = std::make_shared<Principal>();
    principal->tier = Priority::HIGH;
    principal->admin = credential == "admin";
    if (route.auth == Auth::kNone) return PrincipalPtr(principal);
    if (credential.empty()) return api::unauthorized();
    if (route.auth == Auth::kAdmin && !principal->admin) return api::forbidden("no");
    return PrincipalPtr(principal);
  }
  void answered(const Route*, const http::Answered&) override {}
};

http::RequestHead head_of(std::string_view method, std::string_view path,
                          std::vector<http::Header> headers = {}) {
  http::RequestHead head;
  head.method = method;
  head.path = path;
  head.headers = std::move(headers);
  return head;
}

http::Response refused(Router& router, const http::RequestHead& head) {
  auto admission = router.admit(head, "127.0.0.1");
  const auto* response = std::get_if<http::Response>(&admission);
  return response == nullptr ? http::Response{.status = 0} : *response;
}

TEST(Routes, EveryRouteIsFoundByItsOwnPath) {
  for (const Route& route : routes()) {
    const RouteMatch match = match_route(route.method, example(route.pattern));
    EXPECT_EQ(match.route, &route) << route.method << " " << route.pattern;
  }
}

TEST(Routes, TheTableSaysWhatItMust) {
  const std::set<std::string_view> open = {"/health", "/livez", "/version"};
  for (const Route& route : routes()) {
    SCOPED_TRACE(route.pattern);
    EXPECT_EQ(route.auth == Auth::kNone, open.count(route.pattern) > 0);
    EXPECT_EQ(route.auth == Auth::kAdmin, route.pattern.starts_with("/admin/"));
    const bool low = route.pattern.starts_with("/v1/batch/") || route.pattern == "/v1/batches" ||
                     route.pattern.starts_with("/v1/batches/");
    EXPECT_EQ(class_of(route, Priority::HIGH), low ? Priority::LOW : Priority::HIGH);
    EXPECT_EQ(route.dialect, dialect_of(route.pattern));
    EXPECT_EQ(route.upload, route.body_limit_bytes == kUploadBytes);
    EXPECT_LE(route.body_limit_bytes, route.upload ? kUploadBytes : kJsonBodyBytes);
  }
}

TEST(Routes, WithoutAKeyEveryRouteButThreeIs401) {
  KeyGate gate;
  Router router(gate);
  size_t refused_count = 0;
  for (const Route& route : routes()) {
    SCOPED_TRACE(route.pattern);
    const http::Response response = refused(router, head_of(route.method, example(route.pattern)));
    if (route.auth == Auth::kNone) {
      EXPECT_EQ(response.status, 501) << "open, and not bound";
      continue;
    }
    EXPECT_EQ(response.status, 401);
    ASSERT_FALSE(response.headers.empty());
    EXPECT_EQ(response.headers[0].name, "WWW-Authenticate");
    EXPECT_EQ(response.body.starts_with("{\"type\":\"error\""),
              route.dialect == api::Dialect::kAnthropic);
    ++refused_count;
  }
  EXPECT_EQ(refused_count, routes().size() - 3);
}

TEST(Routes, KeysComeInEitherField) {
  KeyGate gate;
  Router router(gate);
  const auto status = [&](std::vector<http::Header> headers) {
    return refused(router, head_of("GET", "/admin/stats", std::move(headers))).status;
  };
  EXPECT_EQ(status({}), 401);
  EXPECT_EQ(status({{"x-api-key", "user"}}), 403);
  EXPECT_EQ(status({{"x-api-key", "admin"}}), 501);
  EXPECT_EQ(status({{"authorization", "Bearer admin"}}), 501);
  EXPECT_EQ(status({{"authorization", "bearer  admin "}}), 501);
  EXPECT_EQ(status({{"authorization", "Basic admin"}}), 401);
  EXPECT_EQ(status({{"authorization", "admin"}}), 401);
}

TEST(Routes, WhatIsNotInTheTableDoesNotExist) {
  for (const char* path : {"/",
                           "",
                           "*",
                           "/v1",
                           "/v1/batchx",
                           "/v1/batch",
                           "/v1/batch/",
                           "/v1/batch/models",
                           "/v1/batchesx",
                           "/v1/batches/",
                           "/v1/batches/a/b",
                           "/v1/batches//cancel",
                           "/v1/models/",
                           "/v1/chat/completions/",
                           "/v1//chat/completions",
                           "/v1/%63hat/completions",
                           "/V1/models",
                           "/v1/files/x/content/y",
                           "/admin",
                           "/admin/",
                           "/healthz",
                           "/health/",
                           "/v1/messagesx",
                           "/v1/files/%zz",
                           "/v1/chat/completions%00"}) {
    const RouteMatch match = match_route("GET", path);
    EXPECT_EQ(match.route, nullptr) << path;
    EXPECT_EQ(match.allow, path == std::string_view("/v1/batches/x") ? "GET" : "") << path;
  }
}

TEST(Routes, IdsMayHaveSlashesWhereTheyAreNames) {
  EXPECT_EQ(match_route("GET", "/v1/models/org/name").id, "org/name");
  EXPECT_EQ(match_route("GET", "/v1/models/org%2Fname%20x").id, "org/name x");
  EXPECT_EQ(match_route("GET", "/v1/files/a%2Fb").id, "a/b");
  EXPECT_EQ(match_route("GET", "/v1/files/f1/content").route->endpoint, Endpoint::kFileContent);
  EXPECT_EQ(match_route("POST", "/v1/batches/b1/cancel").id, "b1");
}

TEST(Routes, MethodsThatAPathDoesNotHave) {
  KeyGate gate;
  Router router(gate);
  const http::Response wrong = refused(router, head_of("PUT", "/v1/messages"));
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.back().value, "POST, OPTIONS");
  EXPECT_TRUE(wrong.body.starts_with("{\"type\":\"error\",\"error\":")) << wrong.body;
  EXPECT_EQ(match_route("PATCH", "/v1/files").allow, "POST, GET, HEAD, OPTIONS");
  EXPECT_EQ(match_route("HEAD", "/health").route->endpoint, Endpoint::kHealth);
  EXPECT_EQ(refused(router, head_of("OPTIONS", "/v1/models")).status, 204);
  EXPECT_EQ(refused(router, head_of("OPTIONS", "/nothing")).status, 404);
  const http::Response unknown = refused(router, head_of("GET", "/nothing"));
  EXPECT_EQ(unknown.body,
            R"({"error":{"message":"There is nothing at this URL.","type":"invalid_request_error",)"
            R"("param":null,"code":"not_found"}})");
}

TEST(Routes, ACallCarriesWhoAndHowUrgent) {
  KeyGate gate;
  Router router(gate);
  int calls = 0;
  router.bind(Endpoint::kChatCompletions, [&](Call call, const http::Responder&) {
    ++calls;
    EXPECT_EQ(call.priority,
              call.route->pattern.starts_with("/v1/batch/") ? Priority::LOW : Priority::HIGH);
    EXPECT_EQ(call.request.body, "{}");
  });
  for (const char* path : {"/v1/chat/completions", "/v1/batch/chat/completions"}) {
    auto admission = router.admit(head_of("POST", path, {{"x-api-key", "k"}}), "");
    auto* accepted = std::get_if<http::Accepted>(&admission);
    ASSERT_NE(accepted, nullptr) << path;
    EXPECT_EQ(accepted->body_limit_bytes, kJsonBodyBytes);
    ByteBudget memory;
    const auto wakeups = std::make_shared<http::Wakeups>([] {});
    http::Request request;
    request.body = "{}";
    accepted->handler(std::move(request),
                      http::Responder(std::make_shared<http::Exchange>(wakeups, 1, memory, "")));
    wakeups->close();  // no I/O thread will take what was pushed
  }
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace skein
