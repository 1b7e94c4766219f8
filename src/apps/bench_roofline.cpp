#include <fmt/format.h>
#include <memory>

#include "apps/bench_commands.h"
#include "bench/model_target.h"
#include "bench/text_table.h"

namespace skein::apps {
namespace {

struct BenchRooflineOptions {
  BenchModelFlags model;
  std::vector<uint32_t> batches = {1, 2, 4, 8, 16, 32, 64};
  uint32_t context = 192;
  bool markdown = false;
};

Status bench_roofline(const BenchRooflineOptions& options) {
  const bench::TableStyle style =
      options.markdown ? bench::TableStyle::kMarkdown : bench::TableStyle::kTerminal;
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

}  // namespace

void add_bench_roofline(CLI::App& bench, CommandResult& result) {
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

}  // namespace skein::apps
