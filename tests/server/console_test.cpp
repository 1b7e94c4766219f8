// The console's page and its parts: what they are sent with, and what must not be in them.
#include <gtest/gtest.h>

#include "server/console_files.h"
#include "server/live_server.h"

namespace skein::testing {
namespace {

TEST(Console, ThePageIsServedWithAStrictPolicy) {
  LiveServer live;
  live.start();
  const HttpAnswer page = live.get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.text.find("<nav"), std::string::npos);
  for (const char* field :
       {"Content-Type: text/html; charset=utf-8\r\n",
        "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
        "connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
        "form-action 'none'\r\n",
        "X-Content-Type-Options: nosniff\r\n", "Referrer-Policy: no-referrer\r\n",
        "Cross-Origin-Resource-Policy: same-origin\r\n", "Cache-Control: no-cache\r\n"}) {
    EXPECT_NE(page.head.find(field), std::string::npos) << field << page.head;
  }
  EXPECT_EQ(live.get("/web/nothing.js").status, 404);
  EXPECT_NE(live.get("/web/nothing.js").head.find("default-src 'none'"), std::string::npos);
}

TEST(Console, EveryPartIsServedAndKnownAgain) {
  LiveServer live;
  live.start();
  ASSERT_GT(console_files().size(), 5U);
  for (const ConsoleFile& file : console_files()) {
    SCOPED_TRACE(file.name);
    const std::string path = "/web/" + std::string(file.name);
    const HttpAnswer whole = live.get(path);
    EXPECT_EQ(whole.status, 200);
    EXPECT_EQ(whole.text, file.bytes);
    RawClient client = live.client();
    client.send(get(path, fmt::format("If-None-Match: W/\"other\", {}\r\n", file.etag)));
    const RawClient::Answer known = client.read_answer();
    EXPECT_EQ(known.status, 304);
    EXPECT_EQ(known.head.find("Content-Length"), std::string::npos);
    // The connection goes on behind an answer without a body.
    client.send(get("/livez"));
    EXPECT_EQ(client.read_answer().status, 200);
  }
}

TEST(Console, TheWholePageIsSmallAndMakesNoHtmlOfTexts) {
  size_t bytes = 0;
  for (const ConsoleFile& file : console_files()) {
    bytes += file.bytes.size();
    for (const char* forbidden : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
                                  "eval(", "new Function", "DOMParser", "srcdoc"}) {
      EXPECT_EQ(file.bytes.find(forbidden), std::string_view::npos)
          << file.name << ": " << forbidden;
    }
    if (file.name.ends_with(".css") || file.name.ends_with(".html")) {
      EXPECT_EQ(file.bytes.find("//"), std::string_view::npos) << file.name;
    }
  }
  EXPECT_LT(bytes, 300'000U);
}

// A link on another site may lead here; its page may not use what is here.
TEST(Console, OtherSitesMayLinkToThePageAndNoMore) {
  LiveServer live;
  live.start();
  const auto status = [&](std::string_view path, std::string_view fields) {
    RawClient client = live.client();
    client.send(get(path, fields));
    return client.read_answer().status;
  };
  EXPECT_EQ(status("/", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n"), 200);
  EXPECT_EQ(status("/web/app.js", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n"),
            403);
  EXPECT_EQ(status("/v1/live", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n"), 403);
}

TEST(Console, ThePageNeedsNoKeyAndItsDataDoes) {
  LiveServer live;
  live.add_key("a");
  live.start();
  EXPECT_EQ(live.get("/").status, 200);
  EXPECT_EQ(live.get("/web/app.css").status, 200);
  EXPECT_EQ(live.get("/v1/live").status, 401);
  EXPECT_EQ(live.get("/v1/requests").status, 401);
}

}  // namespace
}  // namespace skein::testing
