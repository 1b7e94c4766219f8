// What forms cost their streams: the time between tokens of 32 streams that have 32 different
// schemas, beside 32 streams of the same length without, in one engine and in turns.
//
//   skein_form_cost MODEL [THREADS] [PAIRS]
//
// A pair is free, then bound; a second free run behind it says what the machine adds by itself. On
// cores that others use too, 1.03 is held where the 95 % interval of the pairs' median reaches it;
// else the status is 1. CPU time is the whole process's, and says more there: with one thread,
// which never waits for another one, all of it is work. Every bound run compiles its forms anew, so
// that nothing of an earlier run is known: masks are found, not remembered.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fmt/core.h>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "engine/forms/form_cache.h"
#include "engine/manager/load_served_model.h"

namespace skein {
namespace {

constexpr uint32_t kStreams = 32, kPrompt = 8, kGenerated = 64;
constexpr uint64_t kMemory = uint64_t{4} << 30;
constexpr double kFloor = 1.03, kGoal = 1.01;

struct Seconds {
  double wall = 0, cpu = 0;
};

Seconds now() {
  const auto seconds = [](clockid_t clock) {
    timespec at{};
    clock_gettime(clock, &at);
    return static_cast<double>(at.tv_sec) + 1e-9 * static_cast<double>(at.tv_nsec);
  };
  return {seconds(CLOCK_MONOTONIC), seconds(CLOCK_PROCESS_CPUTIME_ID)};
}

// A list that does not end before the answer is cut, of objects that no other stream has.
std::string schema_of(uint32_t stream) {
  return fmt::format(
      R"({{"type":"array","minItems":1000,"items":{{"type":"object","additionalProperties":false,)"
      R"("required":["id{0}","name_{0}","kind","ok"],"properties":{{)"
      R"("id{0}":{{"type":"integer","minimum":0,"maximum":{1}}},)"
      R"("name_{0}":{{"type":"string","maxLength":{2}}},)"
      R"("kind":{{"enum":["first","second{0}","third","none of these"]}},)"
      R"("tags{0}":{{"type":"array","items":{{"type":"string","pattern":"^[a-z]{{2,9}}$"}},"maxItems":4}},)"
      R"("price":{{"type":"number","minimum":0}},"ok":{{"type":"boolean"}}}}}}}})",
      stream, 1000 + 37 * stream, 10 + stream);
}

class Streams {
 public:
  Streams(ServedModel& served, float temperature) : served_(served), temperature_(temperature) {}

  // Seconds between tokens, from the moment that all streams have their first one.
  Seconds measure(bool bound) const {
    std::vector<GenerationRequest> requests = make(bound);
    const uint64_t before = served_.snapshot().scheduler.generated_tokens;
    std::vector<RequestHandle> handles;
    for (GenerationRequest& request : requests) {
      handles.push_back(served_.submit(std::move(request), {}).value());
    }
    while (served_.snapshot().scheduler.generated_tokens < before + kStreams) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    const Seconds begun = now();
    StreamChunk chunk;
    for (RequestHandle& handle : handles) {
      uint32_t tokens = 0;
      do {
        handle.stream().wait(chunk);
        tokens += static_cast<uint32_t>(chunk.tokens.size());
      } while (!chunk.end);
      if (tokens == kGenerated) continue;
      fmt::print(stderr, "an answer has {} tokens instead of {}: {}\n", tokens, kGenerated,
                 chunk.end->status.message());
      std::exit(2);
    }
    const Seconds ended = now();
    return {(ended.wall - begun.wall) / (kGenerated - 1),
            (ended.cpu - begun.cpu) / (kGenerated - 1)};
  }

 private:
  std::vector<GenerationRequest> make(bool bound) const {
    FormCache forms(served_.model().tokenizer()->tokenizer, served_.vocab());
    if (bound && !forms.prepare().ok()) std::exit(2);
    std::vector<GenerationRequest> requests(kStreams);
    for (uint32_t i = 0; i < kStreams; ++i) {
      Rng rng(i);
      for (uint32_t n = 0; n < kPrompt; ++n) {
        requests[i].prompt.push_back(static_cast<TokenId>(rng.below(served_.vocab())));
      }
      requests[i].max_tokens = kGenerated;
      requests[i].sampling.temperature = temperature_;
      requests[i].sampling.seed = i;
      requests[i].sampling.ignore_eos = true;
      if (!bound) continue;
      auto form = forms.compile({.kind = FormSpec::Kind::kJsonSchema, .text = schema_of(i)});
      if (!form.ok()) {
        fmt::print(stderr, "{}\n", form.error().message);
        std::exit(2);
      }
      requests[i].form = *form;
    }
    return requests;
  }

