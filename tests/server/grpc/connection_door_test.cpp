// So many connections at a time: more are cut, and a place is free again when a connection ends.
#include "server/grpc/connection_door.h"

#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <gtest/gtest.h>
#include <mutex>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <vector>

namespace skein::rpc {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 10s;

OwnedFd connect_to(uint16_t port) {
  OwnedFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

template <class Condition>
bool soon(const Condition& is_so) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// Whether the other side has ended it.
bool is_cut(const OwnedFd& client) {
  pollfd one{client.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&one, 1, 0) == 1 && ::recv(client.get(), &byte, 1, MSG_DONTWAIT) <= 0;
}

class ConnectionDoorTest : public ::testing::Test {
 protected:
  uint16_t open(size_t max_connections) {
    door_ = std::make_unique<ConnectionDoor>(max_connections, clock_);
    const auto port = door_->listen("127.0.0.1", 0, [this](int fd) {
      const std::lock_guard lock(mutex_);
      taken_.emplace_back(fd);
    });
    EXPECT_TRUE(port.ok() && door_->start().ok());
    return *port;
  }
  size_t taken() {
    const std::lock_guard lock(mutex_);
    return taken_.size();
  }

  ManualClock clock_;
  std::mutex mutex_;
  std::vector<OwnedFd> taken_;  // as gRPC has them
  std::unique_ptr<ConnectionDoor> door_;
};

TEST_F(ConnectionDoorTest, MoreThanMayBeAreCut) {
  const uint16_t port = open(3);
  std::vector<OwnedFd> clients;
  for (size_t i = 0; i < 3; ++i) clients.push_back(connect_to(port));
  ASSERT_TRUE(soon([&] { return taken() == 3; }));
  const OwnedFd fourth = connect_to(port);
  ASSERT_TRUE(soon([&] { return is_cut(fourth); }));
  EXPECT_EQ(taken(), 3U);
  for (const OwnedFd& client : clients) EXPECT_FALSE(is_cut(client));
}

TEST_F(ConnectionDoorTest, APlaceIsFreeWhenGrpcShutsAConnectionDown) {
  const uint16_t port = open(2);
  const OwnedFd first = connect_to(port), second = connect_to(port);
  ASSERT_TRUE(soon([&] { return taken() == 2; }));
  {
    const std::lock_guard lock(mutex_);
    ::shutdown(taken_.back().get(), SHUT_RDWR);
    taken_.pop_back();
  }
  ASSERT_TRUE(soon([&] { return door_->connections() == 1; }));
  const OwnedFd third = connect_to(port);
  ASSERT_TRUE(soon([&] { return taken() == 2; }));
  EXPECT_FALSE(is_cut(third));
}

// A client that has said all that it will say may still read: the connection counts until gRPC ends
// it.
TEST_F(ConnectionDoorTest, OneThatTheClientHasHalfClosedCounts) {
  const uint16_t port = open(1);
  const OwnedFd half = connect_to(port);
  ASSERT_TRUE(soon([&] { return taken() == 1; }));
  ::shutdown(half.get(), SHUT_WR);
  const OwnedFd other = connect_to(port);
  ASSERT_TRUE(soon([&] { return is_cut(other); }));
  EXPECT_EQ(door_->connections(), 1U);
}

// Whoever fills the door again and again does not fill the log.
TEST_F(ConnectionDoorTest, TheLogTellsNowAndThenThatConnectionsAreCut) {
  const uint16_t port = open(1);
  testing::internal::CaptureStderr();
  const auto fill_and_leave = [&] {
    const OwnedFd first = connect_to(port);
    EXPECT_TRUE(soon([&] { return taken() == 1; }));
    const OwnedFd second = connect_to(port);
    EXPECT_TRUE(soon([&] { return is_cut(second); }));
    {
      const std::lock_guard lock(mutex_);
      ::shutdown(taken_.back().get(), SHUT_RDWR);
      taken_.pop_back();
    }
    EXPECT_TRUE(soon([&] { return door_->connections() == 0; }));
  };
  for (int i = 0; i < 20; ++i) fill_and_leave();
  clock_.advance(10 * kUsPerSecond);
  fill_and_leave();
  door_->stop();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
  EXPECT_NE(log.find("one is cut (0 others before it)"), std::string::npos) << log;
  EXPECT_NE(log.find("one is cut (19 others before it)"), std::string::npos) << log;
}

TEST_F(ConnectionDoorTest, NobodyIsTakenAfterTheStop) {
  const uint16_t port = open(2);
  const OwnedFd first = connect_to(port);
  ASSERT_TRUE(soon([&] { return taken() == 1; }));
  door_->stop();
  EXPECT_FALSE(is_cut(first));  // it goes on
  const OwnedFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_NE(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
}

TEST(ConnectionDoor, AnAddressThatIsTakenIsSaid) {
  const ManualClock clock;
  ConnectionDoor one(1, clock);
  const auto port = one.listen("127.0.0.1", 0, [](int) {});
  ASSERT_TRUE(port.ok());
  ConnectionDoor other(1, clock);
  EXPECT_FALSE(other.listen("127.0.0.1", *port, [](int) {}).ok());
  EXPECT_FALSE(other.listen("127.example.org", 0, [](int) {}).ok());  // a name, whatever it says
}

}  // namespace
}  // namespace skein::rpc
