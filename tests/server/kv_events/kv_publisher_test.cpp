// Publishers over real sockets, with peers of our own making; tests/fleet has unmodified ones.
#include "server/kv_events/kv_publisher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <optional>

#include "sched/harness.h"
#include "server/http_client.h"
#include "server/kv_events/zmtp.h"

namespace skein {
namespace {

using ::testing::HasSubstr;

std::string socket_greeting(std::string_view type) {
  std::string bytes(64, '\0');
  bytes[0] = '\xff';
  bytes[9] = '\x7f';
  bytes[10] = 3;
  bytes.replace(12, 4, "NULL");
  std::string data = "\x05READY\x0bSocket-Type";
  data.append({'\0', '\0', '\0', static_cast<char>(type.size())}).append(type);
  return bytes.append({'\x04', static_cast<char>(data.size())}).append(data);
}

std::string zmtp_message(std::initializer_list<std::string_view> frames) {
  std::string bytes;
  size_t left = frames.size();
  for (const std::string_view frame : frames) append_zmtp_frame(bytes, frame, --left > 0);
  return bytes;
}

std::string eight_bytes(uint64_t number) {
  std::string bytes;
  for (int i = 7; i >= 0; --i) bytes.push_back(static_cast<char>(number >> (8 * i)));
  return bytes;
}

struct Received {
  uint64_t number = 0;
  std::string topic;
  std::string payload;
};

// A peer that has said hello and been answered.
class ZmtpPeer {
 public:
  ZmtpPeer(uint16_t port, std::string_view type, int receive_buffer = 0)
      : client_(port, receive_buffer) {
    client_.send(socket_greeting(type));
    greeting_ = read(64);
    (void)frame();  // READY
  }
  void send(std::string_view bytes) { client_.send(std::string(bytes)); }
  void subscribe(std::string_view topic) { send(zmtp_message({"\x01" + std::string(topic)})); }
  void ask_again(uint64_t from) { send(zmtp_message({"", eight_bytes(from)})); }
  bool was_greeted() const { return greeting_.size() == 64; }

  // Nothing: the connection has ended.
  std::optional<std::string> frame() {
    const std::string head = read(2);
    if (head.size() < 2) return std::nullopt;
    more_ = (head[0] & 1) != 0;
    uint64_t size = static_cast<uint8_t>(head[1]);
    if ((head[0] & 2) != 0) {
      for (const char c : read(7)) size = size << 8 | static_cast<uint8_t>(c);
    }
    std::string body = read(size);
    if (body.size() < size) return std::nullopt;
    return body;
  }
  std::optional<Received> message() {
    std::vector<std::string> frames;
    do {
      const auto one = frame();
      if (!one) return std::nullopt;
      frames.push_back(*one);
    } while (more_);
    if (frames.size() == 4 && frames[0].empty()) frames.erase(frames.begin());
    if (frames.size() != 3) return std::nullopt;
    Received received{0, frames[0], frames[2]};
    for (const char c : frames[1]) received.number = received.number << 8 | static_cast<uint8_t>(c);
    return received;
  }

 private:
  // So many bytes, or less at the end.
  std::string read(size_t bytes) {
    std::string& received = client_.received();
    while (received.size() < bytes && client_.receive()) {
    }
    std::string taken = received.substr(0, bytes);
    received.erase(0, bytes);
    return taken;
  }

  testing::RawClient client_;
  std::string greeting_;
  bool more_ = false;
};

// A cache whose contents change when it is told to.
class Changing {
 public:
  explicit Changing(KvEventFeed& feed) : feed_(feed), h_(config()) { feed_.begin(kBlocks); }
  void change(int times = 1) {
    for (int i = 0; i < times; ++i) {
      ++id_;
      h_.must_submit(id_, text(40, static_cast<TokenId>(1 + id_ % 90)), 1);
      while (!h_.scheduler->idle()) {
        h_.step();
        feed_.add(*h_.scheduler);
        h_.scheduler->clear_kv_events();
      }
    }
  }

