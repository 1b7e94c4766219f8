#include <filesystem>
#include <fmt/format.h>
#include <memory>

#include "apps/bench_commands.h"
#include "apps/files.h"
#include "bench/plot.h"

namespace skein::apps {
namespace {

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

Status compare(const BenchCompareOptions& options) {
  std::vector<bench::Named> reports;
  for (const std::string& path : options.files) {
    SKEIN_ASSIGN(bench::Named named, read_report(path));
    if (reports.size() < options.names.size()) named.name = options.names[reports.size()];
    reports.push_back(std::move(named));
  }
  SKEIN_ASSIGN(const std::string table,
               bench::comparison_table(
                   reports[0], reports[1],
                   options.markdown ? bench::TableStyle::kMarkdown : bench::TableStyle::kTerminal));
  fmt::print("{}", table);
  if (options.plot.empty()) return {};
  SKEIN_ASSIGN(const std::string svg, bench::plot_svg(reports));
  return write_whole_file(options.plot, svg);
}

}  // namespace

void add_bench_compare(CLI::App& bench, CommandResult& result) {
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
  command->callback([options, &result] { result = compare(*options); });
}

}  // namespace skein::apps
