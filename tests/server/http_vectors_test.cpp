// Every case of vectors/http against a live server: the strict outcome, quickly, and the server is
// healthy afterwards.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <set>
#include <sstream>

#include "server/test_application.h"

namespace skein {
namespace {

using testing::RawClient;
using testing::TestServer;

const std::filesystem::path kVectors = SKEIN_SOURCE_DIR "/../shared/vectors/http";

struct Case {
  std::string name;  // file: heading
  std::string type;  // request, request-lenient-..., request-finish
  std::string bytes;
  std::string log;
};

// The notation of these files: lines end with CRLF, a backslash at the end of a line joins it with
// the next, and there are the escapes of C.
std::string unescaped(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (text[i] == '\n') {
      out += "\r\n";
    } else if (text[i] != '\\') {
      out += text[i];
    } else if (next == '\n') {
      ++i;
    } else if (const size_t at = std::string_view("rntf").find(next); at < 4) {
      out += "\r\n\t\f"[at];
      ++i;
    } else if (next == 'x' || (next >= '0' && next <= '3')) {
      const bool hex = next == 'x';
      const std::string digits = text.substr(i + 1 + hex, hex ? 2 : 3);
      out += static_cast<char>(std::strtoul(digits.c_str(), nullptr, hex ? 16 : 8));
      i += digits.size() + hex;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::vector<Case> read_cases(const std::filesystem::path& file) {
  std::vector<Case> cases;
  std::ifstream in(file);
  std::string heading, type, line, *block = nullptr;
  Case current;
  while (std::getline(in, line)) {
    if (block != nullptr) {
      if (line.starts_with("```")) {
        if (block == &current.log) cases.push_back(current);
        block = nullptr;
      } else {
        *block += line + "\n";
      }
    } else if (line.starts_with("#")) {
      heading = line.substr(line.find_first_not_of("# "));
    } else if (const size_t at = line.find("\"type\":"); at != std::string::npos) {
      const size_t begin = line.find('"', at + 7) + 1;
      type = line.substr(begin, line.find('"', begin) - begin);
    } else if (line.starts_with("```http")) {
      current = {file.stem().string() + ": " + heading, type, "", ""};
      block = &current.bytes;
    } else if (line.starts_with("```log")) {
      block = &current.log;
    }
  }
  for (Case& c : cases) c.bytes = unescaped(c.bytes);
  return cases;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& entry : std::filesystem::directory_iterator(kVectors)) {
    if (entry.path().extension() != ".md") continue;
    for (Case& c : read_cases(entry.path())) cases.push_back(std::move(c));
  }
  return cases;
}

// These parsers do not look at Host, so most cases have none; with one the rest of the head counts.
std::string with_host(const std::string& bytes) {
  std::string lower = bytes;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string out;
  size_t begin = 0;
  // Each request of a pipeline needs its own: they start where a line ends with an HTTP version.
  while (begin < bytes.size()) {
    const size_t end = std::min(bytes.find("\r\n", begin), bytes.size());
    const std::string line = bytes.substr(begin, end - begin);
    out += line;
    const size_t next = std::min(end + 2, bytes.size());
    if (end < bytes.size()) out += "\r\n";
    const bool start_line = line.ends_with(" HTTP/1.1") || line.ends_with(" HTTP/1.0");
    const size_t head_end = std::min(lower.find("\r\n\r\n", end), lower.size());
    const bool has = lower.substr(end, head_end - end).find("\nhost:") != std::string::npos;
    if (start_line && !has && end < bytes.size()) out += "Host: a\r\n";
    begin = next;
  }
  return out;
}

// llhttp's words for a fault; being paused, or done because of `Connection: close`, is none.
bool is_fault(const std::string& log) {
  const size_t at = log.find("error code=");
  if (at == std::string::npos) return false;
  const int code = std::atoi(log.c_str() + at + 11);
  return code != 5 && code != 21 && code != 22;
}

std::vector<int> statuses(const std::string& received) {
  std::vector<int> found;
  for (size_t at = received.find("HTTP/1.1 "); at != std::string::npos;
       at = received.find("HTTP/1.1 ", at + 1)) {
    found.push_back(std::atoi(received.c_str() + at + 9));
  }
  return found;
}

// Valid for llhttp, refused here.
const std::set<std::string> kStricter = {
    // The request, or the one after it, never becomes whole.
    "finish: It should be unsafe to finish after incomplete PUT request",
    "finish: It should be unsafe to finish inside of the header",
    "content-length: Spaces in `Content-Length` (surrounding)",
    "content-length: Tabs in `Content-Length` (surrounding)",
    "content-length: Content-Length reset when no body is received",
    "transfer-encoding: Parsing and setting flag",
    "transfer-encoding: Chunk extensions",
    "transfer-encoding: Chunk extensions quoting",
    "connection: CRLF between requests, implicit `keep-alive`",
    "pipelining: Should parse multiple events",
    // There is no other protocol to upgrade to, so what follows is a request, and not a valid one.
    "connection: Multiple tokens with folding and LWS",
    "connection: Emitting part of body and pausing",
    "connection: Upgrade GET request",
    "connection: Upgrade POST request",
    // Targets of proxies, fragments, user names; versions other than HTTP/1.0 and HTTP/1.1.
    "method: CONNECT request",
    "method: CONNECT request with CAPS",
    "method: CONNECT with body",
    "method: M-SEARCH request",
    "uri: Underscore in hostname",
    "uri: Fragment in URI",
    "uri: `host:port` and basic auth",
    "method: SOURCE request with ICE",
    "method: OPTIONS request with RTSP",
    "method: ANNOUNCE request with RTSP",
    "sample: No HTTP version",
    // Any transfer encoding but `chunked`.
    "transfer-encoding: POST with `chunked` as last transfer-encoding",
    "transfer-encoding: POST with `chunked` as last transfer-encoding (multiple headers)",
};

// Methods are the business of the routes, which answer 404 or 405.
const std::set<std::string> kForRoutes = {
    "invalid: HTTP protocol and ANNOUNCE method",
    "invalid: Invalid method",
};

TEST(HttpVectors, EveryCaseGetsItsStrictOutcome) {
  TestServer test;
  test.start();
  size_t refused = 0, served = 0;
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name + " [" + c.type + "]");
    RawClient client = test.client();
    const auto begin = std::chrono::steady_clock::now();
    client.send(with_host(c.bytes));
    client.half_close();
    const std::string received = client.read_all();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
    EXPECT_TRUE(client.ended()) << "the connection closes";
    const std::vector<int> found = statuses(received);
    ASSERT_FALSE(found.empty());
    const bool lenient = c.type.find("lenient") != std::string::npos &&
                         c.type.find("keep-alive") == std::string::npos;
    const bool fault = is_fault(c.log) && kForRoutes.count(c.name) == 0;
    if (fault || lenient || kStricter.count(c.name) > 0) {
      EXPECT_EQ(found.back(), 400);
      ++refused;
    } else {
      for (const int status : found) EXPECT_EQ(status, 200);
      ++served;
    }
    EXPECT_TRUE(test.healthy());
  }
  EXPECT_GE(refused, 60U);
  EXPECT_GE(served, 50U);
}

// As they are: most have no Host, and none may hang or harm the server.
TEST(HttpVectors, NoCaseAsItIsHarmsTheServer) {
  TestServer test;
  test.start();
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    RawClient client = test.client();
    client.send(c.bytes);
    client.half_close();
    const std::string received = client.read_all();
    EXPECT_TRUE(client.ended());
    ASSERT_FALSE(statuses(received).empty());
    if (c.bytes.find("ost:") == std::string::npos && c.bytes.find("OST:") == std::string::npos) {
      EXPECT_EQ(statuses(received).front(), 400);
    }
  }
  EXPECT_TRUE(test.healthy());
}

}  // namespace
}  // namespace skein
