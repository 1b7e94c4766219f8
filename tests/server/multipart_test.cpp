#include "server/http/multipart.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <vector>

namespace skein::http {
namespace {

struct Recorder : PartReceiver {
  std::optional<Fault> begin_part(const PartHead& head) override {
    events.push_back(fmt::format("begin {}", head.name));
    if (head.filename) events.back().append(" file ").append(*head.filename);
    events.emplace_back();
    return refuse == "begin" ? std::optional(Fault{418, "begin"}) : std::nullopt;
  }
  std::optional<Fault> part_data(std::string_view bytes) override {
    EXPECT_FALSE(bytes.empty());
    events.back().append(bytes);
    largest = std::max(largest, bytes.size());
    return refuse == "data" ? std::optional(Fault{418, "data"}) : std::nullopt;
  }
  std::optional<Fault> end_part() override {
    events.emplace_back("end");
    return refuse == "end" ? std::optional(Fault{418, "end"}) : std::nullopt;
  }
  std::vector<std::string> events;
  std::string refuse;
  size_t largest = 0;
};

const std::string kPart = "--b\r\nContent-Disposition: form-data; name=x\r\n\r\n";

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
  const std::string body =
      "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
      "--b\r\ncontent-disposition: form-data; name=file; filename=\"a b;c.jsonl\"\r\n"
      "Content-Type: application/jsonl\r\n\r\n{\"a\":1}\r\n--\r\n-b no\r\r\n--\r\n\r\n--b--\r\n";
  const std::vector<std::string> expected = {"begin purpose",
                                             "batch",
                                             "end",
                                             "begin file file a b;c.jsonl",
                                             "{\"a\":1}\r\n--\r\n-b no\r\r\n--\r\n",
                                             "end"};
  for (size_t piece = 1; piece <= body.size(); ++piece) {
    ASSERT_EQ(read(body, piece), expected) << piece;
  }
  // And at every two places at once.
  for (size_t first = 1; first < body.size(); ++first) {
    for (size_t second = first + 1; second < body.size(); second += 3) {
      Recorder recorder;
      MultipartParser parser("b", recorder);
      ASSERT_FALSE(parser.advance(std::string_view(body).substr(0, first)));
      ASSERT_FALSE(parser.advance(std::string_view(body).substr(first, second - first)));
      ASSERT_FALSE(parser.advance(std::string_view(body).substr(second)));
      ASSERT_FALSE(parser.finish());
      ASSERT_EQ(recorder.events, expected) << first << " " << second;
    }
  }
}

TEST(Multipart, Refused) {
  std::string many;
  for (int i = 0; i < 33; ++i) many += kPart + "\r\n";
  const auto disposition = [](std::string_view value) {
    return fmt::format("--b\r\nContent-Disposition: {}\r\n\r\n\r\n--b--", value);
  };
  for (const std::string& body : {
           std::string(),
           std::string("x"),
           std::string("--"),
           std::string("--c\r\n"),
           std::string("--b--"),
           "\r\n" + kPart + "\r\n--b--",
           kPart,
           kPart + "data",
           kPart + "data\r\n--b",
           kPart + "data\r\n--b-",
           kPart + "data\r\n--bx",
           kPart + "data\n--b--",
           kPart + "data\r\n--b--\r",
           kPart + "data\r\n--b--\r\nepilogue",
           kPart + "data\r\n--b--\r\n\r\n",
           kPart + "data\r\n--b \r\n",
           many + "--b--",
           std::string("--b\r\n\r\ndata\r\n--b--"),
           std::string("--b\r\nContent-Type: a/b\r\n\r\ndata\r\n--b--"),
           disposition("form-data"),
           disposition("form-data; name"),
           disposition("form-data; name="),
           disposition("form-data; name=\"a"),
           disposition("form-data; name=\"a\"b"),
           disposition("form-data; name=a; name=b"),
           disposition("form-data; name=a; filename=x; FileName=y"),
           disposition("form-data; na me=a"),
           disposition("attachment; name=x"),
           disposition("form-data; name=\"a\tb\""),
           disposition("form-data; name=x\r\nContent-Disposition: form-data; name=y"),
           disposition("form-data; name=x\r\nContent-Transfer-Encoding: base64"),
           disposition("form-data; name=x\r\n folded"),
           disposition("form-data; name=x\nA: b"),
           std::string(
               "--b\r\nBad Name: 1\r\nContent-Disposition: form-data; name=x\r\n\r\n\r\n--b--"),
           fmt::format("--b\r\nA: {:x>9000}", ""),
       }) {
    for (const size_t piece : {size_t{1}, size_t{3}, size_t{100'000}}) {
      EXPECT_TRUE(read(body, piece).empty()) << body.substr(0, 120);
    }
  }
  EXPECT_FALSE(read(kPart + "\r\n--b--", 3).empty()) << "an empty part is one";
  EXPECT_FALSE(
      read(disposition("form-data; name=x\r\nContent-Transfer-Encoding: Binary"), 9).empty());
}

TEST(Multipart, QuotedNames) {
  const auto named = [](std::string_view value) {
    return read(fmt::format("--b\r\nContent-Disposition: form-data; name=\"f\"; filename={}\r\n\r\n"
                            "\r\n--b--",
                            value),
                4)
        .at(0);
  };
  EXPECT_EQ(named(R"("a\"b.jsonl")"), R"(begin f file a"b.jsonl)");
  EXPECT_EQ(named(R"("C:\dir\\x")"), R"(begin f file C:\dir\x)");
  EXPECT_EQ(named("\"\xC3\xA9;=.jsonl\"  "), "begin f file \xC3\xA9;=.jsonl");
  EXPECT_EQ(named("\"\""), "begin f file ");
}

TEST(Multipart, TheLongestHeadIsTheSameInAnyCut) {
  const std::string field = "Content-Disposition: form-data; name=x\r\nA: ";
  const size_t most = MultipartLimits{}.head_bytes - 4;
  for (const size_t over : {size_t{0}, size_t{1}}) {
    const std::string head = field + std::string(most + over - field.size(), 'a');
    const std::string body = "--b\r\n" + head + "\r\n\r\n\r\n--b--";
    for (const size_t piece : {size_t{1}, size_t{7}, body.size()}) {
      EXPECT_EQ(read(body, piece).empty(), over == 1) << piece;
    }
  }
}

TEST(Multipart, WhatTheReceiverRefusesIsTheEnd) {
  for (const char* when : {"begin", "data", "end"}) {
    Recorder recorder;
    recorder.refuse = when;
    MultipartParser parser("b", recorder);
    const auto fault = parser.advance(kPart + "data\r\n" + kPart + "more\r\n--b--");
    ASSERT_TRUE(fault) << when;
    EXPECT_EQ(fault->status, 418);
    const size_t events = recorder.events.size();
    EXPECT_EQ(parser.advance("x")->message, when);
    EXPECT_EQ(parser.finish()->message, when);
    EXPECT_EQ(recorder.events.size(), events);
  }
}

TEST(Multipart, ALargeFileIsNotHeld) {
  Recorder recorder;
  MultipartParser parser("b", recorder);
  ASSERT_FALSE(parser.advance(kPart));
  const std::string piece(64 << 10, '\r');
  for (int i = 0; i < 64; ++i) ASSERT_FALSE(parser.advance(piece));
  ASSERT_FALSE(parser.advance("\r\n--b--"));
  EXPECT_FALSE(parser.finish());
  EXPECT_EQ(recorder.events[1].size(), 64 * piece.size());
  EXPECT_LE(recorder.largest, piece.size() + 8);
}

TEST(Multipart, Boundaries) {
  EXPECT_EQ(boundary_of("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(boundary_of("Multipart/Form-Data; charset=x; BOUNDARY=\"a b\""), "a b");
  for (const char* bad :
       {"", "multipart/form-data", "multipart/mixed; boundary=a", "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"a", "multipart/form-data; boundary=\x01",
        "multipart/form-data; boundary=a; boundary=b", "multipart/form-data; boundary=\"a \"",
        "multipart/form-data; boundary=\"a\\\"b\"", "multipart/form-data; =a; boundary=b"}) {
    EXPECT_FALSE(boundary_of(bad)) << bad;
  }
  EXPECT_TRUE(boundary_of(fmt::format("multipart/form-data; boundary={:x>70}", "")));
  EXPECT_FALSE(boundary_of(fmt::format("multipart/form-data; boundary={:x>71}", "")));
  std::string many = "multipart/form-data";
  for (int i = 0; i < 20'000; ++i) many += fmt::format("; a{}=b", i);
  EXPECT_FALSE(boundary_of(many + "; boundary=x"));
}

}  // namespace
}  // namespace skein::http
