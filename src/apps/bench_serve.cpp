#include <fmt/format.h>
#include <memory>
#include <utility>

#include "apps/bench_setup.h"
#include "apps/terminal.h"
#include "base/clock.h"
#include "bench/http_load.h"
#include "bench/speculation.h"

namespace skein::apps {
namespace {

struct BenchServeOptions {
  std::string url;
  std::string model;
  std::vector<std::string> keys;
  bool chat = false;
  WorkloadFlags workload;
  std::string kind;  // of bench::speculation_workloads(); empty: `workload` says
  BenchOutput output;
  std::vector<uint32_t> concurrencies = {1, 2, 4, 8, 16, 32};
  double rate = 0;
  bool replay = false;
  uint64_t seed = 1;
  uint32_t first_prompt = 0;
};

constexpr const char* kBenchServeManual =
    "Drives any server that speaks OpenAI's completions: skein, llama-server, vLLM. Requests are\n"
    "streamed, greedy and run past stop tokens (ignore_eos). A closed loop at every level of\n"
    "--concurrency; --rate sends them at Poisson times instead, --replay at those of the trace.\n"
    "Several keys make a mixed load: requests take their classes in turn, and the table shows\n"
    "each. Ctrl-C prints what there is (130).\n\n"
    "  skein bench serve --url http://127.0.0.1:8080\n"
    "  skein bench serve --url http://127.0.0.1:8080 --rate 4 --prompts 200\n"
    "  skein bench serve --url http://127.0.0.1:8080 --key high=sk-a --key low=sk-b --rate 4\n"
    "  skein bench serve --url http://127.0.0.1:8000/v1 --save vllm.json";

// "high=sk-..." or a bare key for everyone. `classes` are those that the load consists of.
Status read_keys(const std::vector<std::string>& words, bench::HttpTarget& target,
                 std::vector<Priority>& classes) {
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
      for (std::string& key : target.keys) key = key.empty() ? word : key;
      continue;
    }
    SKEIN_ASSIGN(const Priority priority, bench::priority_of_name(word.substr(0, equals)));
    target.keys[static_cast<size_t>(priority)] = word.substr(equals + 1);
    classes.push_back(priority);
  }
  return {};
}

struct ServerLoad {
  const BenchServeOptions& options;
  bench::HttpTarget target;
  std::vector<Priority> classes;
  const SystemClock clock{};
  BenchProgress progress{};
};

// `count` requests of one kind, over and over.
Result<std::vector<bench::WorkItem>> items_of_kind(const std::string& kind, uint32_t first,
                                                   uint32_t count, uint32_t max_tokens) {
  for (const bench::SpeculationWorkload& workload : bench::speculation_workloads()) {
    if (workload.name != kind) continue;
    std::vector<bench::WorkItem> items(count);
    for (uint32_t i = 0; i < count; ++i) {
      const bench::SpeculationItem& item = workload.items[(first + i) % workload.items.size()];
      items[i].text = item.question;
      items[i].beginning = item.beginning;
      items[i].temperature = workload.temperature;
      items[i].ends_by_itself = true;
      items[i].number = first + i;
      items[i].max_tokens = max_tokens;
    }
    return items;
  }
  return invalid_argument("there is no kind of requests '{}'", kind);
}

// No level sees a prompt that an earlier one sent: the server's cache outlives a level.
Result<std::vector<bench::WorkItem>> serve_items(const ServerLoad& run, uint32_t first,
                                                 uint32_t count) {
  const WorkloadFlags& flags = run.options.workload;
  const std::string& kind = run.options.kind;
  SKEIN_ASSIGN(std::vector<bench::WorkItem> items,
               kind.empty() ? work_items(flags, first, count)
                            : items_of_kind(kind, first, count, flags.max_tokens));
  if (flags.trace.empty() && !run.classes.empty()) {
    for (size_t i = 0; i < items.size(); ++i) {
      items[i].priority = run.classes[i % run.classes.size()];
    }
  }
  if (run.options.rate > 0) bench::set_poisson_arrivals(items, run.options.rate, run.options.seed);
  return items;
}

Result<bench::BenchmarkResult> serve_level(ServerLoad& run,
                                           const std::vector<bench::WorkItem>& items,
                                           uint32_t concurrency, const InterruptFlag& interrupt) {
  uint64_t tokens = 0;
  for (const bench::WorkItem& item : items) tokens += item.max_tokens;
  run.progress.begins("serve", concurrency, tokens);
  bench::StretchMeter meter;
  const bench::LoadRun load = bench::run_http_load(
      run.target, items, concurrency, run.clock,
      [&](uint64_t so_far) { run.progress.got_tokens(so_far); }, interrupt.pressed());
  bench::BenchmarkResult result = bench::summarize("serve", concurrency, load);
  result.steal_percent = meter.read().steal_percent;
  run.progress.ended(result);
  if (result.num_requests == 0 && !load.interrupted) return bench::first_failure(load);
  if (result.failed_requests > 0) {
    fmt::print(stderr, "skein: {} requests failed, the first one with: {}\n",
               result.failed_requests, bench::first_failure(load).message());
  }
  return result;
}

