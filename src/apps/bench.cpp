#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <utility>

#include "apps/bench_commands.h"
#include "apps/bench_output.h"
#include "apps/bench_progress.h"
#include "apps/commands.h"
#include "apps/dummy_model.h"
#include "apps/files.h"
#include "apps/interrupt.h"
#include "apps/model_path.h"
#include "bench/model_target.h"

namespace skein::apps {
namespace {

struct CompareModesOptions {
  BenchModelFlags model;
  WorkloadFlags workload;
  BenchOutput output;
  std::vector<uint32_t> concurrencies = {1, 2, 4, 8, 16, 32, 64};
  uint32_t rounds = 1;
  uint32_t step_tokens = 256;
  uint32_t pool_blocks = 0;
  uint32_t long_prompt_tokens = 0;
  double inter_token_target_ms = 0;
  double max_slowdown = 2.5;
  bool no_limits = false;
  bool no_single = false;
};

constexpr const char* kBenchManual =
    "Without a subcommand: the same prompts one at a time, then 1, 2, 4, ... 64 at once, in this\n"
    "process, past any stop token. tokens/s counts generated tokens over all of the time;\n"
    "prefill/s prompt tokens over the time in which somebody waited for a first token; decode/s\n"
    "those generated while all places were taken and nobody did, which is what the hardware's "
    "limit\n"
    "can be held against. No two prompts begin alike, so the prefix cache helps nobody unless\n"
    "--shared-prefix asks for it. Ctrl-C prints what there is (130).\n\n"
    "  skein bench\n"
    "  skein bench --model m.gguf --concurrency 1,8,32 --rounds 3 --plot m.svg --save m.json\n"
    "  skein bench --prompt-tokens 128 -n 128 --prompts 32 --concurrency 32\n"
    "  skein bench --dummy-weights config.json --dummy-quant Q4_0\n"
    "  skein bench serve --url http://127.0.0.1:8080\n"
    "  skein bench compare a.json b.json\n"
    "  skein bench sim --rate 3 --requests 2000\n"
    "  skein bench roofline";

// Numbers of made-up prompts from here on are the long ones'.
constexpr uint32_t kFirstLong = 1U << 31;

uint32_t largest(const std::vector<uint32_t>& values) {
  return values.empty() ? 1 : *std::max_element(values.begin(), values.end());
}

bench::BenchmarkReport report_of(const LoadedModel& model, const BenchModelFlags& flags,
                                 const bench::ModelCosts& costs, uint32_t threads) {
  bench::BenchmarkReport report;
  report.version = SKEIN_VERSION;
  report.machine = bench::read_machine();
  report.machine.threads = threads;
  const std::string_view backend = model.backend().name();  // "cpu/avx2"
  report.machine.isa = backend.substr(backend.find('/') + 1);
  report.model.name = flags.name();
  report.model.family = model.decoder().spec().family;
  report.model.precision = flags.model.precision;
  report.model.weight_bytes = costs.weight_bytes;
  report.model.kv_bytes_per_token = costs.kv_bytes_per_token;
  report.model.context = model.decoder().max_context();
  return report;
}

void add_limits(bench::BenchmarkReport& report, const bench::ModelCosts& costs, ComputePool& pool) {
  bench::BandwidthProbe probe(pool);
  for (bench::BenchmarkResult& result : report.results) {
    if (result.long_prompt_tokens > 0) continue;  // such a step has other work too
    const bench::StepLimit limit =
        bench::step_limit(costs, static_cast<uint32_t>(result.concurrency),
                          result.mean_context_tokens, report.limits->best_tera_per_second(),
                          [&](uint64_t bytes) { return probe.gb_per_second(bytes); });
    result.limit_tokens_per_second = limit.tokens_per_second;
    if (result.decode_tokens_per_second > 0) {
      result.percent_of_limit = 100 * result.decode_tokens_per_second / limit.tokens_per_second;
    }
  }
}

Result<CommandResult> compare_modes(const CompareModesOptions& options) {
  bench::BenchOptions levels{options.concurrencies, options.workload.prompts, options.rounds,
                             !options.no_single};
  SKEIN_ASSIGN(const auto items, work_items(options.workload, 0, bench::requests_needed(levels)));
  const uint32_t batch = largest(options.concurrencies) + (options.long_prompt_tokens > 0 ? 1 : 0);
  SKEIN_ASSIGN(
      BenchModel loaded,
      load_bench_model(options.model, {.rows = options.step_tokens + batch, .logit_rows = batch}));
  SKEIN_ASSIGN(const auto requests, bench::to_requests(items, *loaded.model));
  if (options.long_prompt_tokens > 0) {
    levels.long_prompts = [tokens = options.long_prompt_tokens,
                           vocab = loaded.model->vocab()](uint32_t number) {
      return bench::made_up_tokens(bench::made_up_workload(kFirstLong + number, 1, tokens, 1)[0],
                                   vocab);
    };
  }
  const SystemClock clock;
  SKEIN_ASSIGN(
      const auto target,
      bench::ModelTarget::create(
          loaded.model, *loaded.pool,
          {.step_tokens = options.step_tokens,
           .pool_blocks = options.pool_blocks,
           .inter_token_target_us = static_cast<TimeUs>(options.inter_token_target_ms * kUsPerMs),
           .max_slowdown_percent = static_cast<uint32_t>(std::lround(100 * options.max_slowdown))},
          clock));
  const bench::ModelCosts costs = bench::costs_of(*loaded.model);
  bench::BenchmarkReport report =
      report_of(*loaded.model, options.model, costs, static_cast<uint32_t>(loaded.pool->threads()));
  report.workload = {.prompts = options.workload.name(),
                     .requests = options.workload.prompts,
                     .max_tokens = options.workload.max_tokens,
                     .rounds = options.rounds,
                     .url = {}};
  if (!options.no_limits) {
    bench::BandwidthProbe probe(*loaded.pool);
    report.limits = bench::measure_limits(*loaded.pool, probe, report.machine);
  }
  const InterruptFlag interrupt;
  BenchProgress progress;
  SKEIN_ASSIGN(report.results, bench::run_benchmark(*target, requests, levels, clock, progress,
                                                    interrupt.pressed()));
  if (report.limits) add_limits(report, costs, *loaded.pool);
  if (interrupt.pressed() && report.results.empty()) return CommandResult::interrupted();
  SKEIN_TRY(show_report(report, options.output, "batched"));
  return interrupt.pressed() ? CommandResult::interrupted() : CommandResult();
}

}  // namespace

std::string BenchModelFlags::name() const {
  if (!dummy_config.empty()) {
    return fmt::format("{} with random {} weights",
                       std::filesystem::path(dummy_config).filename().string(), dummy_quant);
  }
  const auto path = model_path(model.model);
  return path.ok() ? std::filesystem::path(*path).filename().string() : model.model;
}

void add_bench_model_options(CLI::App& command, BenchModelFlags& flags) {
  add_model_options(command, flags.model);
  CLI::Option* model = command.get_option("--model");
  model->required(false);
  flags.model.model = "default";
  command
      .add_option("--dummy-weights", flags.dummy_config,
                  "A config.json: measure that shape with random weights instead")
      ->excludes(model);
  command.add_option("--dummy-quant", flags.dummy_quant, "Quantization of the random weights")
      ->capture_default_str();
}

Result<BenchModel> load_bench_model(const BenchModelFlags& flags, const BatchLimits& limits) {
  BenchModel out;
  ModelFlags model = flags.model;
  if (!flags.dummy_config.empty()) {
    SKEIN_ASSIGN(TemporaryFile file, write_dummy_model(flags.dummy_config, flags.dummy_quant));
    model.model = file.path();
    out.file = std::make_unique<TemporaryFile>(std::move(file));
  }
  out.pool = make_pool(model);
  SKEIN_ASSIGN(out.model, load_model(model, limits, *out.pool));
  return out;
}

Result<std::vector<bench::WorkItem>> read_trace(const WorkloadFlags& flags) {
  SKEIN_ASSIGN(const std::string text, read_file(flags.trace));
  auto items = bench::parse_trace(text, flags.max_tokens);
  if (!items.ok()) return invalid_argument("{}: {}", flags.trace, items.message());
  return std::move(*items);
}

Result<std::vector<bench::WorkItem>> work_items(const WorkloadFlags& flags, uint32_t first,
                                                uint32_t count) {
  if (!flags.trace.empty()) {
    SKEIN_ASSIGN(std::vector<bench::WorkItem> items, read_trace(flags));
    for (size_t i = 0; items.size() < count; ++i) items.push_back(items[i]);
    return items;
  }
  if (flags.prompt_tokens > 0) {
    return bench::made_up_workload(first, count, flags.prompt_tokens, flags.max_tokens);
  }
  auto items = bench::built_in_workload(first + count, flags.max_tokens, flags.shared_prefix);
  items.erase(items.begin(), items.begin() + first);
  return items;
}

void add_bench(CLI::App& app, CommandResult& result) {
  auto options = std::make_shared<CompareModesOptions>();
  CLI::App* command = app.add_subcommand("bench", "Measure: throughput, latency, limits, peers");
  command->footer(kBenchManual);
  add_bench_model_options(*command, options->model);
  add_workload_options(*command, options->workload);
  command
      ->add_option("--concurrency", options->concurrencies,
                   "Levels: how many requests are in flight; batch_max_batch_size follows")
      ->delimiter(',')
      ->check(CLI::Range(1U, 4096U))
      ->capture_default_str();
  command->add_option("--rounds", options->rounds, "Of every level; the median one counts")
      ->check(CLI::Range(1U, 1000U))
      ->capture_default_str();
  command->add_option("--step-tokens", options->step_tokens, "Prompt tokens in a step")
      ->check(CLI::Range(1U, 1U << 16))
      ->capture_default_str();
  command
      ->add_option(
          "--interference", options->long_prompt_tokens,
          "Every level once more while prompts of this length keep arriving, one at a time")
      ->check(CLI::Range(1U, 1U << 20));
  command
      ->add_option("--inter-token-target-ms", options->inter_token_target_ms,
                   "What prompts of others may cost between two tokens; 0: no target")
      ->check(CLI::Range(0.0, 60'000.0))
      ->capture_default_str();
  command
      ->add_option("--max-slowdown", options->max_slowdown,
                   "How many times longer prompts may make a step; 0: no limit")
      ->check(CLI::Range(0.0, 10'000.0))
      ->capture_default_str();
  command
      ->add_option("--batch-block-pool-size", options->pool_blocks,
                   "KV blocks of 32 tokens; as many as a batch needs if absent")
      ->check(CLI::Range(1U, 1U << 24));
  command->add_flag("--no-single", options->no_single, "Leave out one at a time");
  command->add_flag("--no-limits", options->no_limits, "Leave out the hardware's limits");
  add_output_options(*command, options->output);
  add_bench_serve(*command, result);
  add_bench_compare(*command, result);
  add_bench_sim(*command, result);
  add_bench_roofline(*command, result);
  command->callback([options, command, &result] {
    if (!command->get_subcommands().empty()) return;
    const auto ran = compare_modes(*options);
    result = ran.ok() ? *ran : CommandResult(ran.status());
  });
}

}  // namespace skein::apps
