// More clients than there are places.
#include <atomic>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "server/test_application.h"

namespace skein {
namespace {

using namespace std::chrono_literals;
using http::Request;
using http::Responder;
using testing::eventually;
using testing::get;
using testing::RawClient;
using testing::TestServer;

TEST(HttpCrowd, SilentClientsGiveWayToNewOnes) {
  http::ServerOptions options;
  options.max_connections = 20;
  TestServer test(options);
  std::atomic<bool> begun = false, go = false;
  test.application.handlers["/wait"] = [&](const Request&, const Responder& responder) {
    begun = true;
    while (!go) std::this_thread::sleep_for(1ms);
    responder.send({.body = "done"});
  };
  test.start();
  RawClient served = test.client();
  served.send(get("/wait"));
  ASSERT_TRUE(eventually([&] { return begun.load(); }));
  std::vector<RawClient> silent;
  for (int i = 0; i < 60; ++i) {
    silent.push_back(test.client());
    if (i % 2 == 0) silent.back().send("GET /echo HT");
    EXPECT_LE(test.server.stats().connections, options.max_connections);
  }
  EXPECT_TRUE(test.healthy());
  go = true;
  EXPECT_EQ(served.read_answer().body, "done") << "who is being answered stays";
}

TEST(HttpCrowd, SilentClientsOfOneAddressAreLimited) {
  http::ServerOptions options;
  options.max_waiting_per_address = 5;
  TestServer test(options);
  test.start();
  std::vector<RawClient> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(test.client());
  EXPECT_TRUE(eventually([&] { return test.server.stats().connections == 5; }));
  EXPECT_FALSE(silent.front().receive());
  EXPECT_TRUE(silent.front().ended()) << "the one that has waited longest went";
  EXPECT_TRUE(silent.back().send(get("/echo")) && silent.back().read_answer().status == 200);

  options.trusted_proxies = {http::parse_address_range("127.0.0.0/8").value()};
  TestServer proxied(options);
  proxied.start();
  std::vector<RawClient> many;
  for (int i = 0; i < 20; ++i) many.push_back(proxied.client());
  EXPECT_TRUE(eventually([&] { return proxied.server.stats().connections == 20; }));
}

}  // namespace
}  // namespace skein
