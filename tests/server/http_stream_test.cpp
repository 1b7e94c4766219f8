// Answers that take their time: streams, hang-ups, slow readers.
#include <atomic>
#include <gtest/gtest.h>
#include <mutex>
#include <semaphore>
#include <thread>

#include "server/test_application.h"

namespace skein {
namespace {

using namespace std::chrono_literals;
using http::Request;
using http::Responder;
using http::WriteResult;
using testing::eventually;
using testing::get;
using testing::RawClient;
using testing::TestServer;

// Each write is a chunk of its own where the client has read the one before; writes that meet in
// the outbox share one.
TEST(HttpStream, StreamsFromAnotherThread) {
  TestServer test;
  std::counting_semaphore<> read(0);
  test.application.handlers["/stream"] = [&](const Request&, const Responder& responder) {
    std::thread([&, responder] {
      EXPECT_TRUE(responder.start({}));
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(responder.write(fmt::format("data: {}\n\n", i)), WriteResult::kTaken);
        read.acquire();
      }
      responder.finish();
      EXPECT_EQ(responder.write("late"), WriteResult::kGone);
      EXPECT_FALSE(responder.send({}));
    }).detach();
  };
  test.start();
  RawClient client = test.client();
  client.send(get("/stream") + get("/echo"));
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_NE(head.find("Content-Type: text/event-stream"), std::string::npos);
  EXPECT_NE(head.find("Transfer-Encoding: chunked"), std::string::npos);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client.read_until("\n\n\r\n"), fmt::format("9\r\ndata: {}\n\n\r\n", i));
    read.release();
  }
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "0\r\n\r\n");
  EXPECT_EQ(client.read_answer().body, "GET:") << "the connection goes on";

  read.release(3);
  RawClient old = test.client();
  old.send("GET /stream HTTP/1.0\r\nHost: x\r\n\r\n");
  const std::string all = old.read_all();
  EXPECT_TRUE(all.ends_with("\r\n\r\ndata: 0\n\ndata: 1\n\ndata: 2\n\n")) << all;
}

TEST(HttpStream, LastBytesPassAFullOutbox) {
  TestServer test;
  test.application.handlers["/stream"] = [](const Request&, const Responder& responder) {
    responder.start({});
    const std::string piece(64 << 10, 'x');
    while (responder.write(piece) == WriteResult::kTaken) {
    }
    EXPECT_TRUE(responder.finish_with("the end"));
    EXPECT_FALSE(responder.finish_with("twice"));
  };
  test.start();
  RawClient client = test.client(4096);
  client.send(get("/stream"));
  const std::string all = client.read_until("\r\n0\r\n\r\n");  // a head may end with a zero, too
  EXPECT_NE(all.find("the end\r\n0\r\n\r\n"), std::string::npos) << all.size();
}

TEST(HttpStream, AnErrorBeforeTheFirstWriteIsAPlainAnswer) {
  TestServer test;
  test.application.handlers["/fails"] = [](const Request&, const Responder& responder) {
    responder.start({});
    EXPECT_TRUE(responder.send({.status = 429, .body = "full"}));
    EXPECT_FALSE(responder.send({.status = 500}));
  };
  test.application.handlers["/forgotten"] = [](const Request&, const Responder&) {};
  test.application.handlers["/throws"] = [](const Request&, const Responder&) {
    throw std::bad_alloc();
  };
  test.application.handlers["/cut"] = [](const Request&, const Responder& responder) {
    responder.start({});
    responder.write("data: 1\n\n");
  };
  test.start();
  RawClient client = test.client();
  client.send(get("/fails") + get("/forgotten") + get("/throws") + get("/cut"));
  EXPECT_EQ(client.read_answer().body, "full");
  EXPECT_EQ(client.read_answer().status, 500);
  EXPECT_EQ(client.read_answer().status, 500);
  const std::string rest = client.read_all();
  EXPECT_NE(rest.find("data: 1\n\n"), std::string::npos);
  EXPECT_EQ(rest.find("\r\n0\r\n"), std::string::npos) << "an end that looks whole";
  EXPECT_TRUE(client.ended());
}