 private:
  static constexpr uint32_t kBlocks = 16;
  static SchedulerConfig config() {
    SchedulerConfig config = Harness::small();
    config.pool_blocks = kBlocks;
    config.kv_events = true;
    return config;
  }
  KvEventFeed& feed_;
  Harness h_;
  uint64_t id_ = 0;
};

std::unique_ptr<KvPublisher> started(const KvPublisher::Options& options) {
  auto publisher = KvPublisher::open(options);
  EXPECT_TRUE(publisher.ok()) << publisher.message();
  EXPECT_TRUE((*publisher)->start().ok());
  return std::move(*publisher);
}

template <class Condition>
bool comes_true(const Condition& condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

TEST(KvPublisher, SubscribersAreToldAndMayAskAgain) {
  const auto publisher = started({.topic = "kv@here"});
  Changing cache(*publisher->feed());
  ZmtpPeer subscriber(publisher->port(), "SUB");
  ASSERT_TRUE(subscriber.was_greeted());
  ZmtpPeer elsewhere(publisher->port(), "SUB");
  elsewhere.subscribe("kv@there");
  subscriber.subscribe("kv@");
  ASSERT_TRUE(comes_true([&] { return publisher->stats().subscribers == 1; }));
  cache.change(3);
  ASSERT_TRUE(comes_true([&] { return publisher->stats().blocks >= 3; }));
  uint64_t next = 0;
  std::string last;
  for (uint64_t blocks = 0; blocks < 3;) {
    const auto message = subscriber.message();
    ASSERT_TRUE(message.has_value());
    EXPECT_EQ(message->topic, "kv@here");
    EXPECT_TRUE(next == 0 || message->number == next) << next;
    next = message->number + 1;
    last = message->payload;
    const auto parsed = nlohmann::json::from_msgpack(message->payload);
    for (const auto& event : parsed[1]) {
      if (event[0] == "BlockStored") blocks += event[1].size();
    }
  }
  ZmtpPeer again(publisher->replay_port(), "DEALER");
  for (int round = 0; round < 2; ++round) {
    again.ask_again(0);
    for (uint64_t number = 0; number < next; ++number) {
      const auto message = again.message();
      ASSERT_TRUE(message.has_value());
      EXPECT_EQ(message->number, number);
      EXPECT_EQ(message->payload.find("AllBlocksCleared") != std::string::npos, number == 0);
      EXPECT_TRUE(number + 1 < next || message->payload == last);
    }
    const auto end = again.message();
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->number, UINT64_MAX);
    EXPECT_EQ(end->payload, "");
  }
}

TEST(KvPublisher, WhoDoesNotReadIsCutAndOthersAreNot) {
  const auto publisher = started({.kept_messages = 200, .message_blocks = 1});
  Changing cache(*publisher->feed());
  constexpr int kSmallBuffer = 2048;
  ZmtpPeer slow(publisher->port(), "SUB", kSmallBuffer);
  ZmtpPeer quick(publisher->port(), "SUB");
  slow.subscribe("");
  quick.subscribe("");
  ASSERT_TRUE(comes_true([&] { return publisher->stats().subscribers == 2; }));
  uint64_t seen = 0;
  // What sockets hold comes before what we keep.
  for (int i = 0; i < 10'000 && publisher->stats().dropped == 0; ++i) {
    cache.change(5);
    const uint64_t now = publisher->stats().messages;
    while (seen + 1 < now) {
      const auto message = quick.message();
      ASSERT_TRUE(message.has_value()) << "who reads stays";
      ASSERT_TRUE(seen == 0 || message->number == seen + 1) << seen;
      seen = message->number;
    }
  }
  EXPECT_EQ(publisher->stats().dropped, 1u);
  EXPECT_TRUE(comes_true([&] { return publisher->stats().subscribers == 1; }));
  std::optional<Received> message;
  uint64_t got = 0;
  while ((message = slow.message())) ++got;
  EXPECT_GT(got, 0u) << "what was on its way, and then an end";
}

TEST(KvPublisher, StrangersGiveWayAndNobodyTakesAllPlaces) {
  const auto publisher = started({.max_peers = 3});
  Changing cache(*publisher->feed());
  ZmtpPeer subscriber(publisher->port(), "SUB");
  subscriber.subscribe("");
  ASSERT_TRUE(comes_true([&] { return publisher->stats().subscribers == 1; }));
  std::vector<std::unique_ptr<testing::RawClient>> silent;
  for (int i = 0; i < 20; ++i) {
    silent.push_back(std::make_unique<testing::RawClient>(publisher->port()));
  }
  ZmtpPeer late(publisher->port(), "SUB");
  late.subscribe("");
  EXPECT_TRUE(comes_true([&] { return publisher->stats().subscribers == 2; }));
  EXPECT_GE(publisher->stats().dropped, 18u);
  cache.change();
  EXPECT_TRUE(subscriber.message().has_value());
  EXPECT_TRUE(late.message().has_value());
}

TEST(KvPublisher, OldMessagesAreForgotten) {
  const auto publisher = started({.kept_messages = 4, .message_blocks = 1});
  Changing cache(*publisher->feed());
  cache.change(20);
  ASSERT_TRUE(comes_true([&] { return publisher->stats().messages >= 21; }));
  ZmtpPeer again(publisher->replay_port(), "REQ");
  again.ask_again(2);
  const auto first = again.message();
  ASSERT_TRUE(first.has_value());
  EXPECT_GT(first->number, 2u) << "who asks sees the gap";
}

TEST(KvPublisher, OthersReachItOnlyIfThatIsSaid) {
  const auto open = KvPublisher::open({.host = "0.0.0.0"});
  ASSERT_FALSE(open.ok());
  EXPECT_THAT(std::string(open.message()), HasSubstr("--kv-events-insecure-open"));
  EXPECT_TRUE(KvPublisher::open({.host = "0.0.0.0", .insecure_open = true}).ok());
  EXPECT_TRUE(KvPublisher::open({.host = "localhost"}).ok());
  const auto name = KvPublisher::open({.host = "example.org"});
  EXPECT_THAT(std::string(name.message()), HasSubstr("'example.org' is no address"));
  EXPECT_FALSE(KvPublisher::open({.port = 65535}).ok());
}

}  // namespace
}  // namespace skein
