#include "apps/bench_output.h"

#include <cstdio>
#include <fmt/format.h>
#include <fstream>

#include "bench/plot.h"

namespace skein::apps {

void add_output_options(CLI::App& command, BenchOutput& output) {
  auto* json = command.add_flag("--json", output.json, "Print JSON instead of a table");
  command.add_flag("--markdown", output.markdown, "Print the table as Markdown")->excludes(json);
  command.add_option("--save", output.save, "Write the JSON to this file too");
  command.add_option("--plot", output.plot,
                     "Draw throughput and latency against concurrency: an SVG file");
}

void add_workload_options(CLI::App& command, WorkloadFlags& flags) {
  command
      .add_option("--prompts", flags.prompts,
                  "Requests at every level, at least; each level rounds up to whole batches")
      ->check(CLI::Range(1U, 1U << 20))
      ->capture_default_str();
  command.add_option("-n,--max-tokens", flags.max_tokens, "Tokens to generate for each")
      ->check(CLI::Range(1U, 1U << 20))
      ->capture_default_str();
  auto* shared = command.add_flag("--shared-prefix", flags.shared_prefix,
                                  "Begin every prompt with the same 200 tokens or so");
  auto* length = command
                     .add_option("--prompt-tokens", flags.prompt_tokens,
                                 "Prompts of exactly this many made-up ids instead")
                     ->check(CLI::Range(1U, 1U << 20))
                     ->excludes(shared);
  command
      .add_option("--trace", flags.trace,
                  "Requests of this file instead: JSON lines, or a server's log")
      ->excludes(shared)
      ->excludes(length);
}

std::string WorkloadFlags::name() const {
  if (!trace.empty()) return "trace " + trace;
  if (prompt_tokens > 0) return fmt::format("made-up {}-token", prompt_tokens);
  return shared_prefix ? "built-in, shared prefix" : "built-in";
}

Status write_whole_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) return unavailable("{}: cannot be written", path);
  return {};
}

Status show_report(const bench::BenchmarkReport& report, const BenchOutput& output,
                   const std::string& line) {
  if (output.json) {
    fmt::print("{}", bench::to_json(report));
  } else {
    const char* const gap = output.markdown ? "\n" : "";
    fmt::print("{}\n{}{}", bench::describe(report),
               bench::results_table(report.results, output.style()), gap);
    const std::string classes = bench::classes_table(report.results, output.style());
    if (!classes.empty()) fmt::print("\n{}", classes);
  }
  std::fflush(stdout);
  if (!output.save.empty()) SKEIN_TRY(write_whole_file(output.save, bench::to_json(report)));
  if (!output.plot.empty()) {
    const bench::Named named[] = {{line, report}};
    SKEIN_ASSIGN(const std::string svg, bench::plot_svg(named));
    SKEIN_TRY(write_whole_file(output.plot, svg));
  }
  return {};
}

}  // namespace skein::apps
