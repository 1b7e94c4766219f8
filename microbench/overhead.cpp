// What HTTP costs: tokens per second of 32 streams through a whole server, beside the same requests
// given to the engine directly, in one process and in turns; and the CPU time of the server's
// threads per token.
//
//   skein_overhead MODEL [THREADS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/rng.h"
#include "engine/manager/load_served_model.h"
#include "server/http_client.h"
#include "server/server.h"

namespace skein {
namespace {

constexpr uint32_t kStreams = 32, kPrompt = 32, kGenerated = 32, kRounds = 9;
constexpr uint64_t kMemory = uint64_t{4} << 30;
constexpr int kPatienceMs = 600'000;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<TokenId> prompt_of(uint32_t round, uint32_t stream, uint32_t vocab) {
  Rng rng(round * kStreams + stream);
  std::vector<TokenId> prompt(kPrompt);
  for (TokenId& token : prompt) token = static_cast<TokenId>(rng.below(vocab));
  return prompt;
}

// The clients, in a process of their own that is made before there are any threads. They take turns
// with the parent over two pipes: a Round goes in, seconds come out.
class Clients {
 public:
  struct Round {
    uint16_t port = 0;
    uint32_t number = 0;
    uint32_t vocab = 0;
  };

  Clients() {
    if (pipe(in_) != 0 || pipe(out_) != 0) std::abort();
    child_ = fork();
    if (child_ != 0) return;
    close(in_[1]);
    Round round;
    while (read(in_[0], &round, sizeof(round)) == sizeof(round)) {
      const double seconds = run(round);
      if (write(out_[1], &seconds, sizeof(seconds)) < 0) break;
    }
    _exit(0);
  }
  ~Clients() {
    close(in_[1]);
    waitpid(child_, nullptr, 0);
  }
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;

  // Seconds from the first request to the last [DONE]; negative when a stream did not end well.
  double measure(const Round& round) {
    double seconds = -1;
    if (write(in_[1], &round, sizeof(round)) < 0 ||
        read(out_[0], &seconds, sizeof(seconds)) != sizeof(seconds)) {
      return -1;
    }
    return seconds;
  }

 private:
  static std::string body_of(const Round& round, uint32_t stream) {
    std::string ids;
    for (const TokenId id : prompt_of(round.number, stream, round.vocab)) {
      ids += (ids.empty() ? "" : ",") + std::to_string(id);
    }
    return R"({"stream":true,"temperature":0,"ignore_eos":true,"max_tokens":)" +
           std::to_string(kGenerated) + R"(,"prompt":[)" + ids + "]}";
  }

  static double run(const Round& round) {
    std::vector<std::string> requests;
    std::vector<testing::RawClient> clients;
    for (uint32_t i = 0; i < kStreams; ++i) {
      // An answer that is no stream ends the connection, and with it the wait.
      requests.push_back(testing::post("/v1/completions", body_of(round, i),
                                       "Content-Type: application/json\r\nConnection: close\r\n"));
      clients.emplace_back(round.port);
    }
    const double begun = now_s();
    for (uint32_t i = 0; i < kStreams; ++i) clients[i].send(requests[i]);
    bool whole = true;
    // What comes while another one is read waits in its socket, which has room for all of it.
    for (testing::RawClient& client : clients) {
      whole &= !client.read_until("data: [DONE]\n\n", kPatienceMs).empty();
    }
    return whole ? now_s() - begun : -1;
  }

  int in_[2] = {}, out_[2] = {};
  pid_t child_ = 0;
};

std::set<std::string> threads_now() {
  std::set<std::string> ids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    ids.insert(entry.path().string());
  }
  return ids;
}

// Microseconds that these threads have run.
double cpu_us(const std::set<std::string>& threads) {
  double us = 0;
  for (const std::string& thread : threads) {
    double ns = 0;
    std::ifstream(thread + "/schedstat") >> ns;
    us += ns * 1e-3;
  }
  return us;
}

