#include "server/origin_guard.h"

#include <gtest/gtest.h>

namespace skein {
namespace {

using http::Header;

class OriginGuardTest : public ::testing::Test {
 protected:
  static http::RequestHead head_of(std::string host, std::vector<Header> more = {},
                                   std::string method = "POST") {
    http::RequestHead head;
    head.method = std::move(method);
    head.headers = {{"host", std::move(host)}};
    head.headers.insert(head.headers.end(), more.begin(), more.end());
    return head;
  }
  // Whether it comes in.
  bool takes(const http::RequestHead& head, bool is_page = false) {
    const auto error = OriginGuard(options_).check(head, is_page);
    if (error) {
      EXPECT_EQ(error->status, 403);
      EXPECT_EQ(error->code, "forbidden_origin");
    }
    return !error;
  }

  OriginGuard::Options options_{{"skein.lan"}, false, {}};
};

TEST_F(OriginGuardTest, OnlyItsOwnNamesAreHosts) {
  for (const char* host : {"localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:1", "[::1]",
                           "[::1]:8080", "[0:0:0:0:0:0:0:1]", "skein.lan", "SKEIN.LAN:80"}) {
    EXPECT_TRUE(takes(head_of(host))) << host;
  }
  for (const char* host :
       {"", ":8080", "evil.example", "evil.example:8080", "localhost.evil.example", "xlocalhost",
        "127.0.0.1.evil.example", "127.0.0.2", "10.0.0.1", "[::2]", "[::1", "skein"}) {
    EXPECT_FALSE(takes(head_of(host))) << host;
  }
}

TEST_F(OriginGuardTest, AnyAddressWhereTheServerIsOpenOnPurpose) {
  options_.any_address = true;
  for (const char* host : {"10.1.2.3", "192.168.0.1:8080", "[fe80::1]:80", "localhost"}) {
    EXPECT_TRUE(takes(head_of(host))) << host;
  }
  for (const char* host : {"evil.example", "10.1.2.3.evil.example", "1.2.3", "0x7f000001"}) {
    EXPECT_FALSE(takes(head_of(host))) << host;
  }
}

TEST_F(OriginGuardTest, ATargetWithAHostCountsAsHost) {
  http::RequestHead head = head_of("localhost:8080");
  head.target_authority = "LOCALHOST:8080";
  EXPECT_TRUE(takes(head));
  head.target_authority = "evil.example:8080";
  EXPECT_FALSE(takes(head));
  head.target_authority = "127.0.0.1:8080";
  EXPECT_FALSE(takes(head)) << "both are ours, but they differ";
  head = head_of("evil.example");
  head.target_authority = "localhost";
  EXPECT_FALSE(takes(head));
}

TEST_F(OriginGuardTest, OriginIsTheServersOwnOrListed) {
  const auto from = [&](const char* origin, const char* host = "localhost:8080") {
    return takes(head_of(host, {{"origin", origin}}));
  };
  EXPECT_TRUE(from("http://localhost:8080"));
  EXPECT_TRUE(from("HTTP://LOCALHOST:8080"));
  EXPECT_TRUE(from("https://localhost:8080")) << "TLS may end before us";
  EXPECT_TRUE(from("http://skein.lan", "skein.lan"));
  EXPECT_TRUE(from("https://skein.lan", "skein.lan:443"));
  EXPECT_TRUE(from("http://[::1]:8080", "[::1]:8080"));
  for (const char* origin : {"http://localhost:3000", "http://localhost", "http://127.0.0.1:8080",
                             "https://evil.example", "null", "", "file://",
                             "chrome-extension://localhost:8080", "http://", "http://["}) {
    EXPECT_FALSE(from(origin)) << origin;
  }
  EXPECT_FALSE(takes(
      head_of("localhost", {{"origin", "http://localhost"}, {"origin", "https://evil.example"}})));
  options_.cors_origins = {"https://good.example"};
  EXPECT_TRUE(from("https://good.example"));
  EXPECT_FALSE(from("https://evil.example"));
  EXPECT_FALSE(takes(head_of("evil.example", {{"origin", "https://good.example"}})));
  options_.cors_origins = {"HTTPS://Good.Example"};
  EXPECT_TRUE(from("https://good.example")) << "as a browser sends it";
  EXPECT_FALSE(from("https://evil.example"));
  options_.cors_origins = {"*"};
  EXPECT_TRUE(from("https://evil.example"));
}

TEST_F(OriginGuardTest, FetchesFromOtherSitesAreForeign) {
  const auto fetched = [&](const char* site, std::vector<Header> more = {}) {
    more.push_back({"sec-fetch-site", site});
    return takes(head_of("localhost", std::move(more)));
  };
  EXPECT_TRUE(fetched("same-origin"));
  EXPECT_TRUE(fetched("none"));
  EXPECT_FALSE(fetched("cross-site"));
  EXPECT_FALSE(fetched("Same-Site"));
  EXPECT_FALSE(fetched("same-origin", {{"sec-fetch-site", "cross-site"}}));
  options_.cors_origins = {"https://good.example"};
  EXPECT_TRUE(fetched("cross-site", {{"origin", "https://good.example"}}));
  EXPECT_FALSE(fetched("cross-site")) << "an image or a script, of nobody knows whose page";
  EXPECT_FALSE(fetched("cross-site", {{"origin", "http://localhost"}}));
}

TEST_F(OriginGuardTest, PagesMayBeOpenedFromAnywhere) {
  const std::vector<Header> link = {{"sec-fetch-site", "cross-site"},
                                    {"sec-fetch-mode", "navigate"}};
  const std::vector<Header> script = {{"sec-fetch-site", "cross-site"},
                                      {"sec-fetch-mode", "no-cors"}};
  EXPECT_TRUE(takes(head_of("localhost", link, "GET"), true));
  EXPECT_FALSE(takes(head_of("localhost", link, "GET"), false));
  EXPECT_FALSE(takes(head_of("localhost", link, "POST"), true)) << "a form";
  EXPECT_FALSE(takes(head_of("localhost", script, "GET"), true));
  EXPECT_FALSE(takes(head_of("evil.example", link, "GET"), true));
}

TEST(MediaType, HasParametersAndAnyCase) {
  EXPECT_TRUE(is_media_type("application/json", "application/json"));
  EXPECT_TRUE(is_media_type("Application/JSON ; charset=utf-8", "application/json"));
  for (const char* other : {"", "text/plain", "application/jsonx", "application/json, text/plain",
                            "text/plain; application/json"}) {
    EXPECT_FALSE(is_media_type(other, "application/json")) << other;
  }
}

}  // namespace
}  // namespace skein
