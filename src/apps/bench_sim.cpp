#include <cmath>
#include <fmt/format.h>
#include <memory>

#include "apps/bench_setup.h"
#include "bench/fleet_sim.h"
#include "bench/report.h"
#include "bench/schedule_sim.h"

namespace skein::apps {
namespace {

struct BenchSimOptions {
  WorkloadFlags workload;
  bench::SyntheticLoad load;
  uint32_t max_batch = 32, pool_blocks = 4096, max_queue = 1024, step_tokens = 256;
  double aging_rate = 0.1, step_ms = 5, token_ms = 1, inter_token_target_ms = 0;
  bool no_prefix_cache = false;
  bool markdown = false;
  uint32_t nodes = 1;
  std::vector<std::string> routers;
  std::vector<std::string> fail;
  double event_delay_ms = 0;
};

constexpr const char* kBenchSimManual =
    "The scheduler that serves, on a clock that is only counted: what a class waits under a load,\n"
    "in no time at all and always the same. A step costs --step-ms and --token-ms for each of its\n"
    "tokens; `skein bench` tells what they are for a model here.\n"
    "--trace takes JSON lines, or the log of a server: the requests as they really came.\n\n"
    "  skein bench sim --rate 3 --requests 2000\n"
    "  skein bench sim --trace server.log --batch-max-batch-size 8\n"
    "  skein bench sim --rate 3 --aging-rate 1\n\n"
    "With --nodes there are several such schedulers behind a router, and the made-up requests are\n"
    "conversations. A router knows what it has sent and what has ended; `prefix` also knows what "
    "the\n"
    "caches held --event-delay-ms ago, as KV events tell. --fail has a node die; what it had begun "
    "is\n"
    "run again elsewhere. Mooncake's traces are taken as they are.\n\n"
    "  skein bench sim --nodes 8 --rate 20 --requests 4000\n"
    "  skein bench sim --nodes 3 --router hash --fail 60:2\n"
    "  skein bench sim --nodes 8 --trace conversation_trace.jsonl --step-tokens 2048 --token-ms "
    "0.125";

bench::SimLoad sim_load(const BenchSimOptions& options) {
  bench::SimLoad load;
  load.scheduler.pool_blocks = options.pool_blocks;
  load.scheduler.max_batch = options.max_batch;
  load.scheduler.max_queue = options.max_queue;
  load.scheduler.step_tokens = options.step_tokens;
  load.scheduler.max_context = 1 << 20;
  load.scheduler.vocab_size = 50'000;
  load.scheduler.us_per_class =
      static_cast<TimeUs>(std::llround(kUsPerSecond / options.aging_rate));
  load.scheduler.inter_token_target_us =
      static_cast<TimeUs>(std::llround(options.inter_token_target_ms * kUsPerMs));
  load.scheduler.prefix_cache = !options.no_prefix_cache;
  load.step_us = static_cast<TimeUs>(std::llround(options.step_ms * kUsPerMs));
  load.token_us = static_cast<TimeUs>(std::llround(options.token_ms * kUsPerMs));
  return load;
}

std::string three(const bench::Spread& spread) {
  return fmt::format("{} / {} / {}", bench::readable(spread.p50), bench::readable(spread.p99),
                     bench::readable(spread.max));
}

// AT:NODE, in seconds and from 1 on.
Result<bench::NodeFailure> parse_failure(const std::string& text) {
  const size_t colon = text.find(':');
  double seconds = 0;
  uint32_t node = 0;
  if (colon == std::string::npos || !CLI::detail::lexical_cast(text.substr(0, colon), seconds) ||
      !CLI::detail::lexical_cast(text.substr(colon + 1), node) || node == 0 || !(seconds >= 0) ||
      seconds > 1e9) {
    return invalid_argument("--fail {}: it is AT:NODE, as in 60:2, seconds and a node from 1 on",
                            text);
  }
  return bench::NodeFailure{static_cast<TimeUs>(std::llround(seconds * kUsPerSecond)), node - 1};
}

Result<bench::FleetLoad> fleet_load(const BenchSimOptions& options) {
  bench::FleetLoad load;
  load.node = sim_load(options);
  load.nodes = options.nodes;
  load.event_delay_us = static_cast<TimeUs>(std::llround(options.event_delay_ms * kUsPerMs));
  load.seed = options.load.seed;
  for (const std::string& text : options.fail) {
    SKEIN_ASSIGN(const bench::NodeFailure failure, parse_failure(text));
    load.failures.push_back(failure);
  }
  return load;
}

Status bench_fleet(const BenchSimOptions& options) {
  std::vector<bench::WorkItem> items;
  if (options.workload.trace.empty()) {
    items = bench::synthetic_chats(
        {.requests = options.load.requests, .rate = options.load.rate, .seed = options.load.seed});
  } else {
    SKEIN_ASSIGN(items, read_trace(options.workload));
  }
  SKEIN_ASSIGN(bench::FleetLoad load, fleet_load(options));
  std::vector<bench::FleetRouter> routers;
  for (const std::string& name : options.routers) {
    SKEIN_ASSIGN(routers.emplace_back(), bench::router_of_name(name));
  }
  if (routers.empty())
    routers.assign(std::begin(bench::kFleetRouters), std::end(bench::kFleetRouters));
  bench::TextTable table({"router", "requests", "refused", "run again", "found in caches",
                          "first token p50/p90/p99 s", "latency p50/p99 s", "busiest node"});
  for (const bench::FleetRouter router : routers) {
    load.router = router;
    SKEIN_ASSIGN(const bench::FleetOutcome out, bench::simulate_fleet(items, load));
    table.add({std::string(bench::name_of(router)), fmt::format("{}", out.requests),
               fmt::format("{}", out.refused), fmt::format("{}", out.run_again),
               fmt::format("{:.1f} %", 100 * out.hit_rate),
               fmt::format("{:.2f} / {:.2f} / {:.2f}", out.p50_s, out.p90_s, out.p99_s),
               fmt::format("{:.2f} / {:.2f}", out.latency_ms.p50 / 1000, out.latency_ms.p99 / 1000),
               fmt::format("{:.2f} of the mean", out.busiest)});
  }
  fmt::print("{}", table.print(table_style(options.markdown)));
  return {};
}

Status bench_sim(const BenchSimOptions& options) {
  if (options.nodes > 1) return bench_fleet(options);
  std::vector<bench::WorkItem> items;
  if (options.workload.trace.empty()) {
    items = bench::synthetic_items(options.load);
  } else {
    SKEIN_ASSIGN(items, read_trace(options.workload));
  }
  SKEIN_ASSIGN(const bench::SimOutcome out, bench::simulate_schedule(items, sim_load(options)));
  bench::TextTable table({"class", "requests", "refused", "queue p50/p99/max ms",
                          "first token p50/p99/max ms", "latency p50/p99/max ms"});
  for (const bench::ClassWaits& waits : out.classes) {
    table.add({std::string(name_of(waits.priority)), fmt::format("{}", waits.requests),
               fmt::format("{}", waits.refused), three(waits.queue_ms), three(waits.first_token_ms),
               three(waits.latency_ms)});
  }
  fmt::print("{}", table.print(table_style(options.markdown)));
  fmt::print(
      "\n{:.1f} s of virtual time, {} steps of {:.1f} requests, {} tokens ({} per second), {} "
      "preemptions, {} prompt tokens from the prefix cache\n"
      "nothing that arrives more than {:.1f} s later can overtake, {:.1f} s from LOW to HIGH\n",
      out.seconds, out.steps, out.mean_batch, out.generated_tokens,
      bench::readable(out.seconds > 0 ? static_cast<double>(out.generated_tokens) / out.seconds
                                      : 0),
      out.preemptions, out.prefix_hit_tokens, 1 / options.aging_rate, 2 / options.aging_rate);
  return {};
}

void add_load_options(CLI::App& command, BenchSimOptions& options) {
  auto* trace = command.add_option("--trace", options.workload.trace,
                                   "Requests: JSON lines, or a server's log");
  command.add_option("--requests", options.load.requests, "Made-up requests instead")
      ->check(CLI::Range(1U, 10'000'000U))
      ->capture_default_str()
      ->excludes(trace);
  command.add_option("--rate", options.load.rate, "Of them a second, at Poisson times")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str()
      ->excludes(trace);
  command.add_option("--high-percent", options.load.high_percent, "Of them HIGH")
      ->check(CLI::Range(0U, 100U))
      ->capture_default_str();
  command.add_option("--low-percent", options.load.low_percent, "Of them LOW")
      ->check(CLI::Range(0U, 100U))
      ->capture_default_str();
  command.add_option("--seed", options.load.seed, "Of the made-up requests")->capture_default_str();
}

void add_fleet_options(CLI::App& command, BenchSimOptions& options) {
  auto* nodes = command.add_option("--nodes", options.nodes, "Schedulers behind a router")
                    ->check(CLI::Range(1U, 1024U))
                    ->capture_default_str();
  command
      .add_option("--router", options.routers,
                  "random, round-robin, least-loaded, hash or prefix; repeatable, all without it")
      ->needs(nodes);
  command
      .add_option("--fail", options.fail,
                  "AT:NODE: after so many seconds that node dies; repeatable")
      ->needs(nodes);
  command
      .add_option("--event-delay-ms", options.event_delay_ms,
                  "How old what `prefix` knows of the caches is")
      ->check(CLI::Range(0.0, 1e6))
      ->needs(nodes);
}

}  // namespace

void add_bench_sim(CLI::App& bench, CommandResult& result) {
  auto options = std::make_shared<BenchSimOptions>();
  CLI::App* command =
      bench.add_subcommand("sim", "Waits per class: the scheduler on a virtual clock");
  command->footer(kBenchSimManual);
  add_load_options(*command, *options);
  add_fleet_options(*command, *options);
  command->add_option("--batch-max-batch-size", options->max_batch, "Requests in a step")
      ->check(CLI::Range(1U, 4096U))
      ->capture_default_str();
  command->add_option("--batch-block-pool-size", options->pool_blocks, "KV blocks of 32 tokens")
      ->check(CLI::Range(1U, 1U << 24))
      ->capture_default_str();
  command->add_option("--max-queue", options->max_queue, "Requests that may wait")
      ->check(CLI::Range(1U, 1U << 20))
      ->capture_default_str();
  command->add_option("--step-tokens", options->step_tokens, "Prompt tokens in a step")
      ->check(CLI::Range(1U, 1U << 16))
      ->capture_default_str();
  command->add_option("--aging-rate", options->aging_rate, "Classes a second")
      ->check(CLI::Range(0.001, 1000.0))
      ->capture_default_str();
  command
      ->add_option("--inter-token-target-ms", options->inter_token_target_ms,
                   "Milliseconds between tokens that prompts must not exceed; 0: none")
      ->check(CLI::Range(0.0, 60000.0));
  command->add_flag("--no-prefix-cache", options->no_prefix_cache, "Compute every prompt whole");
  command->add_option("--step-ms", options->step_ms, "Time of every step")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->add_option("--token-ms", options->token_ms, "Time of every token in a step")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->add_flag("--markdown", options->markdown, "Print the table as Markdown");
  command->callback([options, &result] {
    if (options->step_ms + options->token_ms <= 0) {
      check_usage(invalid_argument("--step-ms and --token-ms are both 0: nothing takes time"));
    }
    if (options->load.high_percent + options->load.low_percent > 100) {
      check_usage(invalid_argument("{} % HIGH and {} % LOW are more than all",
                                   options->load.high_percent, options->load.low_percent));
    }
    result = bench_sim(*options);
  });
}

}  // namespace skein::apps
