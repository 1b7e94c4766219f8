#include "server/kv_events/zmtp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace skein {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string hello(std::string_view mechanism = "NULL", char major = 3, char minor = 1) {
  std::string bytes(64, '\0');
  bytes[0] = '\xff';
  bytes[9] = '\x7f';
  bytes[10] = major;
  bytes[11] = minor;
  bytes.replace(12, mechanism.size(), mechanism);
  return bytes;
}

std::string command(std::string_view name, std::string_view data) {
  std::string bytes = {'\x04', static_cast<char>(1 + name.size() + data.size()),
                       static_cast<char>(name.size())};
  return bytes.append(name).append(data);
}

std::string ready(std::string_view type) {
  std::string data = "\x0bSocket-Type";
  data.append({'\0', '\0', '\0', static_cast<char>(type.size())}).append(type);
  return command("READY", data);
}

std::string message(std::string_view body, bool more = false) {
  std::string bytes;
  append_zmtp_frame(bytes, body, more);
  return bytes;
}

// A session with what its peer asked for.
struct Heard {
  explicit Heard(ZmtpSocket socket) : session(socket) {
    handler.on_subscription = [this](std::string_view topic, bool wanted) {
      topics.push_back((wanted ? "+" : "-") + std::string(topic));
    };
    handler.on_message = [this](std::span<const std::string> frames) {
      messages.emplace_back(frames.begin(), frames.end());
    };
  }
  Status take(std::string_view bytes) { return session.receive(bytes, handler); }

  ZmtpSession session;
  ZmtpSession::Handler handler;
  std::vector<std::string> topics;
  std::vector<std::vector<std::string>> messages;
};

TEST(Zmtp, SubscriberInAnyPieces) {
  const std::string bytes = hello() + ready("SUB") + message("\x01kv@") +
                            message(std::string(1, '\1')) + command("SUBSCRIBE", "a") +
                            message(std::string("\0kv@", 4));
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    Heard heard(ZmtpSocket::kPub);
    for (size_t at = 0; at < bytes.size(); at += piece) {
      ASSERT_TRUE(heard.take(std::string_view(bytes).substr(at, piece)).ok());
    }
    EXPECT_TRUE(heard.session.is_ready());
    EXPECT_THAT(heard.topics, ElementsAre("+kv@", "+", "+a", "-kv@"));
    const std::string out = heard.session.output();
    EXPECT_EQ(out.substr(0, 64), hello("NULL", 3, 0));
    EXPECT_EQ(out.substr(64), ready("PUB"));
  }
}

TEST(Zmtp, RequestsOfSeveralFrames) {
  Heard heard(ZmtpSocket::kRouter);
  ASSERT_TRUE(heard.take(hello() + ready("DEALER") + message("", true) + message("12345678")).ok());
  ASSERT_EQ(heard.messages.size(), 1u);
  EXPECT_THAT(heard.messages[0], ElementsAre("", "12345678"));
}

TEST(Zmtp, PingsAreAnswered) {
  Heard heard(ZmtpSocket::kPub);
  ASSERT_TRUE(heard.take(hello() + ready("SUB")).ok());
  heard.session.output().clear();
  ASSERT_TRUE(heard
                  .take(command("PING", std::string("\0\x0a"
                                                    "ctx",
                                                    5)))
                  .ok());
  EXPECT_EQ(heard.session.output(), command("PONG", "ctx"));
}

TEST(Zmtp, WhatIsNotAsItMustBeIsRefused) {
  const std::string begun = hello() + ready("SUB");
  const std::pair<std::string, const char*> bad[] = {
      {"GET / HTTP/1.1\r\n", "byte 0 of the greeting"},
      {hello("CURVE"), "byte 12 of the greeting"},
      {hello("PLAIN"), "byte 12 of the greeting"},
      {hello("NULL", 2), "byte 10 of the greeting"},
      {hello() + message("\x01"), "before the handshake"},
      {hello() + command("HELLO", ""), "begins with another"},
      {hello() + ready("PUB"), "wrong type"},
      {hello() + command("READY", ""), "wrong type"},
      {hello() + command("READY", std::string("\x0bSocket-Type\xff\xff\xff\xffSUB", 19)),
       "ends early"},
      {hello() + command("READY", "\x7f"), "ends early"},
      {begun + std::string("\x02\xff\xff\xff\xff\xff\xff\xff\xff", 9), "at most 1024"},
      {begun + std::string("\x08\x01x", 3), "flags"},
      {begun + std::string("\x05\x01x", 3), "flags"},
      {begun + std::string("\x04\x00", 2), "without a name"},
      {begun + std::string("\x04\x02\x09x", 4), "without a name"},
      {begun + command("PING", "x"), "PING of 1"},
      {begun + command("ERROR", "x"), "cannot go on"},
  };
  for (const auto& [bytes, why] : bad) {
    Heard heard(ZmtpSocket::kPub);
    const Status status = heard.take(bytes);
    ASSERT_FALSE(status.ok()) << why;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    EXPECT_THAT(heard.topics, IsEmpty());
  }
}

TEST(Zmtp, NobodyFillsMemory) {
  Heard pings(ZmtpSocket::kPub);
  ASSERT_TRUE(pings.take(hello() + ready("SUB")).ok());
  Status status;
  const std::string ping = command("PING", std::string(18, 'x'));
  for (int i = 0; i < 10'000 && status.ok(); ++i) status = pings.take(ping);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not read"));
  EXPECT_LE(pings.session.output().size(), ZmtpSession::kMaxOutputBytes + 64);

  Heard frames(ZmtpSocket::kRouter);
  ASSERT_TRUE(frames.take(hello() + ready("REQ")).ok());
  status = {};
  for (int i = 0; i < 100 && status.ok(); ++i) status = frames.take(message("x", true));
  EXPECT_THAT(std::string(status.message()), HasSubstr("more than 8 frames"));
}

TEST(Zmtp, RandomBytesNeverDoHarm) {
  Rng rng(3);
  for (int round = 0; round < 2000; ++round) {
    Heard heard(rng.chance(1, 2) ? ZmtpSocket::kPub : ZmtpSocket::kRouter);
    std::string bytes = hello() + ready(rng.chance(1, 2) ? "SUB" : "DEALER");
    for (int i = 0; i < 60; ++i) bytes.push_back(static_cast<char>(rng.below(256)));
    if (rng.chance(1, 2)) bytes[rng.below(bytes.size())] ^= static_cast<char>(1 + rng.below(255));
    Status status;
    for (size_t at = 0; at < bytes.size() && status.ok(); at += 7) {
      status = heard.take(std::string_view(bytes).substr(at, 7));
    }
  }
}

TEST(Zmtp, LongFramesHaveWideSizes) {
  std::string bytes;
  append_zmtp_frame(bytes, std::string(256, 'x'), true);
  EXPECT_EQ(bytes.substr(0, 9), std::string("\x03\0\0\0\0\0\0\x01\0", 9));
  EXPECT_EQ(bytes.size(), 265u);
}

}  // namespace
}  // namespace skein