TEST(HttpStream, KeepaliveAlsoBeforeTheFirstWrite) {
  TestServer test;
  std::vector<Responder> open;
  std::mutex mutex;
  test.application.handlers["/quiet"] = [&](const Request&, const Responder& responder) {
    responder.start({.keepalive = ": k\n\n", .keepalive_interval = 500ms});
    const std::lock_guard lock(mutex);
    open.push_back(responder);
  };
  test.start();
  RawClient client = test.client();
  client.send(get("/quiet"));
  EXPECT_FALSE(client.receive(20)) << "nothing leaves before it is due";
  EXPECT_FALSE(client.read_until(": k\n\n").empty());
  EXPECT_FALSE(client.read_until(": k\n\n").empty());
  const std::lock_guard lock(mutex);
  EXPECT_FALSE(open[0].send({.status = 500})) << "too late for a plain answer";
  open[0].write("data: x\n\n");
  EXPECT_FALSE(client.read_until("data: x\n\n").empty());
  open[0].finish();
  EXPECT_FALSE(client.read_until("0\r\n\r\n").empty());
}

TEST(HttpStream, HangUpIsNoticedWhileTheClientSendsNothing) {
  TestServer test;
  std::atomic<int> hung_up = 0, begun = 0;
  std::vector<Responder> open;
  std::mutex mutex;
  const auto handler = [&](bool stream) {
    return [&, stream](const Request&, const Responder& responder) {
      responder.on_hangup([&] { ++hung_up; });
      if (stream) {
        responder.start({});
        responder.write("data: 1\n\n");
      }
      const std::lock_guard lock(mutex);
      open.push_back(responder);
      ++begun;
    };
  };
  test.application.handlers["/wait"] = handler(false);
  test.application.handlers["/stream"] = handler(true);
  test.start();
  RawClient waiting = test.client(), streaming = test.client();
  waiting.send(get("/wait"));
  streaming.send(get("/stream"));
  ASSERT_TRUE(eventually([&] { return begun == 2; }));
  EXPECT_EQ(hung_up, 0);
  waiting.close();
  EXPECT_TRUE(eventually([&] { return hung_up == 1; }));
  streaming.close();
  EXPECT_TRUE(eventually([&] { return hung_up == 2; }));
  EXPECT_TRUE(open[0].hung_up() && open[1].hung_up());
  int late = 0;
  open[0].on_hangup([&] { ++late; });
  EXPECT_EQ(late, 1);
  open.clear();
  EXPECT_TRUE(eventually([&] { return test.server.stats().connections == 0; }));
}

// A client may close its side once it has asked, and still gets its answer.
TEST(HttpStream, HalfClosedClientsGetTheirAnswer) {
  TestServer test;
  test.application.handlers["/slow"] = [](const Request&, const Responder& responder) {
    std::this_thread::sleep_for(50ms);
    responder.send({.body = "slow"});
  };
  test.start();
  RawClient client = test.client();
  client.send(get("/slow"));
  client.half_close();
  EXPECT_EQ(client.read_answer().body, "slow");
}

