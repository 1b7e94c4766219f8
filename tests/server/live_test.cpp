// /v1/live and /v1/requests: what is shown, and to whom.
#include <future>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "server/live/live_feed.h"
#include "server/live_server.h"

namespace skein::testing {
namespace {

constexpr const char* kLiveChat = "/v1/chat/completions";

// Somebody who watches.
class Watcher {
 public:
  Watcher(LiveServer& live, std::string_view key) : client_(live.client()) {
    client_.send(LiveServer::request("GET", "/v1/live", key, {}, {}));
    head_ = client_.read_until("\r\n\r\n");
  }
  const std::string& head() const { return head_; }
  int status() const { return head_.size() > 12 ? std::atoi(head_.c_str() + 9) : 0; }
  // The next frame; null when the stream has ended.
  Json frame() {
    if (client_.read_until("data: ").empty()) return nullptr;
    const std::string text = client_.read_until("\n\n");
    Json json = Json::parse(text, nullptr, false);
    return json.is_discarded() ? Json() : json;
  }
  // A frame that is so, within a while.
  template <class Condition>
  Json frame_where(const Condition& condition) {
    for (int i = 0; i < 100; ++i) {
      Json now = frame();
      if (now.is_null() || condition(now)) return now;
    }
    return nullptr;
  }
  RawClient& client() { return client_; }

 private:
  RawClient client_;
  std::string head_;
};

// Answers that are under way, more than run at a time: the last of them take seconds.
class Crowd {
 public:
  explicit Crowd(LiveServer& live, std::string_view key = {}, size_t size = 160) {
    const Json body = {{"messages", {{{"role", "user"}, {"content", "x"}}}},
                       {"max_tokens", 990},
                       {"ignore_eos", true},
                       {"stream", true}};
    for (size_t i = 0; i < size; ++i) {
      clients_.push_back(live.client());
      clients_.back().send(
          LiveServer::request("POST", kLiveChat, key, "application/json", body.dump()));
    }
    EXPECT_FALSE(clients_.front().read_until("\"id\":\"").empty());
  }

