#include "server/router.h"

#include <gtest/gtest.h>
#include <set>

#include "server/answer/answer_world.h"
#include "server/auth/api_key.h"

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

// A router whose server has two keys: a HIGH one, and an admin's.
class KeyedRouter {
 public:
  KeyedRouter() : router_(*world_.context, OriginGuard({}), OriginGuard({})) {
    world_.context->keys.replace({key("0000000000000001", false), key("0000000000000002", true)});
  }
  // What is refused with; status 0: it is admitted.
  http::Response refused(const http::RequestHead& head) {
    auto admission = router_.admit(head, "127.0.0.1");
    const auto* response = std::get_if<http::Response>(&admission);
    return response == nullptr ? http::Response{.status = 0} : *response;
  }
  Router& operator*() { return router_; }
  testing::AnswerWorld& world() { return world_; }

  const std::string user = key_text("0000000000000001", kSecret);
  const std::string admin = key_text("0000000000000002", kSecret);

 private:
  static constexpr const char* kSecret =
      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  static KeyRecord key(std::string id, bool admin) {
    const KeyDigest digest = digest_secret(kSecret);
    KeyRecord record{.id = std::move(id), .name = admin ? "admin" : "user", .models = {}};
    record.tier = Priority::HIGH;
    record.admin = admin;
    record.salt = digest.salt;
    record.digest = digest.digest;
    return record;
  }

  testing::AnswerWorld world_;
  Router router_;
};

http::RequestHead head_of(std::string_view method, std::string_view path,
                          std::vector<http::Header> headers = {}) {
  http::RequestHead head;
  head.method = method;
  head.path = path;
  head.headers = std::move(headers);
  return head;
}

TEST(Routes, EveryRouteIsFoundByItsOwnPath) {
  for (const Route& route : routes()) {
    const RouteMatch match = match_route(route.method, example(route.pattern));
    EXPECT_EQ(match.route, &route) << route.method << " " << route.pattern;
  }
}

TEST(Routes, TheTableSaysWhatItMust) {
  const std::set<std::string_view> open = {"/", "/web/{id}", "/health", "/livez", "/version"};
  for (const Route& route : routes()) {
    SCOPED_TRACE(route.pattern);
    EXPECT_EQ(route.auth == Auth::kNone, open.count(route.pattern) > 0);
    EXPECT_EQ(route.auth == Auth::kAdmin, route.pattern.starts_with("/admin/"));
    const bool low = route.pattern.starts_with("/v1/batch/") || route.pattern == "/v1/batches" ||
                     route.pattern.starts_with("/v1/batches/");
    EXPECT_EQ(class_of(route, Priority::HIGH), low ? Priority::LOW : Priority::HIGH);
    EXPECT_EQ(route.dialect, dialect_of(route.pattern));
    const bool is_upload = route.open_sink != nullptr;
    EXPECT_EQ(is_upload, route.body_limit_bytes == kUploadBytes);
    EXPECT_LE(route.body_limit_bytes, is_upload ? kUploadBytes : kJsonBodyBytes);
    EXPECT_TRUE(route.method == "POST" || !route.begins_work);
  }
}

TEST(Routes, WithoutAKeyEveryRouteButFiveIs401) {
  KeyedRouter router;
  size_t refused_count = 0;
  for (const Route& route : routes()) {
    SCOPED_TRACE(route.pattern);
    const http::Response response = router.refused(head_of(route.method, example(route.pattern)));
    if (route.auth == Auth::kNone) {
      EXPECT_EQ(response.status, 0);
      continue;
    }
    EXPECT_EQ(response.status, 401);
    ASSERT_FALSE(response.headers.empty());
    EXPECT_EQ(response.headers[0].name, "WWW-Authenticate");
    EXPECT_EQ(response.body.starts_with("{\"type\":\"error\""),
              route.dialect == api::Dialect::kAnthropic);
    ++refused_count;
  }
  EXPECT_EQ(refused_count, routes().size() - 5);
}