double measure_engine(ServedModel& served, uint32_t round) {
  std::vector<GenerationRequest> requests(kStreams);
  for (uint32_t i = 0; i < kStreams; ++i) {
    requests[i].prompt = prompt_of(round, i, served.vocab());
    requests[i].max_tokens = kGenerated;
    requests[i].sampling.temperature = 0;
    requests[i].sampling.ignore_eos = true;
  }
  std::vector<RequestHandle> handles;
  const double begun = now_s();
  for (GenerationRequest& request : requests) {
    handles.push_back(served.submit(std::move(request), {}).value());
  }
  StreamChunk chunk;
  for (RequestHandle& handle : handles) {
    do {
      handle.stream().wait(chunk);
    } while (!chunk.end);
  }
  return now_s() - begun;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Stage {
  std::unique_ptr<SchedulerManager> models;
  std::shared_ptr<ServedModel> served;
  std::unique_ptr<Server> server;
  std::set<std::string> server_threads;
};

// The model is loaded before the server has threads, so that its own can be told apart.
Status set_up(Stage& stage, const char* path, const std::string& state_dir, ComputePool& pool,
              const Clock& clock) {
  ServingOptions serving;
  serving.engine.scheduler.max_batch = kStreams;
  serving.engine.scheduler.prefix_cache = false;
  stage.models =
      std::make_unique<SchedulerManager>(SchedulerManager::Options{.memory_bytes = kMemory},
                                         make_model_loader(serving, pool, clock), clock);
  SKEIN_TRY(stage.models->add({.id = "model", .path = path}));
  SKEIN_ASSIGN(ModelLease lease, stage.models->acquire("model"));
  stage.served = lease->shared_from_this();
  const std::set<std::string> before = threads_now();
  ServerSettings settings;
  settings.store.state_dir = state_dir;
  settings.default_model = "model";
  SKEIN_ASSIGN(stage.server, Server::create(settings, *stage.models, clock));
  SKEIN_TRY(stage.server->start());
  stage.server->set_ready();
  for (const std::string& thread : threads_now()) {
    if (before.count(thread) == 0) stage.server_threads.insert(thread);
  }
  return {};
}

struct Round {
  double engine = 0;  // tokens per second
  double http = 0;
  double cpu_us = 0;  // of the server's threads, per token
};

// Each way once, directly after the other: what else the machine does then meets both.
std::optional<Round> measure(Stage& stage, Clients& clients, uint32_t number) {
  constexpr double kTokens = double{kStreams} * kGenerated;
  const double start = cpu_us(stage.server_threads);
  const double alone = measure_engine(*stage.served, number);
  const double before = cpu_us(stage.server_threads);
  const double served = clients.measure({stage.server->port(), number, stage.served->vocab()});
  if (served < 0) return std::nullopt;
  // What an idle server does by the clock is no cost of a token.
  const double idle = (before - start) / alone * served;
  return Round{kTokens / alone, kTokens / served,
               (cpu_us(stage.server_threads) - before - idle) / kTokens};
}

int measure_all(Stage& stage, Clients& clients) {
  std::vector<double> shares, cpu;
  for (uint32_t number = 0; number < kRounds; ++number) {
    const auto round = measure(stage, clients, number);
    if (!round) {
      std::fprintf(stderr, "a stream did not end with [DONE]\n");
      return 1;
    }
    shares.push_back(round->http / round->engine);
    cpu.push_back(round->cpu_us);
    std::printf("engine %.1f tokens/s   over HTTP %.1f (%.1f %%)   %.1f us of CPU a token\n",
                round->engine, round->http, 100 * shares.back(), cpu.back());
    std::fflush(stdout);
  }
  std::printf(
      "overhead: %u streams over HTTP give %.1f %% of the engine's tokens, %.1f us of CPU a "
      "token in the server's threads (medians of %u)\n",
      kStreams, 100 * median(shares), median(cpu), kRounds);
  return median(shares) >= 0.9 && median(cpu) <= 25 ? 0 : 1;
}

int run(const char* path, size_t threads) {
  Clients clients;
  std::string state_dir =
      (std::filesystem::temp_directory_path() / "skein-overhead-XXXXXX").string();
  if (mkdtemp(state_dir.data()) == nullptr) return 1;
  const SystemClock clock;
  ComputePool pool(threads);
  Stage stage;
  const Status ready = set_up(stage, path, state_dir, pool, clock);
  if (!ready.ok()) std::fprintf(stderr, "%s\n", ready.message().c_str());
  const int outcome = ready.ok() ? measure_all(stage, clients) : 1;
  if (stage.server) stage.server->stop(std::chrono::seconds(1));
  stage.served = nullptr;
  stage.models->shutdown(kUsPerSecond);
  stage.server = nullptr;
  std::filesystem::remove_all(state_dir);
  return outcome;
}

}  // namespace
}  // namespace skein

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s MODEL [THREADS]\n", argv[0]);
    return 2;
  }
  return skein::run(argv[1], argc > 2 ? std::strtoul(argv[2], nullptr, 10)
                                      : std::max(1U, std::thread::hardware_concurrency()));
}
