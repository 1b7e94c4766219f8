#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <utility>

#include "apps/bench_setup.h"
#include "apps/bench_speculation.h"
#include "apps/commands.h"
#include "apps/files.h"
#include "apps/terminal.h"
#include "bench/model_target.h"
#include "bench/report.h"

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
  float temperature = 0;
  bool no_limits = false;
  bool no_single = false;
  std::string speculation;  // empty: the modes are compared
  std::string draft_model;
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
    "  skein bench --shape llama-8b --type q4_0 --device cuda\n"
    "  skein bench --speculation --concurrency 1,32 --rounds 5\n"
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

CommandResult compare_modes(const CompareModesOptions& options) {
  bench::BenchOptions levels{options.concurrencies, options.workload.prompts, options.rounds,
                             !options.no_single};
  SKEIN_ASSIGN(const auto items, work_items(options.workload, 0, bench::requests_needed(levels)));
  const uint32_t batch = largest(options.concurrencies) + (options.long_prompt_tokens > 0 ? 1 : 0);
  SKEIN_ASSIGN(
      BenchModel loaded,
      load_bench_model(options.model, {.rows = options.step_tokens + batch, .logit_rows = batch}));
  SKEIN_ASSIGN(auto requests, bench::to_requests(items, *loaded.model));
  for (bench::BenchRequest& request : requests) request.temperature = options.temperature;
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

// --- skein bench compare ---

struct BenchCompareOptions {
  std::vector<std::string> files;
  std::vector<std::string> names;
  bool markdown = false;
  std::string plot;
};

Result<bench::Named> read_report(const std::string& path) {
  SKEIN_ASSIGN(const std::string text, read_file(path));
  auto report = bench::parse_report(text);
  if (!report.ok()) return invalid_argument("{}: {}", path, report.message());
  return bench::Named{std::filesystem::path(path).stem().string(), std::move(*report)};
}

Status compare_files(const BenchCompareOptions& options) {
  std::vector<bench::Named> reports;
  for (const std::string& path : options.files) {
    SKEIN_ASSIGN(bench::Named named, read_report(path));
    if (reports.size() < options.names.size()) named.name = options.names[reports.size()];
    reports.push_back(std::move(named));
  }
  SKEIN_ASSIGN(const std::string table,
               bench::comparison_table(reports[0], reports[1], table_style(options.markdown)));
  fmt::print("{}", table);
  if (options.plot.empty()) return {};
  SKEIN_ASSIGN(const std::string svg, bench::plot_svg(reports));
  return write_file(options.plot, svg);
}

void add_compare(CLI::App& bench, CommandResult& result) {
  auto options = std::make_shared<BenchCompareOptions>();
  CLI::App* command = bench.add_subcommand("compare", "Set two saved runs side by side");
  command->footer(
      "A ratio above 1 means that the second run has more of it: good for tokens/s, bad for\n"
      "milliseconds.\n\n"
      "  skein bench compare before.json after.json\n"
      "  skein bench compare --name llama-server --name skein a.json b.json --markdown");
  command->add_option("files", options->files, "Two files that --save or --json made")
      ->expected(2)
      ->required();
  command->add_option("--name", options->names, "What to call a run; the file's stem if absent")
      ->allow_extra_args(false);
  command->add_flag("--markdown", options->markdown, "Print the table as Markdown");
  command->add_option("--plot", options->plot, "Draw both: an SVG file");
  command->callback([options, &result] { result = compare_files(*options); });
}

// --- skein bench roofline ---

struct BenchRooflineOptions {
  BenchModelFlags model;
  std::vector<uint32_t> batches = {1, 2, 4, 8, 16, 32, 64};
  uint32_t context = 192;
  bool markdown = false;
};

Status bench_roofline(const BenchRooflineOptions& options) {
  const bench::TableStyle style = table_style(options.markdown);
  SKEIN_ASSIGN(const BenchModel loaded, load_bench_model(options.model, {}));
  bench::MachineFacts machine = bench::read_machine();
  bench::BandwidthProbe probe(*loaded.pool);
  const bench::MachineLimits limits = bench::measure_limits(*loaded.pool, probe, machine);
  fmt::print("{}: {} threads\n\n", machine.cpu, loaded.pool->threads());
  bench::TextTable table({"what the machine can do", "at most"});
  table.add({fmt::format("read {} MB, over and over", bench::BandwidthProbe::kMaxBytes / 1'000'000),
             fmt::format("{} GB/s", bench::readable(limits.memory_gb_per_second))});
  if (limits.cache_bytes > 0) {
    table.add({fmt::format("read {} MB: half of the L3 cache", limits.cache_bytes / 1'000'000),
               fmt::format("{} GB/s", bench::readable(limits.cache_gb_per_second))});
  }
  for (const bench::ArithmeticPeak& peak : limits.peaks) {
    table.add({"multiply and add, " + peak.name, fmt::format("{:.3f} T/s", peak.tera_per_second)});
  }
  fmt::print("{}\n", table.print(style));
  const bench::ModelCosts costs = bench::costs_of(*loaded.model);
  fmt::print(
      "{}: {:.1f} MB of weights a step, {:.1f} kB of KV a token, {:.0f} M operations a row; "
      "{} tokens of context each\n\n",
      options.model.name(), static_cast<double>(costs.weight_bytes) / 1e6,
      static_cast<double>(costs.kv_bytes_per_token) / 1e3,
      static_cast<double>(costs.operations_per_row) / 1e6, options.context);
  std::vector<bench::StepLimit> steps;
  for (const uint32_t batch : options.batches) {
    steps.push_back(bench::step_limit(costs, batch, options.context, limits.best_tera_per_second(),
                                      [&](uint64_t bytes) { return probe.gb_per_second(bytes); }));
  }
  fmt::print("{}", bench::limits_table(steps, style));
  return {};
}

void add_roofline(CLI::App& bench, CommandResult& result) {
  auto options = std::make_shared<BenchRooflineOptions>();
  CLI::App* command =
      bench.add_subcommand("roofline", "What this machine could do with a model at best");
  command->footer(
      "A step must read all weights once and the context of every sequence, at the speed at which\n"
      "this machine reads so many bytes over and over; and it must multiply. The longer of the "
      "two\n"
      "is the limit.\n\n"
      "  skein bench roofline\n"
      "  skein bench roofline --model m.gguf --context 2048 --threads 8");
  add_bench_model_options(*command, options->model);
  command->add_option("--batch", options->batches, "Sequences in a step")
      ->delimiter(',')
      ->check(CLI::Range(1U, 4096U))
      ->capture_default_str();
  command->add_option("--context", options->context, "Tokens of each sequence")
      ->check(CLI::Range(1U, 1U << 24))
      ->capture_default_str();
  command->add_flag("--markdown", options->markdown, "Print the tables as Markdown");
  command->callback([options, &result] { result = bench_roofline(*options); });
}

// What is measured, and how.
void add_mode_options(CLI::App& command, CompareModesOptions* options) {
  command
      .add_option("--concurrency", options->concurrencies,
                  "Levels: how many requests are in flight; batch_max_batch_size follows")
      ->delimiter(',')
      ->check(CLI::Range(1U, 4096U))
      ->capture_default_str();
  command.add_option("--rounds", options->rounds, "Of every level; the median one counts")
      ->check(CLI::Range(1U, 1000U))
      ->capture_default_str();
  command.add_option("--step-tokens", options->step_tokens, "Prompt tokens in a step")
      ->check(CLI::Range(1U, 1U << 16))
      ->capture_default_str();
  command
      .add_option("--interference", options->long_prompt_tokens,
                  "Every level once more while prompts of this length keep arriving, one at a time")
      ->check(CLI::Range(1U, 1U << 20));
  command
      .add_option("--inter-token-target-ms", options->inter_token_target_ms,
                  "What prompts of others may cost between two tokens; 0: no target")
      ->check(CLI::Range(0.0, 60'000.0))
      ->capture_default_str();
  command
      .add_option("--max-slowdown", options->max_slowdown,
                  "How many times longer prompts may make a step; 0: no limit")
      ->check(CLI::Range(0.0, 10'000.0))
      ->capture_default_str();
  command
      .add_option("--temperature", options->temperature,
                  "Draw tokens at this temperature instead of the likeliest ones")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command
      .add_option("--batch-block-pool-size", options->pool_blocks,
                  "KV blocks of 32 tokens; as many as a batch needs if absent")
      ->check(CLI::Range(1U, 1U << 24));
  command
      .add_option("--speculation", options->speculation,
                  "Measure guessed tokens instead, with (ngram, or auto if nothing is said) and "
                  "without in turns: chat, an edit of code, a quoted document")
      ->expected(0, 1)
      ->default_str("auto")
      ->check(CLI::IsMember({"ngram", "auto"}));
  command
      .add_option("--draft-model", options->draft_model,
                  "With --speculation: a small model of the same vocabulary that guesses too")
      ->needs("--speculation");
  command.add_flag("--no-single", options->no_single, "Leave out one at a time");
  command.add_flag("--no-limits", options->no_limits, "Leave out the hardware's limits");
}

}  // namespace

void add_bench(CLI::App& app, CommandResult& result) {
  auto options = std::make_shared<CompareModesOptions>();
  CLI::App* command = app.add_subcommand("bench", "Measure: throughput, latency, limits, peers");
  command->footer(kBenchManual);
  add_bench_model_options(*command, options->model);
  add_workload_options(*command, options->workload);
  add_mode_options(*command, options.get());
  add_output_options(*command, options->output);
  add_bench_serve(*command, result);
  add_compare(*command, result);
  add_bench_sim(*command, result);
  add_roofline(*command, result);
  command->callback([options, command, &result] {
    if (!command->get_subcommands().empty()) return;
    if (command->count("--speculation") > 0) {
      result = compare_speculation({options->model, options->speculation, options->draft_model,
                                    options->concurrencies, options->rounds,
                                    options->workload.max_tokens, options->output.markdown});
      return;
    }
    result = compare_modes(*options);
  });
}

}  // namespace skein::apps