TEST(Routes, KeysComeInEitherField) {
  KeyedRouter router;
  const auto status = [&](std::vector<http::Header> headers) {
    return router.refused(head_of("GET", "/admin/stats", std::move(headers))).status;
  };
  EXPECT_EQ(status({}), 401);
  EXPECT_EQ(status({{"x-api-key", router.user}}), 403);
  EXPECT_EQ(status({{"x-api-key", router.admin}}), 0);
  EXPECT_EQ(status({{"authorization", "Bearer " + router.admin}}), 0);
  EXPECT_EQ(status({{"authorization", "bearer  " + router.admin + " "}}), 0);
  EXPECT_EQ(status({{"authorization", "Basic " + router.admin}}), 401);
  EXPECT_EQ(status({{"authorization", router.admin}}), 401);
}

TEST(Routes, WhatIsNotInTheTableDoesNotExist) {
  for (const char* path : {"",
                           "/web",
                           "/web/",
                           "/web/a/b",
                           "/index.html",
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
  EXPECT_EQ(match_route("GET", "/v1/files/f1/content").route->pattern, "/v1/files/{id}/content");
  EXPECT_EQ(match_route("POST", "/v1/batches/b1/cancel").id, "b1");
}

TEST(Routes, MethodsThatAPathDoesNotHave) {
  KeyedRouter router;
  const http::Response wrong = router.refused(head_of("PUT", "/v1/messages"));
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.back().value, "POST, OPTIONS");
  EXPECT_TRUE(wrong.body.starts_with("{\"type\":\"error\",\"error\":")) << wrong.body;
  EXPECT_EQ(match_route("PATCH", "/v1/files").allow, "POST, GET, HEAD, OPTIONS");
  EXPECT_EQ(match_route("HEAD", "/health").route->pattern, "/health");
  EXPECT_EQ(router.refused(head_of("OPTIONS", "/v1/models")).status, 204);
  EXPECT_EQ(router.refused(head_of("OPTIONS", "/nothing")).status, 404);
  const http::Response unknown = router.refused(head_of("GET", "/nothing"));
  EXPECT_EQ(unknown.body,
            R"({"error":{"message":"There is nothing at this URL.","type":"invalid_request_error",)"
            R"("param":null,"code":"not_found"}})");
}

TEST(Routes, TheRouteAndTheKeySayHowUrgentARequestIs) {
  KeyedRouter router;
  for (const char* path : {"/v1/chat/completions", "/v1/batch/chat/completions"}) {
    auto admission = (*router).admit(head_of("POST", path, {{"x-api-key", router.user}}), "");
    const auto* accepted = std::get_if<http::Accepted>(&admission);
    ASSERT_NE(accepted, nullptr) << path;
    const bool is_batch = std::string_view(path).starts_with("/v1/batch/");
    EXPECT_EQ(accepted->priority, is_batch ? Priority::LOW : Priority::HIGH);
    EXPECT_EQ(accepted->account, "0000000000000001");
    EXPECT_EQ(accepted->body_limit_bytes, kJsonBodyBytes);
    EXPECT_FALSE(accepted->is_quick);
  }
}

TEST(Routes, NewWorkIsRefusedWhileTheServerDrains) {
  KeyedRouter router;
  router.world().draining = true;
  const std::set<std::string> begin_work = {"POST /v1/chat/completions",
                                            "POST /v1/batch/chat/completions",
                                            "POST /v1/completions",
                                            "POST /v1/batch/completions",
                                            "POST /v1/messages",
                                            "POST /v1/responses",
                                            "POST /v1/embeddings",
                                            "POST /v1/rerank",
                                            "POST /v1/files",
                                            "POST /v1/batches",
                                            "POST /admin/models/load"};
  for (const Route& route : routes()) {
    const std::string name = std::string(route.method).append(" ").append(route.pattern);
    const http::Response response = router.refused(
        head_of(route.method, example(route.pattern), {{"x-api-key", router.admin}}));
    EXPECT_EQ(response.status, begin_work.count(name) > 0 ? 503 : 0) << name;
  }
}

}  // namespace
}  // namespace skein
