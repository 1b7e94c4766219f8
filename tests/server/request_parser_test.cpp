#include "server/http/request_parser.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace skein::http {
namespace {

// The status that a head gets; 0: it is taken.
int status_of(std::string_view bytes) {
  HeadParser parser({});
  size_t consumed = 0;
  const ParseState state = parser.advance(bytes, consumed);
  EXPECT_NE(state, ParseState::kNeedMore) << bytes;
  return state == ParseState::kFailed ? parser.fault().status : 0;
}

std::string with(std::string_view fields) {
  return fmt::format("POST /x HTTP/1.1\r\nHost: x\r\n{}\r\n", fields);
}

TEST(HeadParser, Taken) {
  for (const char* bytes :
       {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.0\r\nhost:\r\n\r\n",
        "\r\n\r\nGET /a%20b?c=%zz HTTP/1.1\r\nHost: example.org:8080\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
        "GET HTTPS://Example.org/a?b HTTP/1.1\r\nHost: x\r\nA:\t b\xc3\xa9 \t\r\n\r\n",
        "WHATEVER / HTTP/1.1\r\nHost: x\r\n\r\n"}) {
    EXPECT_EQ(status_of(bytes), 0) << bytes;
  }
}

TEST(HeadParser, Refused) {
  for (const char* bytes : {"GET / HTTP/1.1\r\n\r\n",
                            "GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
                            "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
                            "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n",
                            "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
                            "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
                            "GET / HTTP/1.1\r\nHost: a:b\r\n\r\n",
                            "GET / HTTP/1.1\r\nHost: [x\r\n\r\n",
                            "GET / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n",
                            "GET / HTTP/1.1\r\nHost: x\r\nA\r\n\r\n",
                            "GET / HTTP/1.1\r\nHost: x\r\n b\r\n\r\n",
                            "GET / HTTP/1.1\r\nHost: x\n\r\n",
                            "GET / HTTP/1.1\nHost: x\r\n\r\n",
                            "\nGET / HTTP/1.1\r\n",
                            "\rGET",
                            " GET /",
                            "\x16\x03\x01",
                            "GET  / HTTP/1.1\r\n",
                            "GET /  HTTP/1.1\r\n",
                            "GET / HTTP/1.1 \r\n",
                            "GET / HTTP/2.0\r\n",
                            "GET / HTTP/1.2\r\n",
                            "GET / http/1.1\r\n",
                            "GET /\x01 ",
                            "GET /\xc3\xa9 ",
                            "GET /#f ",
                            "GET x HTTP/1.1\r\nHost: x\r\n\r\n",
                            "GET * HTTP/1.1\r\nHost: x\r\n\r\n",
                            "CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n",
                            "GET ftp://a/ HTTP/1.1\r\nHost: x\r\n\r\n",
                            "GET http:///a HTTP/1.1\r\nHost: x\r\n\r\n",
                            "GET http://a@b/ HTTP/1.1\r\nHost: x\r\n\r\n",
                            "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n",
                            "GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n",
                            "GET /%0d HTTP/1.1\r\nHost: x\r\n\r\n",
                            "GET /%4 HTTP/1.1\r\nHost: x\r\n\r\n"}) {
    EXPECT_EQ(status_of(bytes), 400) << bytes;
  }
  EXPECT_EQ(status_of(std::string_view("GET / HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n", 32)), 400);
  EXPECT_EQ(status_of(with("Expect: a-miracle\r\n")), 417);
}

TEST(HeadParser, LengthOfTheBody) {
  for (const char* fields :
       {"Content-Length: 1\r\nContent-Length: 1\r\n", "Content-Length: 1, 1\r\n",
        "Content-Length: +1\r\n", "Content-Length: -1\r\n", "Content-Length: 0x1\r\n",
        "Content-Length: 1 1\r\n", "Content-Length:\r\n",
        "Content-Length: 99999999999999999999\r\n", "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding:\r\n",
        "Transfer-Encoding: \x0b"
        "chunked\r\n",
        "Transfer-Encoding: identity\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"}) {
    EXPECT_EQ(status_of(with(fields)), 400) << fields;
  }
  EXPECT_EQ(status_of(with("Transfer-Encoding: Chunked\r\n")), 0);
  EXPECT_EQ(status_of(with("Content-Length: 007\r\n")), 0);
  EXPECT_EQ(status_of("POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
}

TEST(HeadParser, TheParts) {
  HeadParser parser({});
  size_t consumed = 0;
  const std::string_view bytes =
      "POST /a%2Fb?x=1&y=a%20b HTTP/1.1\r\nHOST: x\r\nConnection: foo, Close\r\n\r\nrest";
  ASSERT_EQ(parser.advance(bytes, consumed), ParseState::kDone);
  EXPECT_EQ(bytes.substr(consumed), "rest");
  const RequestHead& head = parser.head();
  EXPECT_EQ(head.path, "/a%2Fb");
  EXPECT_EQ(head.query_value("y"), "a b");
  EXPECT_FALSE(head.query_value("z"));
  EXPECT_EQ(*head.header("host"), "x");
  EXPECT_FALSE(head.keep_alive);
}

}  // namespace
}  // namespace skein::http