  ServedModel& served_;
  const float temperature_;
};

struct Median {
  double value, low, high;  // with its 95 % interval, by order statistics
};

Median median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  // The number of values below the median is binomial.
  double share = std::pow(0.5, static_cast<double>(n)), sum = share;
  size_t rank = 0;
  while (sum <= 0.025 && rank + 1 < (n + 1) / 2) {
    ++rank;
    share *= static_cast<double>(n - rank + 1) / static_cast<double>(rank);
    sum += share;
  }
  rank -= sum > 0.025 && rank > 0 ? 1 : 0;
  return {values[n / 2], values[rank], values[n - 1 - rank]};
}

bool compare(ServedModel& served, float temperature, uint32_t pairs) {
  const Streams streams(served, temperature);
  (void)streams.measure(true);  // what is new to everybody
  std::vector<double> bound, bound_cpu, again, again_cpu;
  double free_s = 0;
  const uint64_t put_off = served.snapshot().put_off;
  for (uint32_t i = 0; i < pairs; ++i) {
    const Seconds first = streams.measure(false), with = streams.measure(true),
                  last = streams.measure(false);
    bound.push_back(with.wall / first.wall);
    bound_cpu.push_back(with.cpu / first.cpu);
    again.push_back(last.wall / first.wall);
    again_cpu.push_back(last.cpu / first.cpu);
    free_s += first.wall;
  }
  const Median cost = median(bound), noise = median(again);
  const Median cpu = median(bound_cpu), cpu_noise = median(again_cpu);
  const bool holds = cost.low <= kFloor;
  fmt::print(
      "temperature {}: {} streams, {:.2f} ms between tokens; with {} different schemas {:.4f} "
      "times "
      "as long ({:.4f} to {:.4f}), without again {:.4f} ({:.4f} to {:.4f}), {} pairs, {} tokens "
      "drawn "
      "beside the steps: {} at most {}, goal {}\n",
      temperature, kStreams, 1e3 * free_s / pairs, kStreams, cost.value, cost.low, cost.high,
      noise.value, noise.low, noise.high, pairs, served.snapshot().put_off - put_off,
      holds ? "holds" : "DOES NOT HOLD", kFloor, kGoal);
  fmt::print(
      "temperature {}: CPU time {:.4f} times ({:.4f} to {:.4f}), without again {:.4f} ({:.4f} to "
      "{:.4f})\n",
      temperature, cpu.value, cpu.low, cpu.high, cpu_noise.value, cpu_noise.low, cpu_noise.high);
  std::fflush(stdout);
  return holds;
}

int run(const char* path, uint32_t threads, uint32_t pairs) {
  const SystemClock clock;
  ComputePool pool(threads);
  ServingOptions serving;
  serving.engine.scheduler.max_batch = kStreams;
  serving.engine.scheduler.prefix_cache = false;
  serving.engine.stall_timeout_us = 3600 * kUsPerSecond;  // streams are read one after the other
  SchedulerManager models({.memory_bytes = kMemory}, make_model_loader(serving, pool, clock),
                          clock);
  if (const Status added = models.add({.id = "model", .path = path}); !added.ok()) {
    fmt::print(stderr, "{}\n", added.message());
    return 2;
  }
  auto lease = models.acquire("model");
  if (!lease.ok()) {
    fmt::print(stderr, "{}\n", lease.message());
    return 2;
  }
  bool holds = true;
  for (const float temperature : {0.0F, 0.8F}) {
    holds = compare(**lease, temperature, pairs) && holds;
  }
  return holds ? 0 : 1;
}

}  // namespace
}  // namespace skein

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: skein_form_cost MODEL [THREADS] [PAIRS]\n");
    return 2;
  }
  const auto number = [&](int at, uint32_t otherwise) {
    return argc > at ? static_cast<uint32_t>(std::atoi(argv[at])) : otherwise;
  };
  const uint32_t cores = std::max(1U, std::thread::hardware_concurrency());
  return skein::run(argv[1], number(2, cores), std::max(1U, number(3, 15)));
}