// It is asked meanwhile whether it is still there, which changes nothing for it.
TEST(HttpStream, HalfClosedClientsMayWaitForLong) {
  TestServer test;
  std::atomic<int> hung_up = 0;
  std::binary_semaphore asked(0), streamed(0);
  test.application.handlers["/slow"] = [&](const Request&, const Responder& responder) {
    responder.on_hangup([&] { ++hung_up; });
    asked.acquire();
    responder.send({.body = "slow"});
  };
  test.application.handlers["/stream"] = [&](const Request&, const Responder& responder) {
    responder.on_hangup([&] { ++hung_up; });
    responder.start({.keepalive = ": k\n\n"});
    responder.write("data: 1\n\n");
    streamed.acquire();
    responder.write("data: 2\n\n");
    responder.finish();
  };
  test.start();
  RawClient plain = test.client(), streaming = test.client();
  plain.send(get("/slow"));
  plain.half_close();
  streaming.send(get("/stream"));
  streaming.half_close();
  EXPECT_EQ(plain.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  asked.release();
  EXPECT_EQ(plain.read_answer().body, "slow");
  EXPECT_FALSE(streaming.read_until(": k\n\n").empty());
  streamed.release();
  const std::string stream = streaming.read_all();
  EXPECT_NE(stream.find("data: 2\n\n\r\n0\r\n\r\n"), std::string::npos) << stream;
  EXPECT_EQ(hung_up, 0);
}

TEST(HttpStream, AStalledReaderFillsItsOutboxAndIsCut) {
  http::ServerOptions options;
  options.write_timeout = 200ms;
  TestServer test(options);
  std::atomic<bool> hung_up = false;
  std::atomic<int> full = 0;
  std::atomic<uint64_t> taken = 0;
  test.application.handlers["/flood"] = [&](const Request&, const Responder& responder) {
    std::thread([&, responder] {
      responder.on_hangup([&] { hung_up = true; });
      responder.start({});
      const std::string frame(1000, 'x');
      while (true) {
        const WriteResult result = responder.write(frame);
        if (result == WriteResult::kGone) break;
        if (result == WriteResult::kTaken) taken += frame.size();
        if (result == WriteResult::kFull) {
          ++full;
          std::this_thread::sleep_for(1ms);
        }
      }
    }).detach();
  };
  test.start();
  RawClient client = test.client(4096);
  client.send(get("/flood"));
  EXPECT_TRUE(eventually([&] { return hung_up.load(); }, 3s));
  EXPECT_GT(full, 0);
  EXPECT_LT(taken, 64U << 10) << "the kernel's own buffers take megabytes";
  EXPECT_TRUE(eventually([&] { return test.server.stats().connections == 0; }));
}

// It waits for room, and would do so for ever.
TEST(HttpStream, OneThatWaitsForRoomHearsThatNobodyReads) {
  TestServer test;
  std::atomic<bool> is_full = false;
  std::atomic<bool> found_gone = false;
  test.application.handlers["/flood"] = [&](const Request&, const Responder& responder) {
    const auto fill = [responder] {
      const std::string frame(1000, 'x');
      WriteResult written;
      while ((written = responder.write(frame)) == WriteResult::kTaken) {
      }
      return written;
    };
    responder.on_ready([&, fill] { found_gone = fill() == WriteResult::kGone; });
    responder.start({});
    EXPECT_EQ(fill(), WriteResult::kFull);
    is_full = true;
  };
  test.start();
  {
    RawClient client = test.client(4096);
    client.send(get("/flood"));
    EXPECT_TRUE(eventually([&] { return is_full.load(); }, 3s));
  }
  EXPECT_TRUE(eventually([&] { return found_gone.load(); }, 3s));
}

// A writer that was not refused may still be writing: called beside that, it would be in two
// places.
TEST(HttpStream, OneThatWasNotRefusedIsNotCalled) {
  TestServer test;
  std::atomic<bool> has_written = false, has_hung_up = false;
  std::atomic<int> calls = 0;
  std::optional<Responder> open;  // until the server has stopped
  test.application.handlers["/drip"] = [&](const Request&, const Responder& responder) {
    open = responder;
    responder.on_ready([&] { ++calls; });
    responder.on_hangup([&] { has_hung_up = true; });
    responder.start({});
    EXPECT_EQ(responder.write("a frame"), WriteResult::kTaken);
    has_written = true;
  };
  test.start();
  {
    RawClient client = test.client();
    client.send(get("/drip"));
    EXPECT_TRUE(eventually([&] { return has_written.load(); }, 3s));
  }
  EXPECT_TRUE(eventually([&] { return has_hung_up.load(); }, 3s));
  test.server.stop(0s);
  EXPECT_EQ(calls, 0);
}

TEST(HttpStream, ASlowReaderIsToldWhenThereIsRoom) {
  TestServer test;
  constexpr size_t kFrames = 2000;
  struct Pump {
    Responder responder;
    size_t sent = 0;
    void run() {
      const std::string frame(1000, 'x');
      while (sent < kFrames) {
        if (responder.write(frame) != WriteResult::kTaken) return;
        ++sent;
      }
      responder.finish();
    }
  };
  test.application.handlers["/pump"] = [](const Request&, const Responder& responder) {
    responder.start({.content_length = kFrames * 1000});
    auto pump = std::make_shared<Pump>(Pump{responder});
    auto mutex = std::make_shared<std::mutex>();
    const auto run = [pump, mutex] {
      const std::lock_guard lock(*mutex);
      pump->run();
    };
    responder.on_ready(run);
    run();
  };
  test.start();
  RawClient client = test.client(4096);
  client.send(get("/pump"));
  const auto answer = client.read_answer(5000);
  EXPECT_EQ(answer.body.size(), kFrames * 1000);
  EXPECT_TRUE(eventually([&] { return test.server.stats().exchanges == 0; }));
}

}  // namespace
}  // namespace skein