 private:
  std::vector<RawClient> clients_;
};

bool has_blocks(const Json& frame) {
  for (const Json& request : frame["requests"]) {
    if (!request["choices"].empty() && request["choices"][0]["blocks"] > 0) return true;
  }
  return false;
}

TEST(Live, OnAnOpenServerEverythingIsShown) {
  LiveServer live;
  live.start();
  const Crowd crowd(live);
  Watcher watcher(live, {});
  EXPECT_EQ(watcher.status(), 200);
  EXPECT_NE(watcher.head().find("text/event-stream"), std::string::npos);
  const Json first = watcher.frame();
  EXPECT_EQ(first["object"], "live");
  EXPECT_EQ(first["scope"], "all");
  EXPECT_EQ(first["watchers"], 1);
  const Json& model = first["models"][0];
  EXPECT_EQ(model["id"], "tiny");
  EXPECT_EQ(model["state"], "ready");
  EXPECT_GT(model["weight_bytes"], 0);
  EXPECT_EQ(model["kv"]["pool"], 256);
  EXPECT_EQ(first["models"][1]["state"], "unloaded");
}

TEST(Live, ARunningRequestHoldsBlocksInThePicture) {
  LiveServer live;
  live.start();
  const Crowd crowd(live);
  Watcher watcher(live, {});
  const Json seen = watcher.frame_where(has_blocks);
  ASSERT_FALSE(seen.is_null());
  const Json& kv = seen["models"][0]["kv"];
  EXPECT_EQ(kv["cells"].get<std::string>().size(), 256U);
  EXPECT_EQ(kv["holders"].size(), 256U);
  EXPECT_EQ(kv["cell_blocks"], 1);
  bool is_named = false;
  for (const Json& holder : kv["holders"]) is_named |= holder >= 0;
  EXPECT_TRUE(is_named);
  EXPECT_NE(kv["cells"].get<std::string>().find_first_of("hs"), std::string::npos);
}

TEST(Live, ALoadShowsHowFarItIs) {
  LiveServer live;
  std::promise<void> was_seen;
  live.before_load = [&](const std::string& id) {
    if (id != "org/other") return;
    live.share.report(1, 3);
    was_seen.get_future().wait();
  };
  live.start();
  Watcher watcher(live, {});
  std::thread asks([&] {
    const Json body = {{"model", "org/other"}, {"prompt", "abc"}, {"max_tokens", 1}};
    EXPECT_EQ(live.post("/v1/completions", body).status, 200);
  });
  const Json on_the_way = watcher.frame_where(
      [](const Json& frame) { return frame["models"][1].value("loaded_share", 0.0) > 0; });
  was_seen.set_value();
  asks.join();
  ASSERT_FALSE(on_the_way.is_null());
  EXPECT_EQ(on_the_way["models"][1]["state"], "loading");
  EXPECT_EQ(on_the_way["models"][1]["loaded_share"], 0.333);
  EXPECT_FALSE(on_the_way["models"][0].contains("loaded_share"));
  const Json loaded =
      watcher.frame_where([](const Json& frame) { return frame["models"][1]["state"] == "ready"; });
  ASSERT_FALSE(loaded.is_null());
  EXPECT_FALSE(loaded["models"][1].contains("loaded_share"));
}

TEST(Live, AKeySeesItsOwnRequestsAndAnAdminAll) {
  LiveServer live;
  const std::string a = live.add_key("a"), b = live.add_key("b"),
                    admin = live.add_key("root", {}, true), narrow = live.add_key("n", {"broken"});
  live.start();
  Watcher own(live, a), other(live, b), all(live, admin), few(live, narrow);
  const Crowd crowd(live, a);
  const Json mine = own.frame_where(has_blocks), everything = all.frame_where(has_blocks);
  const Json theirs = other.frame();
  ASSERT_FALSE(mine.is_null() || theirs.is_null() || everything.is_null());
  EXPECT_EQ(mine["scope"], "own");
  EXPECT_EQ(everything["scope"], "all");
  EXPECT_TRUE(theirs["requests"].empty());
  EXPECT_FALSE(theirs["models"].empty()) << "totals are for everyone";
  for (const Json& request : mine["requests"]) EXPECT_FALSE(request.contains("key"));
  for (const Json& request : everything["requests"]) EXPECT_EQ(request["key"], "a");
  const Json page = live.get("/v1/requests", b).json;
  EXPECT_TRUE(page["data"].empty());
  EXPECT_TRUE(page["recent"].empty());
  const Json models = few.frame()["models"];
  ASSERT_EQ(models.size(), 1U);
  EXPECT_EQ(models[0]["id"], "broken");
}

TEST(Live, StrangersOfAnInsecureServerSeeTotals) {
  LiveServer live;
  live.settings.insecure_open = true;
  live.start();
  const Crowd crowd(live);
  Watcher watcher(live, {});
  const Json frame = watcher.frame();
  EXPECT_EQ(frame["scope"], "totals");
  EXPECT_TRUE(frame["requests"].empty());
  const Json page = live.get("/v1/requests").json;
  EXPECT_TRUE(page["data"].empty());
  EXPECT_TRUE(page["recent"].empty());
}

TEST(Live, ARevokedKeyIsCutOff) {
  LiveServer live;
  const std::string a = live.add_key("a"), admin = live.add_key("root", {}, true);
  live.start();
  Watcher own(live, a), other(live, admin);
  EXPECT_FALSE(own.frame().is_null());
  const Json keys = live.get("/admin/keys", admin).json;
  for (const Json& key : keys["data"]) {
    if (key["name"] != "a") continue;
    EXPECT_EQ(live.remove("/admin/keys/" + key["id"].get<std::string>(), admin).status, 200);
  }
  const Json last = own.frame_where([](const Json& frame) { return frame.contains("code"); });
  EXPECT_EQ(last["code"], "invalid_api_key");
  EXPECT_FALSE(other.frame().is_null());
}

TEST(Live, WatchersAreCountedAndLeave) {
  LiveServer live;
  live.start();
  std::vector<Watcher> watchers;
  for (size_t i = 0; i < LiveFeed::kMaxOfOwner; ++i) watchers.emplace_back(live, "");
  for (Watcher& watcher : watchers) EXPECT_EQ(watcher.status(), 200);
  Watcher late(live, {});
  EXPECT_EQ(late.status(), 503);
  EXPECT_NE(late.head().find("Retry-After"), std::string::npos);
  watchers.clear();
  EXPECT_TRUE(eventually([&] { return Watcher(live, {}).status() == 200; }));
}

TEST(Live, AFewKeysDoNotKeepAllOthersOut) {
  constexpr size_t kKeys = LiveFeed::kMaxWatchers / LiveFeed::kMaxOfOwner;
  LiveServer live;
  std::vector<std::string> keys;
  for (size_t i = 0; i <= kKeys; ++i) keys.push_back(live.add_key(fmt::format("key-{}", i)));
  live.start();
  std::vector<RawClient> watchers;
  for (size_t i = 0; i < LiveFeed::kMaxWatchers; ++i) {
    watchers.push_back(live.client());
    watchers.back().send(LiveServer::request("GET", "/v1/live", keys[i % kKeys], {}, {}));
  }
  for (RawClient& watcher : watchers) {
    ASSERT_TRUE(watcher.read_until("\r\n\r\n").starts_with("HTTP/1.1 200"));
  }
  Watcher other(live, keys.back());
  EXPECT_EQ(other.status(), 200);
  EXPECT_EQ(other.frame()["watchers"], LiveFeed::kMaxWatchers) << "one gave way";
  // Who has many already gets none of another's.
  EXPECT_EQ(Watcher(live, keys.front()).status(), 503);
}

TEST(Live, FramesComeFourTimesASecondAtMost) {
  LiveServer live;
  live.start();
  Watcher watcher(live, {});
  EXPECT_FALSE(watcher.frame().is_null());
  const double first = watcher.frame()["at_ms"];
  double last = first;
  for (int i = 0; i < 4; ++i) last = watcher.frame()["at_ms"];
  EXPECT_GE(last - first, 4 * 240.0);
}

// A stream that never ends must not keep a server from ending.
TEST(Live, TheEndOfTheServerIsTheEndOfTheStream) {
  LiveServer live;
  live.start();
  Watcher watcher(live, {});
  EXPECT_FALSE(watcher.frame().is_null());
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(live.server().stop(std::chrono::seconds(20)), Stopped::kWhole);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  while (!watcher.frame().is_null()) {
  }
}

TEST(Live, WhoDoesNotReadHoldsNoEndUp) {
  LiveServer live;
  live.settings.http.unsent_bytes = 1;
  live.start();
  RawClient client(live.server().port(), 1);
  client.send(LiveServer::request("GET", "/v1/live", {}, {}, {}));
  std::this_thread::sleep_for(12 * LiveFeed::kInterval);  // more than the kernel holds for it
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(live.server().stop(std::chrono::seconds(8)), Stopped::kWhole);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(4));
}

TEST(Requests, WhatHasEndedIsListedWithItsTimes) {
  LiveServer live;
  live.start();
  for (int i = 0; i < 3; ++i) {
    const Json body = {{"prompt", "abc"}, {"max_tokens", 4}, {"ignore_eos", true}};
    EXPECT_EQ(live.post("/v1/completions", body).status, 200);
  }
  Json recent;
  EXPECT_TRUE(eventually([&] {
    recent = live.get("/v1/requests").json["recent"];
    return recent.size() == 3;
  }));
  const Json& one = recent[0];
  EXPECT_EQ(one["route"], "/v1/completions");
  EXPECT_EQ(one["model"], "tiny");
  EXPECT_EQ(one["output_tokens"], 4);
  EXPECT_EQ(one["finish_reason"], "length");
  EXPECT_EQ(one["prefill_chunks"], 1);
  EXPECT_GT(one["total_ms"], 0);
  EXPECT_GE(one["total_ms"].get<double>() + 1, one["queue_ms"].get<double>() +
                                                   one["prefill_ms"].get<double>() +
                                                   one["decode_ms"].get<double>());
  EXPECT_GE(recent[0]["ended_at_ms"], recent[2]["ended_at_ms"]);
  EXPECT_EQ(live.get("/v1/requests?limit=1").json["recent"].size(), 1U);
  EXPECT_EQ(live.get("/v1/requests?limit=0").status, 400);
}

TEST(Requests, WhatWaitsSaysWhyAndCanBeCancelled) {
  LiveServer live(1);
  live.start();
  const Crowd crowd(live);
  const Json page = live.get("/v1/requests").json;
  EXPECT_EQ(page["object"], "list");
  bool was_seen = false;
  for (const Json& request : page["data"]) {
    if (request["choices"].empty() || request["choices"][0]["state"] != "waiting") continue;
    was_seen = true;
    EXPECT_NE(request["choices"][0]["wait_reason"], "none");
    EXPECT_FALSE(request["choices"][0]["explanation"].get<std::string>().empty());
    const std::string path = "/v1/requests/" + request["id"].get<std::string>();
    EXPECT_EQ(live.remove(path).status, 200);
    EXPECT_TRUE(eventually([&] { return live.get(path).status == 404; }));
    break;
  }
  EXPECT_TRUE(was_seen);
}

}  // namespace
}  // namespace skein::testing
