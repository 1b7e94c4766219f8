// A server without keys, and who may use it: programs and its own pages, not the pages of others.
#include <gtest/gtest.h>

#include "server/live_server.h"
#include "server/router.h"

namespace skein {
namespace {

using testing::eventually;
using testing::HttpAnswer;
using testing::Json;
using testing::LiveServer;
using testing::RawClient;

std::string path_of(const Route& route) {
  std::string path(route.pattern);
  for (const std::string_view hole : {"{id}", "{path}"}) {
    if (const size_t at = path.find(hole); at != std::string::npos) {
      path.replace(at, hole.size(), "none");
    }
  }
  return path;
}

class OpenServerTest : public ::testing::Test {
 protected:
  HttpAnswer ask(std::string_view method, std::string_view path, std::string_view fields,
                 std::string_view body = "", std::string_view host = "localhost") {
    RawClient client(live_.server().port());
    std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n{}", method, path, host, fields);
    if (!body.empty()) text += fmt::format("Content-Length: {}\r\n", body.size());
    client.send(text.append("\r\n").append(body));
    return LiveServer::read(client);
  }
  HttpAnswer ask_json(const Route& route, std::string_view fields,
                      std::string_view host = "localhost") {
    const bool has_body = route.body_limit_bytes > 0 && route.open_sink == nullptr;
    return ask(route.method, path_of(route),
               fmt::format("{}{}", has_body ? "Content-Type: application/json\r\n" : "", fields),
               has_body ? "{}" : "", host);
  }

  LiveServer live_;
};

TEST_F(OpenServerTest, NoRouteIsServedToAForeignHostOrOrigin) {
  live_.start();
  for (const Route& route : routes()) {
    SCOPED_TRACE(fmt::format("{} {}", route.method, route.pattern));
    const HttpAnswer own = ask_json(route, "");
    EXPECT_NE(own.status, 403);
    const HttpAnswer page = ask_json(route,
                                     "Origin: http://localhost:8080\r\n"
                                     "Sec-Fetch-Site: same-origin\r\n",
                                     "localhost:8080");
    EXPECT_EQ(page.status, own.status) << "a page of its own notices nothing";
    const auto expect_refused = [&](const HttpAnswer& answer) {
      EXPECT_EQ(answer.status, 403);
      if (route.dialect == api::Dialect::kOpenAi) {
        EXPECT_EQ(answer.error_code(), "\"forbidden_origin\"");
      } else {
        EXPECT_EQ(answer.json["error"]["type"], "permission_error");
        EXPECT_NE(answer.text.find("forbidden_origin"), std::string::npos) << answer.text;
      }
    };
    expect_refused(ask_json(route, "", "rebind.evil.example:8080"));
    expect_refused(ask_json(route, "Origin: https://evil.example\r\n"));
    expect_refused(ask_json(route, "Sec-Fetch-Site: cross-site\r\n"));
    expect_refused(ask_json(route, "Sec-Fetch-Site: same-site\r\n"));
    expect_refused(ask(route.method, fmt::format("http://evil.example{}", path_of(route)), ""));
  }
  EXPECT_EQ(ask("GET", "/nothing", "", "", "evil.example").status, 403);
  EXPECT_EQ(ask("GET", "/nothing", "").status, 404);
}

TEST_F(OpenServerTest, BodiesHaveTheTypeOfTheirRoute) {
  live_.start();
  const std::string body = R"({"prompt":"a","max_tokens":1})";
  const auto status = [&](std::string_view type) {
    return ask("POST", "/v1/completions", type, body).status;
  };
  EXPECT_EQ(status("Content-Type: application/json\r\n"), 200);
  EXPECT_EQ(status("Content-Type: Application/JSON; charset=utf-8\r\n"), 200);
  EXPECT_EQ(status("Content-Type: text/plain\r\n"), 415);
  EXPECT_EQ(status("Content-Type: application/json\r\nContent-Type: text/plain\r\n"), 415);
  EXPECT_EQ(status("Content-Type: text/plain\r\nContent-Type: application/json\r\n"), 415);
  EXPECT_EQ(status("Content-Type: application/x-www-form-urlencoded\r\n"), 415);
  EXPECT_EQ(status("Content-Type: multipart/form-data; boundary=X\r\n"), 415);
  EXPECT_EQ(status(""), 415);
  for (const Route& route : routes()) {
    if (route.method != "POST" || route.auth == Auth::kAdmin) continue;
    SCOPED_TRACE(route.pattern);
    EXPECT_EQ(ask("POST", path_of(route), "Content-Type: text/plain\r\n", "{}").status, 415);
    EXPECT_EQ(ask("POST", path_of(route), "Content-Type: text/plain\r\n").status, 415);
    EXPECT_NE(ask("POST", path_of(route), "").status, 415) << "no body has no type";
  }
  EXPECT_EQ(live_.upload("{}").status, 200);
}

TEST_F(OpenServerTest, PagesOfListedOriginsMayAskAndAreToldSo) {
  live_.settings.http.cors_origins = {"https://Good.Example"};  // as an operator may write it
  live_.start();
  const auto preflight = [&](std::string_view origin) {
    return ask("OPTIONS", "/v1/completions",
               fmt::format("Origin: {}\r\nAccess-Control-Request-Method: POST\r\n"
                           "Access-Control-Request-Headers: content-type\r\n"
                           "Sec-Fetch-Site: cross-site\r\n",
                           origin));
  };
  const HttpAnswer allowed = preflight("https://good.example");
  EXPECT_EQ(allowed.status, 204);
  EXPECT_NE(allowed.head.find("Access-Control-Allow-Origin: https://good.example"),
            std::string::npos);
  EXPECT_EQ(preflight("https://evil.example").status, 403);
  EXPECT_EQ(
      ask("GET", "/v1/models", "Origin: https://good.example\r\nSec-Fetch-Site: cross-site\r\n")
          .status,
      200);
}

TEST_F(OpenServerTest, MoreNamesAreGivenByTheOperator) {
  live_.settings.allow_hosts = {"llm.example.org"};
  live_.settings.insecure_open = true;
  live_.start();
  EXPECT_EQ(ask("GET", "/v1/models", "", "", "LLM.example.org:8080").status, 200);
  EXPECT_EQ(ask("GET", "/v1/models", "", "", "10.0.0.7:8080").status, 200);
  EXPECT_EQ(ask("GET", "/v1/models", "", "", "evil.example").status, 403);
}

// With a key it is the key that decides, and names do not matter.
TEST_F(OpenServerTest, TheFirstKeyEndsTheRule) {
  live_.start();
  EXPECT_EQ(ask("GET", "/v1/models", "", "", "llm.example.org").status, 403);
  const std::string key = live_.add_key("first");
  EXPECT_TRUE(
      eventually([&] { return ask("GET", "/v1/models", "", "", "llm.example.org").status == 401; },
                 std::chrono::seconds(10)));
  const std::string fields = fmt::format(
      "Authorization: Bearer {}\r\nOrigin: https://any.example\r\nContent-Type: text/plain\r\n",
      key);
  EXPECT_EQ(
      ask("POST", "/v1/completions", fields, R"({"prompt":"a","max_tokens":1})", "llm.example.org")
          .status,
      200);
}

}  // namespace
}  // namespace skein
