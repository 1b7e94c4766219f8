// What streams cost: memory while they idle, CPU per token while they run.
#include <fstream>
#include <gtest/gtest.h>
#include <mutex>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>

#include "engine/models.h"
#include "engine/tiny_model.h"
#include "server/api/answer_writer.h"
#include "server/test_application.h"

namespace skein {
namespace {

using namespace std::chrono_literals;
using testing::eventually;
using testing::RawClient;

// Clients in a process of their own, so that only the server's cost is measured: opens `streams`,
// reads until all have ended.
class Clients {
 public:
  Clients() {
    if (pipe(port_) != 0) std::abort();
    child_ = fork();
    if (child_ != 0) return;
    uint16_t port = 0;
    size_t streams = 0;
    if (read(port_[0], &port, sizeof(port)) <= 0) _exit(1);
    if (read(port_[0], &streams, sizeof(streams)) <= 0) _exit(1);
    std::vector<RawClient> clients;
    for (size_t i = 0; i < streams; ++i) {
      clients.emplace_back(port);
      clients.back().send(testing::get("/stream", "Connection: close\r\n"));
    }
    std::vector<pollfd> waiting;
    for (const RawClient& client : clients) waiting.push_back({client.fd(), POLLIN, 0});
    for (size_t open = streams; open > 0;) {
      if (poll(waiting.data(), waiting.size(), 60'000) <= 0) _exit(1);
      for (size_t i = 0; i < streams; ++i) {
        if (waiting[i].revents == 0) continue;
        if (!clients[i].receive(0)) {
          waiting[i].fd = -1;
          --open;
        }
        clients[i].received().clear();
      }
    }
    _exit(0);
  }
  ~Clients() { wait(); }
  void open(uint16_t port, size_t streams) {
    EXPECT_GT(write(port_[1], &port, sizeof(port)), 0);
    EXPECT_GT(write(port_[1], &streams, sizeof(streams)), 0);
  }
  void wait() {
    if (child_ > 0) waitpid(child_, nullptr, 0);
    child_ = 0;
  }

 private:
  int port_[2] = {};
  pid_t child_ = 0;
};

struct Streams {
  explicit Streams(testing::TestServer& test) {
    test.application.handlers["/stream"] = [this](const http::Request&,
                                                  const http::Responder& responder) {
      responder.start({.keepalive = ": keepalive\n\n"});
      responder.write("data: first\n\n");
      const std::lock_guard lock(mutex);
      open.push_back(responder);
    };
  }
  size_t count() {
    const std::lock_guard lock(mutex);
    return open.size();
  }
  std::mutex mutex;
  std::vector<http::Responder> open;
};

double cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  size_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(StreamCost, AnIdleStreamIsSmall) {
  constexpr size_t kStreams = 1000;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < kStreams + 100) GTEST_SKIP() << files.rlim_cur << " files are too few";
  Clients clients;
  testing::TestServer test;
  Streams streams(test);
  test.start();
  const size_t before = resident_bytes();
  clients.open(test.server.port(), kStreams);
  ASSERT_TRUE(eventually([&] { return streams.count() == kStreams; }, 20s));
  std::this_thread::sleep_for(200ms);
  const size_t each = (resident_bytes() - before) / kStreams;
  std::printf("an idle stream holds %zu bytes\n", each);
  EXPECT_LT(each, 64U << 10);
  for (const http::Responder& responder : streams.open) responder.finish();
  clients.wait();
  EXPECT_TRUE(eventually([&] { return test.server.stats().connections == 0; }));
}

TEST(StreamCost, ATokenIsCheap) {
  constexpr size_t kStreams = 32, kTokens = 1000;
  Clients clients;
  testing::TestServer test;
  Streams streams(test);
  test.start();
  clients.open(test.server.port(), kStreams);
  ASSERT_TRUE(eventually([&] { return streams.count() == kStreams; }, 20s));
  const api::Identity identity{"chatcmpl-0123456789abcdef", 1'700'000'000, "some/model"};
  api::AnswerOptions wanted;
  wanted.stream = true;
  const testing::TestFolder folder;
  const LoadedTokenizer loaded = testing::load(testing::write_tiny_model(folder));
  const auto writer = api::AnswerKind::kChat.make_writer({identity, wanted, loaded.tokenizer});
  std::string frame;
  size_t lost = 0;
  const double before = cpu_us();
  for (size_t token = 0; token < kTokens; ++token) {  // one step of an engine each
    for (const http::Responder& responder : streams.open) {
      frame.clear();
      writer->write(frame, 0, AnswerContent{" token", {}, {}}, {});
      http::WriteResult result = responder.write(frame);
      while (result == http::WriteResult::kFull) {  // the clients are slower than the engine here
        std::this_thread::sleep_for(1ms);
        result = responder.write(frame);
      }
      lost += result != http::WriteResult::kTaken;
    }
    std::this_thread::sleep_for(1ms);
  }
  const double each = (cpu_us() - before) / (kStreams * kTokens);
  std::printf("a token costs %.2f us of CPU in 32 streams\n", each);
  EXPECT_EQ(lost, 0U);
  EXPECT_LT(each, 25.0);
  for (const http::Responder& responder : streams.open) responder.finish();
  clients.wait();
}

}  // namespace
}  // namespace skein