CommandResult bench_serve(const BenchServeOptions& options) {
  ServerLoad run{options, {}, {}};
  SKEIN_ASSIGN(run.target.url, bench::parse_url(options.url));
  SKEIN_TRY(read_keys(options.keys, run.target, run.classes));
  run.target.model = options.model;
  run.target.chat = options.chat || !options.kind.empty();
  if (run.target.model.empty()) {
    SKEIN_ASSIGN(run.target.model, bench::first_model(run.target));
  }
  bench::BenchmarkReport report;
  report.version = SKEIN_VERSION;
  report.machine = bench::read_machine();
  report.model.name = run.target.model;
  report.workload = {.prompts = options.kind.empty() ? options.workload.name() : options.kind,
                     .requests = options.workload.prompts,
                     .max_tokens = options.workload.max_tokens,
                     .rounds = 1,
                     .url = options.url};
  const bool open_loop = options.rate > 0 || options.replay;
  const std::vector<uint32_t> levels = open_loop ? std::vector<uint32_t>{0} : options.concurrencies;
  const InterruptFlag interrupt;
  uint32_t used = options.first_prompt;
  for (const uint32_t level : levels) {
    if (interrupt.pressed()) break;
    const uint32_t count =
        level == 0 ? options.workload.prompts : bench::requests_at(level, options.workload.prompts);
    SKEIN_ASSIGN(const auto items, serve_items(run, used, count));
    used += count;
    SKEIN_ASSIGN(bench::BenchmarkResult result, serve_level(run, items, level, interrupt));
    const double first = report.results.empty() ? result.tokens_per_second
                                                : report.results.front().tokens_per_second;
    result.speedup = first > 0 ? result.tokens_per_second / first : 0;
    report.results.push_back(std::move(result));
  }
  SKEIN_TRY(show_report(report, options.output, run.target.model));
  return interrupt.pressed() ? CommandResult::interrupted() : CommandResult();
}

}  // namespace

void add_bench_serve(CLI::App& bench, CommandResult& result) {
  auto options = std::make_shared<BenchServeOptions>();
  CLI::App* command = bench.add_subcommand("serve", "Drive an OpenAI-compatible server over HTTP");
  command->footer(kBenchServeManual);
  command->add_option("--url", options->url, "http://host:port, with or without /v1")->required();
  command->add_option("--model", options->model, "Model to ask for; the server's first if absent");
  command
      ->add_option("--key", options->keys,
                   "API key, or CLASS=KEY for a class (high, normal, low); repeatable")
      ->allow_extra_args(false);
  command->add_flag("--chat", options->chat, "Chat completions instead of plain ones");
  add_workload_options(*command, options->workload);
  command->get_option("--chat")->excludes("--prompt-tokens");
  command
      ->add_option("--kind", options->kind,
                   "Chats of one kind of `bench --speculation` instead, which end by themselves: "
                   "chat, edit, quote")
      ->check(CLI::IsMember({"chat", "edit", "quote"}))
      ->excludes("--prompt-tokens")
      ->excludes("--shared-prefix")
      ->excludes("--trace");
  auto* levels = command
                     ->add_option("--concurrency", options->concurrencies,
                                  "Levels: how many requests are in flight")
                     ->delimiter(',')
                     ->check(CLI::Range(1U, 65536U))
                     ->capture_default_str();
  auto* rate = command
                   ->add_option("--rate", options->rate,
                                "Requests a second, at Poisson times, instead of levels")
                   ->check(CLI::Range(0.001, 1e6))
                   ->excludes(levels);
  command->add_flag("--replay", options->replay, "Send each request at its time in the trace")
      ->needs("--trace")
      ->excludes(rate)
      ->excludes(levels);
  command->add_option("--seed", options->seed, "Of the Poisson times")->capture_default_str();
  command
      ->add_option("--first-prompt", options->first_prompt,
                   "Number of the first prompt that is no trace's: a later run must not repeat an "
                   "earlier one")
      ->check(CLI::Range(0U, 1U << 20))
      ->capture_default_str();
  add_output_options(*command, options->output);
  command->callback([options, &result] {
    check_usage(bench::parse_url(options->url).status());
    result = bench_serve(*options);
  });
}

}  // namespace skein::apps
