#include "server/http/multipart.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <vector>

namespace skein::http {
namespace {

struct Recorder : PartHandler {
  std::optional<Fault> begin(const Part& part) override {
    events.push_back(fmt::format("begin {}", part.name));
    if (part.filename) events.back().append(" file ").append(*part.filename);
    events.emplace_back();
    return std::nullopt;
  }
  std::optional<Fault> data(std::string_view piece) override {
    events.back().append(piece);
    largest = std::max(largest, piece.size());
    return std::nullopt;
  }
  std::optional<Fault> end() override {
    events.emplace_back("end");
    return std::nullopt;
  }
  std::vector<std::string> events;
  size_t largest = 0;
};

const std::string kBody =
    "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
    "--b\r\ncontent-disposition: form-data; name=file; filename=\"a b;c.jsonl\"\r\n"
    "Content-Type: application/jsonl\r\n\r\n{\"a\":1}\r\n--\r\n--bx no\r\n\r\n--b--\r\nepilogue";

// The parts of `body`, fed `piece` bytes at a time; empty when it is refused.
std::vector<std::string> read(std::string_view body, size_t piece) {
  Recorder recorder;
  MultipartParser parser("b", recorder);
  for (size_t at = 0; at < body.size(); at += piece) {
    if (parser.advance(body.substr(at, piece))) return {};
  }
  if (parser.finish()) return {};
  return recorder.events;
}

TEST(Multipart, PartsInAnyCut) {
  std::string body = kBody;
  body.replace(body.find("--bx no"), 7, "-b no");
  const std::vector<std::string> expected = {"begin purpose",
                                             "batch",
                                             "end",
                                             "begin file file a b;c.jsonl",
                                             "{\"a\":1}\r\n--\r\n-b no\r\n",
                                             "end"};
  for (size_t piece = 1; piece <= body.size(); ++piece) {
    ASSERT_EQ(read(body, piece), expected) << piece;
  }
}

TEST(Multipart, Refused) {
  const std::string head = "--b\r\nContent-Disposition: form-data; name=x\r\n\r\n";
  std::string many;
  for (int i = 0; i < 17; ++i) many += head + "\r\n";
  for (const std::string& body :
       {std::string(), std::string("x"), std::string("--c\r\n"), kBody /* --bx is no delimiter */,
        head, head + "data", head + "data\r\n--b", head + "data\r\n--bx", many + "--b--",
        std::string("--b\r\n\r\ndata\r\n--b--"),
        std::string("--b\r\nContent-Disposition: form-data\r\n\r\n\r\n--b--"),
        std::string("--b\r\nContent-Disposition: attachment; name=x\r\n\r\n\r\n--b--"),
        std::string(
            "--b\r\nBad Name: 1\r\nContent-Disposition: form-data; name=x\r\n\r\n\r\n--b--"),
        fmt::format("--b\r\nA: {:x>5000}", "")}) {
    for (const size_t piece : {size_t{1}, size_t{1000}}) {
      EXPECT_TRUE(read(body, piece).empty()) << body.substr(0, 80);
    }
  }
  EXPECT_FALSE(read(head + "\r\n--b--", 3).empty()) << "an empty part is one";
}

TEST(Multipart, ALargeFileIsNotHeld) {
  Recorder recorder;
  MultipartParser parser("b", recorder);
  ASSERT_FALSE(parser.advance("--b\r\nContent-Disposition: form-data; name=x\r\n\r\n"));
  const std::string piece(64 << 10, '\r');
  for (int i = 0; i < 64; ++i) ASSERT_FALSE(parser.advance(piece));
  ASSERT_FALSE(parser.advance("\r\n--b--"));
  EXPECT_FALSE(parser.finish());
  EXPECT_EQ(recorder.events[1].size(), 64 * piece.size());
  EXPECT_LE(recorder.largest, piece.size() + 8);
}

TEST(Multipart, Boundaries) {
  EXPECT_EQ(multipart_boundary("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(multipart_boundary("Multipart/Form-Data; charset=x; boundary=\"a b\""), "a b");
  for (const char* bad : {"", "multipart/form-data", "multipart/mixed; boundary=a",
                          "multipart/form-data; boundary=", "multipart/form-data; boundary=\"a",
                          "multipart/form-data; boundary=\x01"}) {
    EXPECT_FALSE(multipart_boundary(bad)) << bad;
  }
  EXPECT_FALSE(multipart_boundary(fmt::format("multipart/form-data; boundary={:x>71}", "")));
}

}  // namespace
}  // namespace skein::http
