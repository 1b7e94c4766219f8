// The requests of http_cases.json against a live server: each gets its statuses and no more, soon,
// and the server is healthy afterwards. serve_hostile_test.py sends the same bytes to the whole
// server.
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/test_application.h"

namespace skein {
namespace {

using testing::RawClient;
using testing::TestServer;

// The file writes each byte as the code point of its number.
std::string bytes_of(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : '\0');
    bytes += static_cast<char>(lead < 0x80 ? lead : (lead & 3) << 6 | (next & 0x3F));
    if (lead >= 0x80) ++i;
  }
  return bytes;
}

std::vector<int> statuses_in(const std::string& received) {
  std::vector<int> found;
  for (size_t at = received.find("HTTP/1.1 "); at != std::string::npos;
       at = received.find("HTTP/1.1 ", at + 1)) {
    found.push_back(std::atoi(received.c_str() + at + 9));
  }
  return found;
}

// How the bytes are cut into writes must not matter.
void check_every_case(size_t piece) {
  std::ifstream file(SKEIN_SOURCE_DIR "/tests/server/http_cases.json");
  const nlohmann::json cases = nlohmann::json::parse(file);
  ASSERT_GT(cases.size(), 80U);
  TestServer test;
  test.start();
  for (const auto& c : cases) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const std::string bytes = bytes_of(c["bytes"].get<std::string>());
    RawClient client = test.client();
    for (size_t at = 0; at < bytes.size(); at += piece) {
      if (!client.send(bytes.substr(at, piece))) break;  // refused before it was whole
    }
    client.half_close();
    const std::string received = client.read_all(10'000);
    EXPECT_TRUE(client.ended()) << "the connection closes";
    EXPECT_EQ(statuses_in(received), c["statuses"].get<std::vector<int>>());
  }
  EXPECT_TRUE(test.healthy());
}

TEST(HttpCases, EveryRequestGetsItsStatuses) {
  check_every_case(1 << 20);
}

TEST(HttpCases, InPiecesOfAFewBytesToo) {
  check_every_case(7);
}

}  // namespace
}  // namespace skein
