#include "apps/bench_setup.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

#include "apps/files.h"

namespace skein::apps {
namespace {

constexpr std::chrono::milliseconds kBenchRedraw{100};
constexpr uint64_t kBenchBarWidth = 30;

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

Result<BenchModel> load_bench_model(const BenchModelFlags& flags, const DecoderLimits& limits) {
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

Status show_report(const bench::BenchmarkReport& report, const BenchOutput& output,
                   const std::string& line) {
  const bench::TableStyle style = table_style(output.markdown);
  if (output.json) {
    fmt::print("{}", bench::to_json(report));
  } else {
    const char* const gap = output.markdown ? "\n" : "";
    fmt::print("{}\n{}{}", bench::describe(report), bench::results_table(report.results, style),
               gap);
    const std::string classes = bench::classes_table(report.results, style);
    if (!classes.empty()) fmt::print("\n{}", classes);
  }
  std::fflush(stdout);
  if (!output.save.empty()) SKEIN_TRY(write_file(output.save, bench::to_json(report)));
  if (!output.plot.empty()) {
    const bench::Named named[] = {{line, report}};
    SKEIN_ASSIGN(const std::string svg, bench::plot_svg(named));
    SKEIN_TRY(write_file(output.plot, svg));
  }
  return {};
}

BenchProgress::BenchProgress() : shown_(::isatty(STDERR_FILENO) == 1) {}

void BenchProgress::begins(const char* mode, uint32_t concurrency, uint64_t tokens) {
  what_ = concurrency == 0 ? std::string(mode) : fmt::format("{}, {} at once", mode, concurrency);
  total_ = std::max<uint64_t>(tokens, 1);
  began_ = last_drawn_ = std::chrono::steady_clock::now();
  draw(0, began_);
}

void BenchProgress::got_tokens(uint64_t tokens_so_far) {
  const Time now = std::chrono::steady_clock::now();
  if (now - last_drawn_ >= kBenchRedraw) draw(tokens_so_far, now);
}

void BenchProgress::ended(const bench::BenchmarkResult&) {
  clear();
}

void BenchProgress::draw(uint64_t tokens, Time now) {
  if (!shown_) return;
  last_drawn_ = now;
  drawn_ = true;
  const uint64_t filled = std::min(kBenchBarWidth, tokens * kBenchBarWidth / total_);
  const double seconds = std::chrono::duration<double>(now - began_).count();
  fmt::print(stderr, "\r\x1b[K{:<20} [{:=<{}}{:<{}}] {:3} %  {:.0f} tokens/s", what_, "", filled,
             "", kBenchBarWidth - filled, std::min<uint64_t>(100, tokens * 100 / total_),
             seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0);
  std::fflush(stderr);
}

void BenchProgress::clear() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace skein::apps
